"""Forty wrong rules, each wrong in its own way: campaigns find all of them within 16 programs each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import Invoke
from tests.cli.test_fuzz import HereForPool

import exirkit.fuzz

BOOK: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("wrong_rules.yaml").read_text())
RULES: dict[str, dict[str, Any]] = {one["id"]: one for one in BOOK["rules"]}
# Rules that are wrong by never being applied.
NEVER = {"wrong.condition-never-holds"}
SEEDS = 16


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is done in this process."""
    monkeypatch.setattr(exirkit.fuzz, "ProcessPool", HereForPool)


def report_of(rule: str, invoke: Invoke, directory: Path) -> dict[str, Any]:
    (directory / "book.yaml").write_text(yaml.safe_dump({**BOOK, "rules": [RULES[rule]]}))
    result = invoke("fuzz", "--rules", "book.yaml", "--seeds", str(SEEDS), "--analyses", "0", "--json")
    assert result.exit_code == 1, (rule, result.stdout)
    report: dict[str, Any] = json.loads(result.stdout)
    return report


@pytest.mark.parametrize(
    "rule",
    [pytest.param(name, marks=[pytest.mark.slow] if at % 5 else []) for at, name in enumerate(RULES)],
)
def test_a_wrong_rule_is_found(rule: str, invoke: Invoke, tmp_path: Path) -> None:
    report = report_of(rule, invoke, tmp_path)
    if rule in NEVER:
        assert [one["code"] for one in report["diagnostics"]] == ["EK872"]
        assert rule in report["diagnostics"][0]["message"]
    else:
        assert report["verdicts"].get("failed", 0) >= 1
        assert set(report["verdicts"]) <= {"failed", "passed", "unsupported"}


def test_there_are_forty() -> None:
    assert len(RULES) == len({one["doc"] for one in RULES.values()}) == 40
