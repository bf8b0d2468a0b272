"""Results of another number, dtype or size are found without any values."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.patterns import rule_files
from tests.patterns.rule_files import book
from tests.work import counted

from exirkit.ir import Diagnostic
from exirkit.patterns import check_rule, parse_book, shipped_books
from exirkit.patterns.checking.abstract_evaluation import abstract_findings

HERE = Path(__file__).parents[1]

# Rules whose results have another dtype or shape, and what the diagnostic contains.
WRONG = {
    "u6-permute-order": "sizes",
    "u7-view-dropped": "sizes",
    "u12-int-div": "dtype int32 in place of float32",
    "u14-add-bcast": "sizes",
    "u16-keepdim": "sizes",
    "u18-transpose-any": "the replacement fails",
    "u24-select-neg": "sizes",
    "u26-promote": "dtype",
    "u29-squeeze": "the replacement fails",
}


def found(match: str, replace: str, types: str = 'x: "f32 [*S]"', more: str = "") -> list[Diagnostic]:
    """Return what is found about a rule in its own book."""
    text = f"rulebook: 1\nrules:\n- id: mine\n  vars: {{{types}}}\n  match: return {match}\n  replace: |\n"
    text += "".join(f"    {line}\n" for line in replace.splitlines()) + more
    (rule,) = parse_book(text, "book.yaml").require_valid().rules
    return abstract_findings(rule)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rule_is_found_before_any_trial(name: str) -> None:
    rule = rule_files.book("unsound_rules").rule(name)
    verdict = check_rule(rule)
    (one,) = verdict.found
    assert one.severity == "error"
    assert one.code == "EK219"
    assert WRONG[name] in one.message
    assert verdict.positives is None


def test_known_bad_rule_is_found() -> None:
    book = rule_files.book("known_bad_rules")
    (one,) = abstract_findings(book.rules[0])
    assert one.code == "EK219"
    assert "dtype int32 in place of float32" in one.message


def test_caret_is_at_the_result_that_differs() -> None:
    (one,) = found("aten.relu.default(x)", "y = aten.relu.default(x)\nreturn y, x")
    assert one.location is not None
    assert one.location.text is not None
    assert one.location.column is not None
    assert one.location.span is not None
    start = one.location.column - 1
    assert one.location.text[start : start + one.location.span] == "y, x"
    assert "2 results in place of 1" in one.message


def test_one_of_two_results() -> None:
    text = """rulebook: 1
rules:
- id: mine
  vars: {x: "f32 [N, K]"}
  match: |
    y = aten.relu.default(x)
    return y, aten.exp.default(y)
  replace: |
    z = aten.clamp_min.default(x, 0)
    return z, aten.sum.dim_IntList(z, [0])
"""
    (rule,) = parse_book(text, "book.yaml").require_valid().rules
    (one,) = abstract_findings(rule)
    assert "result 1: sizes" in one.message
    assert one.location is not None
    assert (one.location.line, one.location.column, one.location.span) == (10, 15, 28)


def test_assignment_is_shown() -> None:
    (one,) = found("aten.exp.default(x)", "return aten._to_copy.default(x, dtype=f16)", 'x: "f32 [N, 3]"')
    assert "in rule mine" in one.notes
    assert any(note.startswith("x: float32[") and note.endswith(", 3]") for note in one.notes)


def test_dtype_that_only_some_have() -> None:
    (one,) = found("aten.add.Tensor(x, x)", "return aten.mul.Scalar(x, 2.0)", 'x: "num [*S]"')
    assert "dtype float32 in place of" in one.message


def test_guard_about_dtypes_is_asked() -> None:
    guarded = found(
        "aten.add.Tensor(x, x)",
        "return aten.mul.Scalar(x, 2.0)",
        'x: "num [*S]"',
        "  where: promote(x, 2.0) == x.dtype\n",
    )
    assert not guarded


def test_guard_about_values_is_believed() -> None:
    types = 'x: "f32 [*S]", c: "const f32 {0, 1} [*S]"'
    assert not found("aten.mul.Tensor(x, c)", "return x", types, '  where: "all_eq(c, 1)"\n')


def test_rank_that_only_some_have() -> None:
    (one,) = found("aten.sum.dim_IntList(x, [-1])", "return aten.sum.dim_IntList(x, [1])", 'x: "f32 [*S, D]"')
    assert one.code == "EK219"
    assert not found("aten.sum.dim_IntList(x, [-1])", "return aten.sum.dim_IntList(x, [1])", 'x: "f32 [N, D]"')


def test_sizes_that_vary_are_called_by_their_names() -> None:
    (rule,) = [one for one in rule_files.book("sound_rules").rules if one.id == "s12"]
    (one,) = abstract_findings(rule)
    assert one.severity == "warning"
    assert "is not applied where these sizes vary: the replacement needs Eq(" in one.message
    assert "q: float32[B, H, L, E]" in one.notes
    assert check_rule(rule, trials=5).is_accepted


def test_same_finding_every_time() -> None:
    rule = rule_files.book("unsound_rules").rule("u6-permute-order")
    assert abstract_findings(rule) == abstract_findings(rule)


def test_it_is_cheap() -> None:
    rules = [rule for name in shipped_books() for rule in book(name).rules][::5]
    calls = [counted(abstract_findings, rule)[1] for rule in rules]
    # 20 to 30 ms each; checking a rule by trials takes a hundred times as many.
    assert sum(calls) / len(calls) < 300_000


@pytest.mark.parametrize("avoided", [0, 1, 3])
def test_a_size_that_differs_from_a_number_may_vary(avoided: int) -> None:
    types = 'x: "f32 [N, C, *S]"'
    assert not found(
        "aten.relu.default(aten.relu.default(x))", "return aten.relu.default(x)", types, f"  where: C != {avoided}\n"
    )
    (one,) = found("aten.relu.default(x)", "return aten.sum.dim_IntList(x, [0])", types, f"  where: C != {avoided}\n")
    assert one.code == "EK219"
