"""`exirkit lower --rules` says which rules were never checked, and `--check` checks them first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke

MODEL = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return -(-x)


def make():
    return Model(), (torch.ones(3),)
"""

RULE = """\
- id: {name}
  doc: A rule.
  vars: {{x: "f32 [*S]"}}
  match: return aten.neg.default(aten.neg.default(x))
  replace: return {result}
"""


@pytest.fixture
def lower(invoke: Invoke, tmp_path: Path) -> list[str]:
    (tmp_path / "models.py").write_text(MODEL)
    return ["lower", "models.py:make", "-o", "model.pte", "--rules", "book.yaml"]


def write(directory: Path, *results: str) -> None:
    rules = "".join(RULE.format(name=f"rule.{at}", result=one) for at, one in enumerate(results))
    (directory / "book.yaml").write_text("rulebook: 1\nrules:\n" + rules)


def test_a_book_that_was_never_checked_is_said(invoke: Invoke, lower: list[str], tmp_path: Path) -> None:
    write(tmp_path, "x")
    first = invoke(*lower)
    assert first.exit_code == 0
    assert "warning[EK814]: book.yaml: 1 of 1 rules were never checked, or have changed since: rule.0" in first.stderr
    assert invoke("rule", "check", "book.yaml").exit_code == 0
    kept = json.loads((tmp_path / "book.yaml.accepted").read_text())
    assert list(kept["rules"]) == ["rule.0"]
    assert "EK814" not in invoke(*lower).stderr
    # What the rule is called and said about it does not matter, what it does matters.
    write(tmp_path, "aten.abs.default(x)")
    assert "EK814" in invoke(*lower).stderr


def test_check_checks_once_and_stops_at_a_wrong_rule(invoke: Invoke, lower: list[str], tmp_path: Path) -> None:
    write(tmp_path, "x")
    assert invoke(*lower, "--check").exit_code == 0
    assert "EK814" not in invoke(*lower).stderr
    write(tmp_path, "x", "aten.abs.default(x)")
    (tmp_path / "model.pte").unlink()
    wrong = invoke(*lower, "--check")
    assert wrong.exit_code == 1
    assert "EK815" in wrong.stderr
    assert "rule.1" in wrong.stderr
    assert not (tmp_path / "model.pte").exists()


def test_a_rejected_rule_loses_what_was_kept(invoke: Invoke, tmp_path: Path) -> None:
    write(tmp_path, "x")
    invoke("rule", "check", "book.yaml")
    write(tmp_path, "aten.abs.default(x)")
    assert invoke("rule", "check", "book.yaml").exit_code == 1
    assert not (tmp_path / "book.yaml.accepted").exists()
    # Few samples accept nothing.
    write(tmp_path, "x")
    assert invoke("rule", "check", "book.yaml", "--trials", "5").exit_code == 0
    assert not (tmp_path / "book.yaml.accepted").exists()


def test_a_missing_book_is_one_error_before_the_model_is_exported(
    invoke: Invoke, lower: list[str], tmp_path: Path
) -> None:
    (tmp_path / "models.py").write_text("def make():\n    raise ValueError('too late')\n")
    result = invoke(*lower)
    assert result.exit_code == 1
    assert "EK712" in result.stderr
    assert "too late" not in result.stderr


def test_books_of_pipelines_are_examined_too(invoke: Invoke, lower: list[str], tmp_path: Path) -> None:
    write(tmp_path, "x")
    stages = "pipeline: 1\nname: mine\ndialect: {from: edge, to: edge}\nstages:\n- rules: book.yaml\n"
    (tmp_path / "pipeline.yaml").write_text(stages)
    assert "EK814" in invoke(*lower[:-2], "--pipeline", "pipeline.yaml").stderr
