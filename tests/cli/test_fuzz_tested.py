"""`exirkit fuzz` with rules and pipelines: what is wrong with files is said at once, and what was tested at the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke
from tests.cli.test_fuzz import HereForPool

import exirkit.fuzz
from exirkit.fuzz import TestedPart as Part
from exirkit.fuzz import untested
from exirkit.passes.pipelines.pipeline import shipped_text

WRONG = """\
rulebook: 1
rules:
- id: wrong.difference-as-sum
  doc: A difference is not a sum.
  vars: {x: "f32 [*S]", y: "f32 [*S]"}
  match: return aten.sub.Tensor(x, y)
  replace: return aten.add.Tensor(x, y)
"""

NEVER = """\
rulebook: 1
rules:
- id: never.exponential
  doc: No size is less than itself.
  vars: {x: "f32 [N]"}
  match: return aten.exp.default(aten.neg.default(x))
  where: N < N
  replace: return aten.reciprocal.default(aten.exp.default(x))
"""

TAKEN_BACK = """\
rulebook: 1
rules:
- id: wrong.product
  doc: The product is a tensor of floats, so that the result is taken back.
  vars: {x: "i32 [*S]"}
  match: return aten.mul.Scalar(x, 1.0)
  replace: return x
"""

PIPELINE = """\
pipeline: 1
name: double-negation
dialect: {from: edge, to: edge}
stages:
- rules: book.yaml
"""

DOUBLE = """\
rulebook: 1
rules:
- id: right.double-negation
  doc: A number negated twice is the number.
  vars: {x: "f32 [*S]"}
  match: return aten.neg.default(aten.neg.default(x))
  replace: return x
"""

INPUTS = """\
rulebook: 1
rules:
- id: inputs.narrow
  doc: Small integers are given as such.
  vars: {x: "i64 in [-99, 99] [*S]"}
  match: return input(x)
  replace: return input(aten._to_copy.default(x, dtype=i32))
  uses: return aten._to_copy.default(new, dtype=i64)
"""

LIMITS = """\
rulebook: 1
attributes:
  act: {lo: float, hi: float, key: LIMITS, means: "aten.clamp.default(result, lo, hi)"}
  most: {hi: int, key: MOST, means: "aten.clamp.default(result, None, hi)"}
rules:
- id: limits.of-call
  doc: A sum with limits is a sum and its limits.
  vars: {x: "f32 [*S]", y: "f32 [*S]", lo: "float in [-6, 0]", hi: "float in [1, 6]"}
  match: return aten.add.Tensor(x, y) @ act(lo, hi)
  replace: return aten.clamp.default(aten.add.Tensor(x, y), lo, hi)
  keep: {act: none}
- id: limits.of-input
  doc: What lies within limits needs no others.
  vars: {x: "f32 [*S]", lo: "float in [-6, 0]", hi: "float in [1, 6]"}
  match: return aten.clamp.default(x @ act(lo, hi), lo, hi)
  replace: return aten.clone.default(x)
- id: limits.of-integers
  doc: Likewise of bytes, which no call negates.
  vars: {x: "u8 [*S]", hi: "int in [1, 6]"}
  match: return aten.clamp.default(x @ most(hi), None, hi)
  replace: return aten.clone.default(x)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The work is done in this process."""
    monkeypatch.setattr(exirkit.fuzz, "ProcessPool", HereForPool)
    for name, text in {"wrong": WRONG, "never": NEVER, "book": DOUBLE, "pipeline": PIPELINE}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def test_the_pattern_of_a_wrong_rule_is_in_the_programs(invoke: Invoke, here: Path) -> None:
    result = invoke("fuzz", "--rules", "wrong.yaml", "--seeds", "2", "--analyses", "0", "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["verdicts"]["failed"] >= 1
    assert report["diagnostics"] == []
    assert report["tested"][0]["name"] == "wrong.difference-as-sum"
    assert report["tested"][0]["changed"] >= 1


def test_a_rule_that_never_fires_is_a_finding(invoke: Invoke, here: Path) -> None:
    result = invoke("fuzz", "--rules", "never.yaml", "--seeds", "2")
    assert result.exit_code == 1
    assert "passed 2" in result.stdout
    assert "error[EK872]: rule never.exponential fired in none of 2 programs; its pattern was in 0" in result.stdout
    assert "note: no program has its pattern: no values were found that its types and conditions admit" in result.stdout


def test_a_result_that_is_taken_back_is_a_failure(invoke: Invoke, here: Path) -> None:
    (here / "back.yaml").write_text(TAKEN_BACK)
    report = json.loads(invoke("fuzz", "--rules", "back.yaml", "--seeds", "2", "--analyses", "0", "--json").stdout)
    assert report["verdicts"]["failed"] >= 1
    assert [one["bucket"] for one in report["buckets"]] == ["rule-contracts | apply-rules | result taken back"]
    assert report["tested"][0]["changed"] == 0


def test_rules_of_pipelines_are_inserted_and_counted(invoke: Invoke, here: Path) -> None:
    result = invoke("fuzz", "--pipeline", "pipeline.yaml", "--seeds", "2", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0, report
    found = {(one["kind"], one["name"]): one["changed"] for one in report["tested"]}
    assert found[("pipeline", "double-negation")] >= 1
    assert found[("stage", "double-negation: rules book.yaml")] >= 1
    assert found[("rule", "right.double-negation")] >= 1


def test_rules_about_inputs_are_left_out_with_a_warning(invoke: Invoke, here: Path) -> None:
    (here / "inputs.yaml").write_text(INPUTS)
    result = invoke("fuzz", "--rules", "inputs.yaml", "--rules", "book.yaml", "--seeds", "2", "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert [(one["code"], one["severity"]) for one in report["diagnostics"]] == [("EK885", "warning")]
    assert {one["kind"] for one in report["tested"]} == {"rule", "interface rule"}
    assert invoke("fuzz", "--rules", "inputs.yaml", "--seeds", "1", "--db", "alone.db").exit_code == 1


def test_attributes_of_calls_and_of_inputs_are_there(invoke: Invoke, here: Path) -> None:
    (here / "limits.yaml").write_text(LIMITS)
    result = invoke("fuzz", "--rules", "limits.yaml", "--seeds", "6", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 0, report
    assert all(one["changed"] for one in report["tested"]), report["tested"]


def test_a_pipeline_that_changes_nothing_is_a_finding(invoke: Invoke, here: Path) -> None:
    text = PIPELINE.replace("book.yaml", "never.yaml").replace("double-negation", "idle")
    (here / "idle.yaml").write_text(text)
    result = invoke("fuzz", "--pipeline", "idle.yaml", "--seeds", "1", "--json")
    assert result.exit_code == 1
    assert {one["code"] for one in json.loads(result.stdout)["diagnostics"]} == {"EK872", "EK873"}


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--rules", "missing.yaml"], 1, "EK712"),
        (["--rules", "empty"], 2, "EK711"),
        (["--rules", "broken.yaml"], 1, "EK201"),
        (["--rules", "binary.yaml"], 1, "EK201"),
        (["--pipeline", "missing.yaml"], 1, "EK712"),
        (["--pipeline", "broken.yaml"], 1, "EK470"),
        (["--pipeline", "binary.yaml"], 1, "EK470"),
        (["--pipeline", "to_edge.yaml", "--pipeline", "to_edge.yaml"], 2, "EK871"),
        (["--policy", "missing.yaml"], 1, "EK712"),
        (["--policy", "nothing.yaml"], 2, "EK821"),
        (["--rules", "wrong.yaml", "--target", "json:dumps"], 2, "EK874"),
    ],
)
def test_a_wrong_file_is_one_error_before_anything_runs(
    invoke: Invoke, here: Path, options: list[str], code: int, told: str
) -> None:
    (here / "empty").mkdir()
    (here / "broken.yaml").write_text("rules: [\n")
    (here / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (here / "nothing.yaml").write_text("operators: [aten.no_such.default]\n")
    (here / "to_edge.yaml").write_text(shipped_text("to_edge"))
    result = invoke("fuzz", *options, "--seeds", "3")
    assert result.exit_code == code, result.stderr
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (here / "fuzz.db").exists()


def test_rules_that_had_no_turn_are_one_finding() -> None:
    parts = [Part(kind="rule", name=f"r{number}") for number in range(5)]
    tried = Part(kind="rule", name="tried", with_pattern=1)
    found = untested([*parts, tried], 2, {})
    assert [one.code for one in found] == ["EK872", "EK872"]
    assert "5 rules have their patterns in none of 2 programs: r0, r1, r2 and 2 more" in found[0].message
    assert "--seeds 48" in str(found[0].hint)
    assert "rule tried fired in none" in found[1].message
    assert len(untested([*parts, tried], 100, {})) == 6
