"""Relations between programs: what a compiler must not care about, and compilers that do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram
from torch.fx import Graph

from exirkit import to_edge
from exirkit.fuzz.compilers import ExirkitCompiler, FunctionCompiler
from exirkit.fuzz.examination import GraphSession, renamed, reordered, with_dead_code
from exirkit.fuzz.generation import generate
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import Program, check_program, parse_program, run_eagerly
from exirkit.fuzz.triage import find_culprit
from exirkit.ir import copy_program
from exirkit.passes import ExecutorchBackendConfig

aten = torch.ops.aten
PROGRAM = parse_program(
    """program(1)

def forward(a: "f32[3]", b: "f32[3]"):
    c = aten.neg.default(a)
    d = aten.abs.default(b)
    e = aten.neg.default(c)
    f = aten.add.Tensor(e, d)
    return f, c

run("forward", a=dyadic(1), b=dyadic(2))
"""
)
SEEDS = {"other-names": 4, "other-order": 5, "dead-code": 2, "two-parts": 3}


def lowered_by(change: Callable[[Graph], object]) -> FunctionCompiler:
    """Return a compiler whose only pass edits graphs."""

    def lower(programs: Mapping[str, ExportedProgram]) -> dict[str, ExportedProgram]:
        made = {name: copy_program(one) for name, one in programs.items()}
        for one in made.values():
            change(one.graph)
        return made

    return FunctionCompiler(lower)


def first_name_is_dropped(graph: Graph) -> None:
    last = max((node for node in graph.nodes if node.op == "call_function"), key=lambda node: node.name)
    last.target = aten.abs.default if last.target is aten.neg.default else last.target


def first_call_is_special(graph: Graph) -> None:
    first = next(node for node in graph.nodes if node.op == "call_function")
    if first.target is aten.abs.default:
        first.target = aten.neg.default


def calls_are_counted(graph: Graph) -> None:
    calls = [node for node in graph.nodes if node.op == "call_function"]
    if len(calls) > 4:
        graph.output_node().args = ((calls[-1], calls[0]),)
        calls[0].target = aten.abs.default


def two_negations_are_one(graph: Graph) -> None:
    for node in list(graph.nodes):
        if node.target is aten.neg.default and node.args[0].target is node.target:
            node.replace_all_uses_with(node.args[0])


WRONG = {
    "other-names": first_name_is_dropped,
    "other-order": first_call_is_special,
    "dead-code": calls_are_counted,
    "two-parts": two_negations_are_one,
}


@pytest.mark.parametrize("oracle", WRONG)
def test_what_must_not_matter(oracle: str) -> None:
    asked: list[int] = []

    def failures(change: Callable[[Graph], object], seed: int) -> list[str]:
        verdict = check(PROGRAM, compiler=lowered_by(change), oracles=[oracle], seed=seed)
        asked.extend([] if verdict.not_run else [seed])
        return [one.oracle for one in verdict.failures]

    # The choice of a seed may leave the place alone; one of a few finds it.
    seeds = range(SEEDS[oracle] % 4, 60, 4)
    assert any(failures(WRONG[oracle], seed) == [oracle] for seed in seeds)
    asked.clear()
    assert not any(failures(lambda graph: None, seed) for seed in seeds)
    assert len(asked) > 5
    assert not failures(WRONG[oracle], SEEDS[oracle] + 1), "asked by every fourth seed"


def test_relatives_compute_the_same() -> None:
    changed = 0
    for seed in range(30):
        program = generate(seed)
        wanted = run_eagerly(program)
        for relative in (renamed, reordered, with_dead_code):
            other, note = relative(program, seed)
            changed += bool(note)
            check_program(other)
            found = run_eagerly(other)
            for one, two in zip(found, wanted, strict=True):
                same = [
                    torch.equal(a.nan_to_num(), b.nan_to_num()) if isinstance(a, torch.Tensor) else a == b
                    for a, b in zip(one.outputs, two.outputs, strict=True)
                ]
                assert all(same), (seed, note)
    assert changed > 45


STATE = """program(1)
total = buffer("f32[2]", zeros())

def forward(x: "f32[2]"):
    more = aten.add.Tensor(total, x)
    update(total, more)
    return more

def other(y: "f32[2]"):
    twice = aten.mul.Scalar(total, 2)
    less = aten.sub.Tensor(twice, y)
    update(total, less)
    return less

run("forward", x=dyadic(1))
run("other", y=dyadic(2))
run("forward", x=dyadic(3))
run("other", y=dyadic(4))
"""


@dataclass(frozen=True)
class Unsharing(ExirkitCompiler):
    """Our chain, but methods have buffers of their own although they are to share them."""

    def config(self, *, has_names: bool = False) -> ExecutorchBackendConfig:
        return replace(self, share_mutable_buffers=False)._usual(has_names)

    def _usual(self, has_names: bool) -> ExecutorchBackendConfig:
        return ExirkitCompiler.config(self, has_names=has_names)


def test_methods_in_turn_and_the_same_file_again() -> None:
    program: Program = parse_program(STATE)
    asked = ["methods-in-turn", "lowered-again"]
    assert check(program, oracles=asked, seed=4).failures == ()
    found = [check(program, compiler=Unsharing(), oracles=asked[:1], seed=seed).failures for seed in (1, 2)]
    assert any(one and "buffers that methods share" in one[0].message for one in found)

    calls: list[int] = []

    def restless(programs: dict[str, ExportedProgram]) -> bytes:
        calls.append(1)
        return bytes(to_edge(programs).to_executorch().buffer) + bytes(16 * len(calls))

    (failure,) = check(PROGRAM, compiler=FunctionCompiler(restless), oracles=asked[1:], seed=4).failures
    assert failure.symptom.startswith("other bytes")

    def tired(programs: dict[str, ExportedProgram]) -> bytes:
        if len(calls) > 3:
            raise ValueError("no more")
        return restless(programs)

    (failure,) = check(PROGRAM, compiler=FunctionCompiler(tired), oracles=asked[1:], seed=4).failures
    assert failure.oracle == "lowered-again"


def test_passes_of_other_compilers_are_blamed() -> None:
    """A compiler that tells of its passes is blamed by pass, whatever it returns."""

    def of(program: ExportedProgram) -> Callable[..., Any]:
        return lambda *inputs: GraphSession(program).run(inputs).outputs

    def lower(programs: Mapping[str, ExportedProgram], watch: Any = None) -> dict[str, Any]:
        made = {name: copy_program(one) for name, one in programs.items()}
        for change in (first_call_is_special, two_negations_are_one, calls_are_counted):
            for one in made.values():
                change(one.graph)
            watch(change.__name__, made)
        return {name: of(one) for name, one in made.items()}

    compiler = FunctionCompiler(lower)
    (failure,) = check(PROGRAM, compiler=compiler).failures
    assert failure.oracle == "poisoned-run"
    assert find_culprit(PROGRAM, failure, compiler=compiler).part == "two_negations_are_one"

    def raising(programs: Mapping[str, ExportedProgram], watch: Any = None) -> dict[str, Any]:
        made = lower(programs, watch)
        del made
        raise ZeroDivisionError

    compiler = FunctionCompiler(raising)
    (failure,) = check(PROGRAM, compiler=compiler).failures
    assert (failure.oracle, failure.stage) == ("lowering", "what follows calls_are_counted")
