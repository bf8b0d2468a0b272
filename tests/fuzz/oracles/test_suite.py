"""The oracles of the suite on programs that are right, and on compilers that are not."""

from __future__ import annotations

import pytest
import torch
from benchmarks.mutants.fresh_mutants import read_mutants
from tests.fuzz.programs.program_texts import TEXTS
from torch.export import ExportedProgram

from exirkit import to_edge
from exirkit.fuzz.compilers import ExirkitCompiler, FunctionCompiler, compiler_of, drawn_choices, every_choice
from exirkit.fuzz.examination import Failure, equivalent
from exirkit.fuzz.generation import generate
from exirkit.fuzz.mutants import applied
from exirkit.fuzz.mutants.model import named
from exirkit.fuzz.official import missing_reason
from exirkit.fuzz.oracles import ORACLES, check, oracles_named
from exirkit.fuzz.programs import parse_program, program_text
from exirkit.fuzz.triage import localization
from exirkit.ir import UsageError

STATEFUL = parse_program(
    """program(1)
s0 = symbol(2, 9)
w = parameter("f32[5, 5]", dyadic(3))
state = buffer("f32[5]", zeros())
other = buffer("i64[]", numbers([3]))

def forward(x: "f32[s0, 5]", mask: "bool[5]"):
    y = aten.mm.default(x, w)
    turned = aten.permute.default(y, [1, 0])
    values, places = aten.sort.default(turned, 1)
    sums = aten.sum.dim_IntList(values, [1])
    kept = aten.where.self(mask, sums, state)
    count = aten.add.Tensor(other, 1)
    soft = aten.softmax.int(y, 1)
    update(state, kept)
    update(other, count)
    return kept, soft, places, x, s0 * 2, None, kept

def again(z: "f32[5]"):
    total = aten.add.Tensor(z, state)
    return total, w

run("forward", s0=2, x=dyadic(1), mask=dyadic(8))
run("again", z=dyadic(5))
run("forward", s0=9, x=dyadic(2), mask=dyadic(9))
run("forward", s0=3, x=dyadic(4), mask=dyadic(3))
inexact(soft)
"""
)

NO_CORE_OPERATOR = parse_program(
    """program(1)

def forward(x: "f32[4, 4]"):
    y = aten.cholesky.default(x)
    return y

run("forward", x=numbers([4, 0, 0, 0, 0, 4, 0, 0, 0, 0, 4, 0, 0, 0, 0, 4]))
"""
)


def lower_well(programs: dict[str, ExportedProgram]) -> object:
    return to_edge(programs).to_executorch()


def lower_another_program(programs: dict[str, ExportedProgram]) -> bytes:
    class Other(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    return to_edge(torch.export.export(Other(), (torch.zeros(4),))).to_executorch().buffer


def lower_nothing(programs: dict[str, ExportedProgram]) -> bytes:
    return b"nothing"


@pytest.mark.parametrize("compiler", list(every_choice()), ids=ExirkitCompiler.describe)
def test_a_program_that_is_right_passes_every_oracle(compiler: ExirkitCompiler) -> None:
    usual = [name for name, one in ORACLES.items() if "official wheel" not in one.needs]
    for seed in range(2):
        verdict = check(STATEFUL, compiler=compiler, oracles=usual, seed=seed, is_exhaustive=True)
        assert verdict.is_good, verdict.failures
        assert not verdict.not_run
        assert verdict.comparisons.bitwise > 100
        assert verdict.comparisons.tolerant > 0
        assert set(verdict.seconds) >= set(usual)


@pytest.mark.executorch
def test_the_official_runtime_and_exporter_agree() -> None:
    assert missing_reason() is None
    verdict = check(STATEFUL, oracles=["eager-run", "official-runtime", "official-file"])
    assert verdict.is_good, verdict.failures
    official = check(STATEFUL, compiler=compiler_of("official"))
    assert official.is_good, official.failures
    assert set(official.not_run) == {"operand-layouts", "other-memory-plan", "byte-round-trip", "truthful-passes"}


def test_what_is_written_through_a_view_of_a_result_is_not_kept_from_run_to_run() -> None:
    text = """program(1)

def forward(x: "f32[1, 1, 1, 1]", i: "i64[1, 1, 1, 1]"):
    y = aten.max_unpool2d.default(x, i, [3, 1])
    return y

run("forward", x=dyadic(1), i=zeros())
"""
    compiler = ExirkitCompiler(
        level=0, alloc_graph_output=False, in_place=True, alignment=8, run_reinplace_pass=True, kernels="official"
    )
    verdict = check(parse_program(text), compiler=compiler)
    assert verdict.is_good, verdict.failures


def test_what_the_chain_declines_is_not_a_failure() -> None:
    verdict = check(NO_CORE_OPERATOR)
    assert verdict.is_good
    assert verdict.unsupported == "EK301"


def test_black_boxes() -> None:
    assert check(STATEFUL, compiler=FunctionCompiler(lower_well)).is_good
    named = compiler_of("tests.fuzz.oracles.test_suite:lower_nothing")
    failures = check(STATEFUL, compiler=named).failures
    assert failures[0].oracle == "memory-plan"
    assert failures[0].symptom == "raised ProgramFormatError EK504"
    failures = check(STATEFUL, compiler=FunctionCompiler(lower_another_program)).failures
    assert failures[0].oracle == "poisoned-run"


def test_an_invalid_program_is_a_failure_of_the_generator() -> None:
    text = program_text(STATEFUL).replace("aten.mm.default(x, w)", "aten.mm.default(w, x)")
    failures = check(parse_program(text)).failures
    assert [one.oracle for one in failures] == ["eager-run"]


@pytest.mark.parametrize("seed", range(12))
def test_equivalents_are_other_programs(seed: int) -> None:
    changed, note = equivalent(STATEFUL, seed)
    assert note
    assert changed != STATEFUL
    assert parse_program(program_text(changed)) == changed
    assert equivalent(STATEFUL, seed) == (changed, note)


def test_oracles_are_asked_in_their_order_and_unknown_ones_rejected() -> None:
    assert [oracle.name for oracle in oracles_named(["poisoned-run", "eager-run"])] == ["eager-run", "poisoned-run"]
    assert [oracle.name for oracle in oracles_named(["O11x", "O5"])] == ["poisoned-run", "official-file"]
    with pytest.raises(UsageError, match="EK830"):
        oracles_named(["O99"])


@pytest.mark.parametrize("first", range(0, 60, 6))
def test_generated_programs_pass_the_default_oracles(first: int) -> None:
    for seed in range(first, first + 6):
        compiler = drawn_choices(ExirkitCompiler(level=seed % 3), seed)
        verdict = check(generate(seed), compiler=compiler, seed=seed)
        assert verdict.is_good, (seed, verdict.failures)


def test_suspects_are_steps_of_localization_or_parts() -> None:
    named = {one for oracle in ORACLES.values() for one in oracle.suspects}
    assert named - localization.STEPS.keys() == {"planner", "emitter"}
    assert all(oracle.suspects for oracle in ORACLES.values())


def test_failures_cross_borders() -> None:
    failure = Failure("dialect-agreement", "output value", "text", "edge", "output 1", {"method": "forward", "run": 1})
    assert Failure.of_document(failure.document()) == failure


MEMORY_OF_THE_CALLER = TEXTS["memory_of_the_caller"]


@pytest.mark.parametrize("plans_outputs", [True, False])
def test_memory_that_the_caller_provides_is_not_a_false_alarm(plans_outputs: bool) -> None:
    compiler = ExirkitCompiler(alloc_graph_input=False, alloc_graph_output=plans_outputs)
    verdict = check(parse_program(MEMORY_OF_THE_CALLER), compiler=compiler)
    assert verdict.is_good, verdict.failures
    assert not verdict.unsupported


def test_callers_lay_inputs_as_they_like() -> None:
    bug = named("strided-inputs-taken-as-they-are", read_mutants())
    program = parse_program(
        'program(1)\n\ndef forward(x: "f32[2, 3]"):\n    y = aten.view_copy.default(x, [6])\n'
        "    z = aten.add.Tensor(y, 3)\n    return z\n\n"
        'run("forward", x=dyadic(1))\nrun("forward", x=dyadic(2))\n'
    )
    compiler = ExirkitCompiler(alloc_graph_input=False)
    assert check(program, compiler=compiler).is_good
    with applied(bug):
        assert not check(program, compiler=compiler).is_good
