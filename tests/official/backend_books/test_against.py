"""Passes of the official package beside rules: which side is wrong, which leaves a site, and what a campaign shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.thoroughness import TRIES_ALL

from exirkit.patterns import check_book, parse_book

pytestmark = pytest.mark.executorch
ROOT = Path(__file__).resolve().parents[3]


def said(part: str) -> Any:
    """What a process of its own says, which imports the official package."""
    command = [sys.executable, "-m", "tests.official.backend_books.against_worker", part]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert made.returncode == 0, made.stderr[-3000:]
    return json.loads(made.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def sample() -> Any:
    return said("sample")


@pytest.fixture(scope="module")
def more() -> Any:
    if not TRIES_ALL:
        pytest.skip("a process of two minutes: EXIRKIT_TESTS=all runs it")
    return said("more")


@pytest.mark.parametrize(
    ("case", "buckets"),
    [
        ("theirs wrong", ["theirs is wrong | ForgetsAlpha | output beyond-budget"]),
        ("ours wrong", ["ours is wrong | KeepsAlpha | output beyond-budget"]),
        ("both right", []),
        ("ours leaves", ["ours leaves a site | KeepsAlpha"]),
        ("theirs leaves", ["theirs leaves a site | Idle"]),
        ("other operators", ["operators differ | ForgetsAlpha"]),
        ("within tolerance", ["theirs leaves a site | Idle"]),
        ("beyond tolerance", ["ours is wrong | Idle | output beyond-budget"]),
        ("pipeline within", ["theirs leaves a site | Idle"]),
        ("pipeline beyond", ["ours is wrong | Idle | output beyond-budget"]),
        ("kept operator", ["operators differ | DecomposeLinearPass"]),
        ("theirs stops", ["theirs is wrong | Stops | raises IndexError"]),
        ("table", ["theirs is wrong | AddmmToLinearTransform | output beyond-budget"]),
        ("table, right", []),
        ("asks for TOSA", []),
    ],
)
def test_side_is_told(sample: Any, case: str, buckets: list[str]) -> None:
    assert [bucket for bucket, _ in sample["found"][case]] == buckets


def test_operators_of_both_sides_are_named(sample: Any) -> None:
    ((_, message),) = sample["found"]["other operators"]
    assert "aten.neg.default" in message
    assert "aten.sub.Tensor -> aten.add.Tensor" in message


def test_passes_get_the_operators_of_their_package(sample: Any) -> None:
    before, there, back = sample["exchanged"]
    assert re.fullmatch(r"against_toys_[0-9a-f]{10}\.scaled\.default", before)
    assert there == "against_toys.scaled.number"
    assert back == before


def test_a_table_says_which_passes_run_on_what_exporters_return(sample: Any) -> None:
    found = sample["on aten"]
    assert found["dialects"]["ConvertDivToMulPass"] == "aten"
    assert found["dialects"]["ConvertReshapingNodesToViewPass"] == "edge"
    # It has a converter that is not installed, and passes that do without.
    assert "AddBatchSizeFor3DInputPool2DOps" in found["dialects"]
    # What the pass notes on nodes is of another environment of sizes than the program.
    assert found["division"] == ["operators differ | ConvertDivToMulPass"]


def test_a_pass_on_what_exporters_return_finds_weights_as_attributes(sample: Any) -> None:
    is_changed, fired, buckets = sample["on aten"]["normalized"]
    assert is_changed
    assert fired == ["fold.conv-batch-norm"]
    # The convolution of the rule is one of any number of dims, which counts as another call.
    assert buckets == ["theirs leaves a site | FuseBatchNormWithConvPass"]


def test_programs_as_exporters_return_them_have_views_and_no_defaults(sample: Any) -> None:
    assert "y = aten.t.default(x)" in sample["on aten"]["exported"]
    assert "z = aten.linear.default(y, y)\n" in sample["on aten"]["exported"]


def test_same_seeds_give_the_same_programs(more: Any) -> None:
    assert more["texts"] == more["again"]
    assert more["texts"][:2] == ["# difference\n", "# linear\n"]
    assert len(set(more["texts"])) == len(more["texts"])


def test_a_model_is_compared_too(more: Any) -> None:
    assert more["verdicts"][:2] == ["failed", "passed"]
    assert more["models"][0] == ["theirs is wrong | ForgetsAlpha | output value"]


def test_finding_is_reduced_and_its_script_fails(more: Any, tmp_path: Path) -> None:
    assert more["bucket"].startswith(("theirs is wrong | ForgetsAlpha", "ours leaves a site | ForgetsAlpha"))
    assert "aten.sub" in more["reduced"]
    path = tmp_path / "repro.py"
    path.write_text(more["repro"], encoding="utf-8")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert "AssertionError" in done.stderr


def test_errors_have_codes(more: Any) -> None:
    assert more["errors"] == {
        "argument": "EK766",
        "missing": "EK863",
        "oracle": "EK768",
        "two books": "EK766",
        "model": "EK767",
        "factory": "",
    }


def test_name_of_a_book_stands_for_the_classes_of_its_table(more: Any) -> None:
    assert "PruneEmptyTensorsPass" in more["classes"]
    assert more["left out"]
    assert not set(more["classes"]) & set(more["left out"])


def test_pass_becomes_a_rule_that_is_accepted(sample: Any) -> None:
    book = parse_book(sample["ported"]["TwiceNegated"], "ported.yaml")
    (rule,) = book.require_valid().rules
    assert str(rule.rule.match).strip() == "return aten.neg.default(aten.neg.default(x0))"
    assert str(rule.rule.replace).strip() == "return x0"
    # No other dtype was seen.
    assert rule.rule.vars["x0"].startswith("f32 ")
    assert check_book(book).is_accepted


def test_what_observation_cannot_decide_is_marked(more: Any) -> None:
    text = more["ported"]["KeepsAlpha"]
    assert more["undecided"]["KeepsAlpha"] == [["new_add_alpha"]]
    assert "sub_alpha varies: 2, 3" in text
    assert "DECIDE(new_add_alpha, -" in text
    decided = re.sub(r"DECIDE\(new_add_alpha, -?\d+\)", "0 - sub_alpha", text)
    assert check_book(parse_book(decided, "ported.yaml")).is_accepted
    # What was seen once is not what is right for all.
    kept = re.sub(r"DECIDE\(new_add_alpha, (-?\d+)\)", r"\1", text)
    assert not check_book(parse_book(kept, "ported.yaml")).is_accepted


def test_pass_that_changes_nothing_gives_no_rule(more: Any) -> None:
    assert "rules:" not in more["ported"]["Idle"]
