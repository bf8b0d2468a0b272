"""Operands that show one tensor are in programs, and a pass that lets one of them be overwritten is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.generation import Policy, SeededChoices, generate
from exirkit.fuzz.generation.policy import draw_plan
from exirkit.fuzz.mutants import Mutant, applied
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import Method, Program, Ref
from exirkit.fuzz.triage import find_culprit

_VIEWS = ("aten.view.default", "aten.unsqueeze.default", "aten.squeeze.dim")
_READS_TWICE = Mutant(
    id="reads-twice",
    part="pass",
    culprits=("write-in-place",),
    doc="A call writes in place although another operand lies in the memory that it overwrites.",
    module="passes.to_executorch.in_place",
    function="_Memory._reads_alike",
    old="is_first = overwritten is None and position == 0",
    new="is_first = overwritten is None",
    program="",
)


def _programs(last: int) -> Iterator[tuple[int, Program]]:
    for seed in range(last):
        if "overlapping_operands" in draw_plan(SeededChoices(seed), Policy()).requests:
            yield seed, generate(seed)


def _ways(method: Method) -> Iterator[str]:
    """Yield in which way the source of each `index_put` shows what it is written to."""
    made = {name: call for call in method.steps for name in call.results if name is not None}
    for call in (call for call in method.steps if call.op == "aten.index_put.default"):
        base, _, source = (one.name if isinstance(one, Ref) else None for one in call.args[:3])
        if source == base:
            yield "itself"
        while source in made and made[source].op in _VIEWS:
            first = made[source].args[0]
            source = first.name if isinstance(first, Ref) else None
            if source == base:
                yield "a view"


def test_sources_are_what_they_are_written_to_and_views_of_it() -> None:
    found = Counter(way for _, program in _programs(900) for method in program.methods for way in _ways(method))
    assert found["itself"] >= 3, found
    assert found["a view"] >= 3, found


def test_a_pass_that_overwrites_another_operand_is_found() -> None:
    compiler = ExirkitCompiler(kernels="official")
    for seed, program in _programs(400):
        with applied(_READS_TWICE):
            verdict = check(program, compiler=compiler, seed=seed)
            if verdict.failures:
                culprit = find_culprit(program, verdict.failures[0], compiler=compiler, seed=seed)
                assert culprit.part == "write-in-place"
                break
    else:
        raise AssertionError("no program shows it")
    assert check(program, compiler=compiler, seed=seed).is_good
