"""`exirkit fuzz mutants`, with a process that knows in advance what it finds, and with a real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Invoke

from exirkit.fuzz.mutants import MutantResult, bench


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(one: Any, _: Any) -> MutantResult:
        is_found = one.id != "outputs-reversed"
        return MutantResult(
            id=one.id, part=one.part, killed_by="dialect-agreement" if is_found else None, is_blame_right=is_found
        )

    monkeypatch.setattr(bench, "_in_a_process", find)


@pytest.mark.usefixtures("stand_in")
def test_what_is_found_and_what_is_not(invoke: Invoke, tmp_path: Path) -> None:
    given = ["fuzz", "mutants", "--only", "scalar-rounded", "--only", "outputs-reversed", "--workers", "2"]
    first = invoke(*given, "--file", str(tmp_path / "results.json"))
    assert first.exit_code == 1
    assert "1 of 2 killed, the right part blamed for 1 of them" in first.stdout
    assert "outputs-reversed: not killed" in first.stderr
    kept = json.loads((tmp_path / "results.json").read_text())
    assert {one["id"] for one in kept} == {"scalar-rounded", "outputs-reversed"}
    again = invoke(*given[:4], "--json")
    assert again.exit_code == 0
    assert json.loads(again.stdout)["killed"] == 1


def test_names_are_known(invoke: Invoke) -> None:
    result = invoke("fuzz", "mutants", "--only", "unknown")
    assert result.exit_code == 2
    assert "EK880" in result.stderr


@pytest.mark.slow
def test_a_real_one(invoke: Invoke) -> None:
    result = invoke("fuzz", "mutants", "--only", "input-not-copied", "--seconds", "60", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["mutants"][0]
    assert found["blamed"] == "interpreter"
    assert found["is_infected"]
