"""The bench finds a bug, blames the right part, keeps results, and goes on from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from exirkit.fuzz.mutants import MutantResult, MutationBenchOptions, bench, mutant, run_mutant, run_mutation_bench

FEW = MutationBenchOptions(seconds=30, seeds=20)


@pytest.mark.slow
def test_a_bug_is_found_and_blamed() -> None:
    result = run_mutant(mutant("input-not-copied"), FEW)
    assert result.is_reached
    assert result.is_infected
    assert result.killed_by is not None
    assert result.witness_killed_by is not None
    assert result.blamed == "interpreter"
    assert result.is_blame_right


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
