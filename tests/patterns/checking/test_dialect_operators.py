"""A replacement calls no operator that the dialect it leads to does not have."""

from __future__ import annotations

import pytest
from tests.patterns.rule_files import book

from exirkit.patterns import parse_book, shipped_books

BOOK = """rulebook: 1
ops:
  bk.act: {{schema: "(Tensor x) -> Tensor", define: "return aten.relu.default(x)"}}
  npu.acts: {{schema: "(Tensor x) -> Tensor", define: "return aten.relu.default(x)"}}
rules:
- id: mine
  dialect: {dialect}
  vars: {{x: "f32 [N, K]"}}
  match: return aten.relu.default(x)
  replace: |
    y = aten.clamp_min.default(x, 0)
    return {replace}
"""


def found(dialect: str, replace: str) -> list[tuple[str, str | None]]:
    """Return the messages and hints for a rule when its book is loaded."""
    book = parse_book(BOOK.format(dialect=dialect, replace=replace), "book.yaml")
    assert {one.code for one in book.found} <= {"EK222"}
    return [(one.message, one.hint) for one in book.found]


@pytest.mark.parametrize(
    ("dialect", "replace", "reason", "hint"),
    [
        ("{to: edge}", "aten.permute.default(y, [0, 1])", "returns a view", "did you mean aten.permute_copy.default?"),
        ("edge", "aten.transpose.int(y, 0, 0)", "returns a view", "did you mean aten.transpose_copy.int?"),
        ("edge", "aten.relu_.default(y)", "writes to its arguments", "did you mean aten.relu.default?"),
        ("aten", "aten.add_.Tensor(y, x)", "writes to its arguments", "did you mean aten.add.Tensor?"),
        ("{to: 'backend:npu'}", "bk.act(y)", "is an operator of another backend", "did you mean npu.acts?"),
        ("{from: edge, to: aten}", "dim_order_ops._clone_dim_order.default(y)", "exists in Edge only",
         "did you mean aten.clone.default?"),
    ],
)  # fmt: skip
def test_illegal_operator(dialect: str, replace: str, reason: str, hint: str) -> None:
    ((message, given),) = found(dialect, replace)
    assert (
        f"is illegal in the dialect {dialect.partition('to: ')[2].strip(chr(39) + '}') or dialect}: it {reason}"
        in message
    )
    assert given == hint


@pytest.mark.parametrize(
    ("dialect", "replace"),
    [
        ("any", "aten.permute.default(y, [0, 1])"),
        ("aten", "aten.permute.default(y, [0, 1])"),
        ("{from: edge, to: any}", "aten.relu_.default(y)"),
        ("{from: edge, to: 'backend:bk'}", "bk.act(y)"),
        ("{to: 'backend:bk'}", "aten.permute_copy.default(y, [0, 1])"),
        ("aten", "bk.act(y)"),
        ("{from: aten, to: edge}", "bk.act(y)"),
        ("edge", "dim_order_ops._clone_dim_order.default(y)"),
    ],
)
def test_legal_operator(dialect: str, replace: str) -> None:
    assert not found(dialect, replace)


def test_caret_is_at_the_operator() -> None:
    book = parse_book(BOOK.format(dialect="edge", replace="aten.neg.default(aten.t.default(y))"), "book.yaml")
    (one,) = book.errors
    assert one.location is not None
    assert (one.location.line, one.location.column, one.location.span) == (12, 29, len("aten.t.default"))


@pytest.mark.parametrize("name", shipped_books())
def test_shipped_books_keep_to_their_dialects(name: str) -> None:
    assert not [one for one in book(name).found if one.code == "EK222"]
