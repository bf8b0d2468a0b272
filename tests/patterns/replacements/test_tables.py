"""Tables of books: rules that range over operators, dtypes and numbers."""

from __future__ import annotations

import pytest
import torch
from tests.patterns.replacements.test_loops import rewritten

from exirkit.patterns import check_book, parse_book
from exirkit.patterns.checking.witnesses import rule_text_hash

HEAD = """rulebook: 1
tables:
  variants: {aten.exp.default: aten.exp2.default, aten.log.default: aten.log2.default}
  swapped: {aten.le.Tensor: aten.ge.Tensor, aten.lt.Tensor: aten.gt.Tensor}
  limits: {aten.relu.default: [0, null], aten.relu6.default: [0, 6]}
  wide: {i8: i32, i16: i64}
  names: {none: 0, tanh: 1}
rules:
- id: one
  measure: once
"""
SWAPPED = (
    HEAD
    + """  vars: {f: op in swapped, x: 'f32 [*S]', y: 'f32 [*S]'}
  match: return f(x, y)
  replace: return swapped[f](y, x)
"""
)
LIMITS = (
    HEAD
    + """  vars: {f: op in limits, x: 'f32 [*S]'}
  match: return f(x)
  replace: return aten.clamp.default(x, limits[f][0], limits[f][1])
"""
)
WIDE = (
    HEAD
    + """  vars: {x: 'i8|i16 [*S]'}
  match: return aten.neg.default(x)
  where: {expr: x.dtype in wide, kind: target, why: others stay}
  replace: return aten._to_copy.default(aten.neg.default(aten._to_copy.default(x, dtype=wide[x.dtype])), dtype=x.dtype)
"""
)


def errors(text: str, trials: int = 40, *, is_strict: bool = False) -> list[str]:
    book = parse_book(text, "book.yaml")
    verdict = check_book(book, trials=trials, is_strict=is_strict)
    found = [*verdict.found, *(one for rule in verdict.rules for one in rule.found)]
    return [f"{one.code} {one.message}" for one in found if one.severity == "error"]


def test_operators_of_every_row_are_rewritten() -> None:
    x, y = torch.randn(3), torch.randn(3)
    for function in (torch.le, torch.lt):
        fired, (_, editor) = rewritten(SWAPPED, function, x, y)
        assert fired == 1
        assert any("aten.g" in str(node.target) for node in editor.graph.nodes)
    assert rewritten(SWAPPED, torch.ge, x, y)[0] == 0
    assert rewritten(LIMITS, lambda x: torch.nn.functional.relu(x), x)[0] == 1
    assert rewritten(WIDE, torch.neg, torch.tensor([1, 2], dtype=torch.int8))[0] == 1
    assert rewritten(WIDE, torch.neg, torch.tensor([1, 2], dtype=torch.int32))[0] == 0


@pytest.mark.parametrize("text", [SWAPPED, LIMITS])
def test_rows_have_witnesses(text: str) -> None:
    verdict = check_book(parse_book(text, "book.yaml"), trials=30, is_strict=True)
    assert verdict.is_accepted, [one.render() for one in verdict.rules[0].found]
    rows = [one for one in verdict.rules[0].near_misses if one.what == "row"]
    assert len(rows) == 2
    assert all(one.outcome == "witness" for one in rows)


def test_a_wrong_row_is_found() -> None:
    assert errors(SWAPPED.replace("aten.lt.Tensor: aten.gt.Tensor", "aten.lt.Tensor: aten.ge.Tensor"))[0].startswith(
        "EK240"
    )
    assert errors(LIMITS.replace("relu6.default: [0, 6]", "relu6.default: [0, 5]"))[0].startswith("EK240")
    assert errors(WIDE.replace("i16: i64", "i16: i8"))[0].startswith("EK240")


def test_a_row_that_makes_no_difference() -> None:
    assert errors(WIDE) == []
    assert [one[:5] for one in errors(WIDE, is_strict=True)] == ["EK229", "EK229"]
    skips = ", ".join(f"{{what: 'wide[{name}]', why: 'any wider dtype does'}}" for name in ("int8", "int16"))
    assert errors(f"{WIDE}  verify: {{skip: [{skips}]}}\n", is_strict=True) == []


def test_a_row_that_is_never_read() -> None:
    text = WIDE.replace("i8: i32,", "i8: i32, u8: i32,")
    assert errors(text) == ["EK229 rule one: the row wide[uint8] is never read in trials"]


WRONG = {
    "wide: {i8: aten.nothing.default}": "EK229",
    "wide: {i8: i16, aten.relu.default: i32}": "EK229",
    "f32: {i8: i16}": "EK229",
    "wide: {}": "EK202",
    "wide: [i8, i16]": "EK202",
}


@pytest.mark.parametrize("table", WRONG)
def test_tables_that_are_wrong(table: str) -> None:
    book = parse_book(f"rulebook: 1\ntables:\n  {table}\nrules: []\n", "book.yaml")
    assert [one.code for one in book.found] == [WRONG[table]]


CALLS = {
    "swapped[f](y)": "aten.ge.Tensor, in table swapped",
    "swapped[f](y, x, out=x)": "aten.ge.Tensor, in table swapped",
    "limits[f](y, x)": "has values that are not operators",
    "missing[f](y, x)": "this cannot be called",
}


@pytest.mark.parametrize("call", CALLS)
def test_calls_that_do_not_fit(call: str) -> None:
    found = parse_book(SWAPPED.replace("swapped[f](y, x)", call), "book.yaml").found
    assert [one.code for one in found] == ["EK221"]
    assert CALLS[call] in found[0].message


def test_a_key_without_a_row_is_not_a_match() -> None:
    text = WIDE.replace("'i8|i16 [*S]'", "'i8|i16|i32 [*S]'").replace(
        "  where: {expr: x.dtype in wide, kind: target, why: others stay}\n", ""
    )
    assert errors(text)[0].startswith("EK2")
    fired, (report, _) = rewritten(text, torch.neg, torch.tensor([1, 2], dtype=torch.int32))
    assert fired == 0
    assert "table wide has no row for torch.int32" in report.rejections[0].reason


def test_a_table_is_part_of_the_text_of_a_rule() -> None:
    one, other = (parse_book(text, "book.yaml") for text in (SWAPPED, SWAPPED.replace("tanh: 1", "tanh: 2")))
    assert rule_text_hash(one.rules[0], one) != rule_text_hash(other.rules[0], other)
