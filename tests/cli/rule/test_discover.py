"""`exirkit rule discover`: rules, what becomes of pairs, and what it cannot read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke

VOCABULARY = """vocabulary: 1
name: extremes
doc: Extremes of a tensor and its negative.
sizes: {"*S": [[5, 8], [7, 6], [64, 256]]}
variables: {x: "f32 [*S]"}
operators:
- aten.neg.default(_)
- aten.abs.default(_)
- aten.maximum.default(_, _)
"""


@pytest.fixture(autouse=True)
def vocabulary(tmp_path: Path) -> None:
    (tmp_path / "words.yaml").write_text(VOCABULARY)


def test_a_book_is_written_that_the_check_accepts(invoke: Invoke, tmp_path: Path) -> None:
    made = invoke("rule", "discover", "words.yaml", "--prove", "-o", "found.yaml", "--json")
    assert made.exit_code == 0, made.stderr
    report = json.loads(made.stdout)
    assert report["file"] == "found.yaml"
    assert report["pairs"] == len(report["rules"]) + report["known"] + report["undone"] + report["rejected"]
    rule = next(one for one in report["rules"] if one["match"] == "aten.maximum.default(aten.neg.default(x), x)")
    assert (rule["replace"], rule["measured"], rule["proof"]) == ("aten.abs.default(x)", None, "proved")
    assert rule["estimated"] > 1
    checked = invoke("rule", "check", "found.yaml", "--json")
    assert checked.exit_code == 0, checked.stdout
    assert "as fast" not in (tmp_path / "found.yaml").read_text()


def test_no_rule_is_exit_code_1(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "words.yaml").write_text(VOCABULARY.replace("- aten.maximum.default(_, _)\n", ""))
    made = invoke("rule", "discover", "words.yaml", "-o", "found.yaml")
    assert made.exit_code == 1, made.stderr
    assert "0 rules of" in made.stdout
    assert not (tmp_path / "found.yaml").exists()


def test_two_vocabularies_of_one_name(invoke: Invoke) -> None:
    assert invoke("rule", "discover", "words.yaml", "words.yaml").exit_code == 2


def test_what_is_wrong_is_said_at_its_place(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "words.yaml").write_text(VOCABULARY.replace("aten.abs.default", "aten.abbs.default"))
    made = invoke("rule", "discover", "words.yaml")
    assert made.exit_code == 2
    assert "words.yaml:8:3" in made.stderr


@pytest.mark.executorch
def test_what_gains_little_on_the_runtime_is_left_out(invoke: Invoke, tmp_path: Path) -> None:
    made = invoke("rule", "discover", "words.yaml", "--measure", "-o", "found.yaml", "--json")
    assert made.exit_code == 0, made.stderr
    report = json.loads(made.stdout)
    assert all(one["measured"] >= 1.05 for one in report["rules"])
    assert (tmp_path / "found.yaml").read_text().count("times as fast") == len(report["rules"])
    made = invoke("rule", "discover", "words.yaml", "--measure", "--gain", "1e9", "--json")
    assert made.exit_code == 1
    assert json.loads(made.stdout)["slower"] == len(report["rules"]) + report["slower"]
