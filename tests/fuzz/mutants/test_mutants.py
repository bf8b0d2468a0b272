"""Every mutant is reached by its program and changes what can be seen of it, and is gone afterwards."""

from __future__ import annotations

import pytest
from tests.fuzz.mutants.stand_in import SQUARE

from exirkit.fuzz.mutants import Mutant, MutantResult, applied, changes, mutant, mutant_table, observed, shipped_mutants
from exirkit.fuzz.mutants.applying import function_of
from exirkit.fuzz.oracles import ExirkitCompiler, check
from exirkit.fuzz.programs import parse_program
from exirkit.ir import InternalError, UsageError

ALL = shipped_mutants()


@pytest.mark.parametrize("one", ALL, ids=[one.id for one in ALL])
def test_it_is_reached_and_changes_something(one: Mutant) -> None:
    count, is_infected = changes(one, parse_program(one.program))
    assert count > 0
    assert is_infected


ONE_OF_EACH = {one.culprits[0]: one for one in reversed(ALL) if one.part != "verifier"}


@pytest.mark.parametrize("one", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_its_program_shows_it_to_the_oracles(one: Mutant) -> None:
    compiler = ExirkitCompiler(**one.compiler)  # type: ignore[arg-type]
    with applied(one):
        assert not check(parse_program(one.program), compiler=compiler).is_good


def test_there_are_enough_of_every_kind() -> None:
    assert len({one.id for one in ALL}) == len(ALL) >= 45
    counts = {part: sum(one.part == part for one in ALL) for part in {one.part for one in ALL}}
    assert min(counts.values()) >= 2
    assert set(counts) == {"pass", "rules", "planner", "emitter", "interpreter", "verifier"}
    assert all(one.culprits and one.doc.endswith(".") for one in ALL)


def test_it_is_gone_afterwards() -> None:
    one = mutant("outputs-reversed")
    program = parse_program(one.program)
    function = function_of(one)
    code, names = function.__code__, set(function.__globals__)
    before = observed(program)
    with applied(one):
        assert observed(program) != before
    assert function.__code__ is code
    assert set(function.__globals__) == names
    assert observed(program) == before


def test_an_unchanged_program_looks_the_same_twice() -> None:
    assert changes(SQUARE, parse_program(SQUARE.program)) == (1, False)


def test_who_holds_the_function_has_the_bug_too() -> None:
    held = function_of(SQUARE)
    with applied(SQUARE) as reach:
        assert held is function_of(SQUARE)
    assert reach.count == 0


def test_a_bug_that_no_longer_fits() -> None:
    for change in ({"old": "no such text"}, {"function": "_no_such_function"}, {"old": "e"}):
        with pytest.raises(InternalError, match="EK881"), applied(SQUARE.model_copy(update=change)):
            pass


def test_an_unknown_bug() -> None:
    with pytest.raises(UsageError, match="EK880"):
        mutant("nothing")


def test_the_table() -> None:
    found = MutantResult(
        id="a", part="pass", is_reached=True, killed_by="dialect-agreement", blamed="p", is_blame_right=True
    )
    text = mutant_table([found, MutantResult(id="b", part="planner")])
    assert "1 of 2 killed, the right part blamed for 1 of them" in text
    assert text.splitlines()[1].split()[:5] == ["a", "pass", "yes", "no", "dialect-agreement"]
