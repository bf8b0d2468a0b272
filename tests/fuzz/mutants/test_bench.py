"""The bench finds a bug, blames the right part, keeps results, and goes on from there."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import pytest
from tests.fuzz.programs.program_texts import TEXTS

from exirkit.fuzz.mutants import (
    MutantResult,
    MutationBenchOptions,
    applied,
    bench,
    mutant,
    run_mutant,
    run_mutation_bench,
)
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import parse_program
from exirkit.fuzz.triage import find_culprit

FEW = MutationBenchOptions(seconds=30, seeds=20)


def test_a_bug_is_found_and_blamed() -> None:
    result = run_mutant(mutant("input-not-copied"), FEW)
    assert result.is_reached
    assert result.is_infected
    assert result.killed_by is not None
    assert result.witness_killed_by is not None
    assert result.blamed == "interpreter"
    assert result.is_blame_right


def test_a_bug_that_lets_the_search_for_it_run_for_ever_is_found_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: object, **__: object) -> None:
        while True:
            with contextlib.suppress(Exception):
                math.factorial(100)

    monkeypatch.setattr(bench, "localized", endless)
    monkeypatch.setattr(bench, "_BLAME_SECONDS", 0.2)
    result = run_mutant(mutant("input-not-copied"), FEW)
    assert result.killed_by is not None
    assert not result.is_blame_right
    assert "not localized within" in result.note


def test_results_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def stand_in(one: object, options: MutationBenchOptions) -> MutantResult:
        tried.append(getattr(one, "id", ""))
        return MutantResult(id=tried[-1], part="pass")

    monkeypatch.setattr(bench, "_in_a_process", stand_in)
    file = tmp_path / "results.json"
    run_mutation_bench(FEW, only=["scalar-rounded"], file=file)
    heard: list[str] = []
    found = run_mutation_bench(
        FEW, only=["outputs-reversed", "scalar-rounded"], file=file, listen=lambda one: heard.append(one.id)
    )
    assert tried == ["scalar-rounded", "outputs-reversed"]
    assert [one.id for one in found] == heard == ["scalar-rounded", "outputs-reversed"]


TWO_METHODS = TEXTS["two_methods"]


def test_a_bug_that_shows_in_the_second_method_is_blamed_there() -> None:
    program = parse_program(TWO_METHODS)
    with applied(mutant("cat-drops-single-rows")):
        failure = check(program, oracles=("lowering",)).failures[0]
        culprit = find_culprit(program, failure)
    assert culprit.part == "remove-noops"
    assert culprit.method == "decode"
