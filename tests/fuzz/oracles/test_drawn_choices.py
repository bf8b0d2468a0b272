"""Choices that follow from seeds."""

from __future__ import annotations

from collections import Counter

from tests.fuzz.programs.program_texts import TEXTS

from exirkit.fuzz.compilers import ExirkitCompiler, drawn_choices, simpler_choices
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import parse_program

USUAL = ExirkitCompiler()

WRITES = TEXTS["early_and_late_writes"]


def test_every_choice_is_drawn_and_the_usual_ones_are_too() -> None:
    drawn = [drawn_choices(ExirkitCompiler(level=seed % 3), seed) for seed in range(400)]
    assert all(one.level == seed % 3 for seed, one in enumerate(drawn))
    assert 100 < sum(one == ExirkitCompiler(level=one.level) for one in drawn) < 220
    for name in ("alloc_graph_input", "alloc_graph_output", "in_place", "schedule", "remove_view_copy", "alignment"):
        assert min(Counter(getattr(one, name) for one in drawn).values()) > 30, name
    for name in ("planner", "memory_policy", "share_mutable_buffers", "separate_methods", "skip_dim_order"):
        assert min(Counter(getattr(one, name) for one in drawn).values()) > 10, name
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
