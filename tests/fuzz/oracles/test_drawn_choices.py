"""Choices that follow from seeds."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.fuzz.programs.program_texts import TEXTS

from exirkit.fuzz.compilers import ExirkitCompiler, drawn_choices, simpler_choices
from exirkit.fuzz.examination import Examination
from exirkit.fuzz.examination.examination import FailedError, RejectedError
from exirkit.fuzz.oracles import check
from exirkit.fuzz.oracles.suite import ORACLES, examine
from exirkit.fuzz.programs import parse_program
from exirkit.ir import Diagnostic, ModelError
from exirkit.program import to_edge

USUAL = ExirkitCompiler()

WRITES = TEXTS["early_and_late_writes"]


def test_every_choice_is_drawn_and_the_usual_ones_are_too() -> None:
    drawn = [drawn_choices(ExirkitCompiler(level=seed % 3), seed) for seed in range(400)]
    assert all(one.level == seed % 3 for seed, one in enumerate(drawn))
    assert 100 < sum(one == ExirkitCompiler(level=one.level) for one in drawn) < 220
    for name in (
        "alloc_graph_input",
        "alloc_graph_output",
        "in_place",
        "schedule",
        "remove_view_copy",
        "alignment",
        "kernels",
    ):
        assert min(Counter(getattr(one, name) for one in drawn).values()) > 30, name
    for name in (
        "planner",
        "memory_policy",
        "share_mutable_buffers",
        "separate_methods",
        "skip_dim_order",
        "run_reinplace_pass",
        "do_quant_fusion_and_const_prop",
        "optimize_for",
        "search",
        "emit_stacktrace",
        "constant_tensor_alignment",
    ):
        assert min(Counter(getattr(one, name) for one in drawn).values()) > 10, name
    assert 20 < sum(bool(one.reinplace_extra_ops) for one in drawn) < 100
    assert len({one.reinplace_extra_ops for one in drawn}) > 20
    assert drawn_choices(USUAL, 17) == drawn_choices(USUAL, 17)


def test_a_program_holds_with_all_of_them() -> None:
    program = parse_program(WRITES)
    for seed in range(12):
        verdict = check(program, compiler=drawn_choices(USUAL, seed), seed=seed)
        assert verdict.is_good, verdict.failures


def test_simpler_choices() -> None:
    compiler = ExirkitCompiler(level=2, in_place=True, alignment=64)
    assert list(simpler_choices(compiler)) == [
        ExirkitCompiler(level=2),
        ExirkitCompiler(level=2, alignment=64),
        ExirkitCompiler(level=2, in_place=True),
    ]
    assert list(simpler_choices(USUAL)) == []


SORTED = """
program(1)
s0 = symbol(2, 5)

def forward(x: "f32[s0]"):
    values, places = aten.sort.default(x)
    return values, places

run("forward", s0=4, x=dyadic(3))
"""


def test_legalization_is_part_of_what_is_drawn() -> None:
    program = parse_program(SORTED)
    examination = Examination(program, ExirkitCompiler(kernels="official"))
    assert examine(examination, ORACLES.values()).is_good
    planned = examination.lowering.planned["forward"]
    assert "sort" not in " ".join(str(node.target) for node in planned.graph.nodes)


@pytest.mark.parametrize(("operator", "raised"), [("sort.values", RejectedError), ("unique_dim.out", FailedError)])
def test_only_calls_of_the_program_are_rejected(operator: str, raised: type[Exception]) -> None:
    examination = Examination(parse_program(SORTED), ExirkitCompiler())
    examination.trace.edge = {"forward": to_edge(examination.exported["forward"]).exported_program()}

    def lower() -> None:
        message = f"the target official_host has no kernel for aten::{operator}"
        raise ModelError(Diagnostic(code="EK359", message=message))

    with pytest.raises(raised):
        examination.once("lower", lower, oracle="lowering", stage=None)
