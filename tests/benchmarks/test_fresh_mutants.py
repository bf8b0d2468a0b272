"""The lists of bugs fit the functions that they change, and each bug shows in the program written for it."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.mutants.fresh_mutants import LIST, main, read_mutants

from exirkit.fuzz.mutants import Mutant, MutantResult, bench, changes, shipped_mutants
from exirkit.fuzz.mutants.applying import mutated_code
from exirkit.fuzz.programs import parse_program, program_text
from exirkit.ir import InternalError, UsageError

MUTANTS = read_mutants()
THIRD = read_mutants(LIST.with_name("mutants_third_set.yaml"))
FOURTH = read_mutants(LIST.with_name("mutants_fourth_set.yaml"))
FIFTH = read_mutants(LIST.with_name("mutants_fifth_set.yaml"))
SIXTH = read_mutants(LIST.with_name("mutants_sixth_set.yaml"))
SEVENTH = read_mutants(LIST.with_name("mutants_seventh_set.yaml"))
HISTORIC = read_mutants(LIST.with_name("historic_bugs.yaml"))


USUAL_PARTS = {"pass": 25, "planner": 8, "emitter": 7, "interpreter": 6, "verifier": 4}
FIFTH_PARTS = {"pass": 34, "planner": 6, "emitter": 6, "interpreter": 2, "verifier": 2}
SIXTH_PARTS = {"pass": 30, "planner": 7, "emitter": 6, "interpreter": 5, "verifier": 2}
SEVENTH_PARTS = {"pass": 31, "planner": 7, "emitter": 6, "interpreter": 4, "verifier": 2}


@pytest.mark.parametrize(
    ("listed", "parts"),
    [
        (MUTANTS, USUAL_PARTS),
        (THIRD, USUAL_PARTS),
        (FOURTH, USUAL_PARTS),
        (FIFTH, FIFTH_PARTS),
        (SIXTH, SIXTH_PARTS),
        (SEVENTH, SEVENTH_PARTS),
    ],
    ids=["second", "third", "fourth", "fifth", "sixth", "seventh"],
)
def test_a_list_has_fifty_bugs_of_all_parts(listed: tuple[Mutant, ...], parts: dict[str, int]) -> None:
    names = [one.id for one in listed]
    assert len(set(names)) == len(names) == 50
    lists = (shipped_mutants(), MUTANTS, THIRD, FOURTH, FIFTH, SIXTH, SEVENTH, HISTORIC)
    others = (one for each in lists if each is not listed for one in each)
    assert set(names).isdisjoint(one.id for one in others)
    counted = Counter("pass" if one.part == "rules" else one.part for one in listed)
    assert counted == parts
    assert all("Source, " in one.doc for one in listed)


def test_no_two_lists_plant_the_same_change() -> None:
    every = (*shipped_mutants(), *MUTANTS, *THIRD, *FOURTH, *FIFTH, *SIXTH, *SEVENTH, *HISTORIC)
    changed = Counter((one.module, one.function, one.old, one.new) for one in every)
    assert [change for change, count in changed.items() if count > 1] == []


def test_the_historic_list_names_thirty_threads() -> None:
    names = [one.id for one in HISTORIC]
    assert len(set(names)) == len(names) == 30
    assert set(names).isdisjoint(one.id for one in (*shipped_mutants(), *MUTANTS))
    threads = {found[0] for one in HISTORIC if (found := re.findall(r"\(([\w./-]+ \d+)(?:, in kind)?\)", one.doc))}
    assert len(threads) >= 28
    assert {one.part for one in HISTORIC} == {"pass", "rules", "planner", "emitter", "interpreter", "verifier"}


def test_each_text_is_there_once_and_each_program_can_be_read() -> None:
    for one in (*MUTANTS, *THIRD, *FOURTH, *FIFTH, *SIXTH, *SEVENTH, *HISTORIC):
        mutated_code(one)
        program = parse_program(one.program)
        assert parse_program(program_text(program)) == program
    gone = MUTANTS[0].model_copy(update={"old": "what no function has"})
    with pytest.raises(InternalError, match="EK881"):
        mutated_code(gone)


@pytest.mark.parametrize(
    "one", [*MUTANTS, *THIRD, *FOURTH, *FIFTH, *SIXTH, *SEVENTH, *HISTORIC], ids=lambda one: one.id
)
def test_each_bug_shows_in_its_program(one: Mutant) -> None:
    times, is_changed = changes(one, parse_program(one.program))
    assert times > 0
    assert is_changed


def test_a_slice_of_the_list_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = MUTANTS[:2]

    def found(one: Mutant, _: object) -> MutantResult:
        is_first = one == first
        return MutantResult(
            id=one.id, part=one.part, killed_by="values" if is_first else None, blamed="emitter", is_blame_right=False
        )

    monkeypatch.setattr(bench, "_in_a_process", found)
    file = tmp_path / "results.json"
    assert main(["--only", first.id, "--only", second.id, "--file", str(file)]) == 1
    said = capsys.readouterr().out
    assert "1 of 2 killed, the right part blamed for 0 of them" in said
    assert f"survivor: {second.id}" in said
    assert f"blamed wrongly: {first.id} ({first.part}): emitter" in said
    assert {one["id"] for one in json.loads(file.read_text())} == {first.id, second.id}
    with pytest.raises(UsageError, match="EK880"):
        main(["--only", "unknown"])
