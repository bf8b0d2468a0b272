"""Operators that books define are fused, decomposed again, and bound to functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.patterns import rule_files
from tests.patterns.exported_programs import exported, outputs, targets
from tests.patterns.rule_files import book

from exirkit import UnfuseOperators, bind_pattern_to_op, ops
from exirkit.ir import UsageError
from exirkit.patterns import RewriteOptions, RuleEngine, bound_book, check_book, parse_book, unfuse

ATEN = torch.ops.aten
BOOK = """rulebook: 1
ops:
  unf.add_relu:
    schema: "(Tensor x, Tensor y, *, Scalar scale=1) -> Tensor"
    define: return aten.relu.default(aten.add.Tensor(x, y, alpha=scale))
  unf.twice:
    schema: "(Tensor x) -> (Tensor, Tensor)"
    define: |
      y = unf.add_relu(x, x)
      return y, aten.neg.default(y)
rules:
- id: fuse
  vars: {x: "f32 [~S]", y: "f32 [~S]", a: "int in [1, 3]"}
  match: return aten.relu.default(aten.add.Tensor(x, y, alpha=a))
  replace: return unf.add_relu(x, y, scale=a)
"""


def test_fused_and_decomposed() -> None:
    book = parse_book(BOOK, "book.yaml").require_valid()
    x, y = torch.randn(2, 3), torch.randn(3)
    editor = exported(lambda _, x, y: (torch.add(x, y, alpha=2).relu(),), x, y)
    before = outputs(editor.program, x, y)
    assert RuleEngine(book.rules).run(editor).applied == {"fuse": 1}
    assert targets(editor.program) == ["add_relu"]
    passed = UnfuseOperators(book)
    program, report = passed.apply(editor.program)
    assert report.modified
    assert passed.report is not None
    assert passed.report.applied == {"unfuse.unf.add_relu": 1}
    assert targets(program) == ["add", "relu"]
    torch.testing.assert_close(outputs(program, x, y), before)


def test_operators_in_definitions_are_decomposed_too() -> None:
    book = parse_book(BOOK, "book.yaml").require_valid()
    x = torch.randn(4)
    editor = exported(lambda _, x: tuple(torch.ops.unf.twice(x)), x, keep=(torch.ops.unf.twice.default,))
    before = outputs(editor.program, x)
    program, _ = UnfuseOperators(book).apply(editor.program)
    assert sorted(targets(program)) == ["add", "neg", "relu"]
    torch.testing.assert_close(outputs(program, x), before)
    kept, _ = UnfuseOperators(book, keep=["unf.add_relu"]).apply(editor.program)
    assert sorted(targets(kept)) == ["add_relu", "neg"]
    limited = UnfuseOperators(book, options=RewriteOptions(limit=1))
    assert sorted(targets(limited.apply(editor.program)[0])) == ["add_relu", "neg"]


def test_the_rules_are_checked_like_others() -> None:
    verdict = check_book(unfuse(parse_book(BOOK, "book.yaml")), trials=20)
    assert [rule.rule for rule in verdict.rules] == ["unfuse.unf.add_relu", "unfuse.unf.twice"]
    assert verdict.is_accepted, [one.render() for rule in verdict.rules for one in rule.found]


@pytest.mark.parametrize("name", ["attention", "fuse", "quant"])
def test_operators_of_shipped_books(name: str) -> None:
    loaded = book(name)
    apart = unfuse(loaded).require_valid()
    assert {rule.id for rule in apart.rules} == {f"unfuse.{one}" for one in loaded.operators}


def test_narrower_types_are_what_is_tried() -> None:
    types = {"x": "f32 [*B, K]", "w": "f32 [N, K]", "b": "f32 [N] | none", "act": "str in 'relu', 'silu'"}
    apart = unfuse(rule_files.book("fuse"), types={"fused.linear_act": types})
    verdict = check_book(apart, trials=20, only=["unfuse.fused.linear_act"])
    assert verdict.is_accepted, [one.render() for one in verdict.rules[0].found]
    assert verdict.rules[0].positives is not None
    assert verdict.rules[0].positives.passed == 20


@pytest.fixture
def library() -> Any:
    return torch.library.Library("bound_foo", "FRAGMENT")


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_a_function_becomes_the_meaning_of_an_operator(library: torch.library.Library) -> None:
    @bind_pattern_to_op(library, "add_relu(Tensor self, Tensor other) -> Tensor")
    def pattern(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Add, and cut off what is negative."""
        z = ops.edge.aten.add.Tensor(x, y)
        return torch.ops.aten.relu.default(z)

    op = torch.ops.bound_foo.add_relu.default
    x, y = torch.randn(2, 3), torch.randn(3)
    torch.testing.assert_close(op(x, y), pattern(x, y))
    # A rule puts it in, torch takes it apart where it traces again, and so does the rule of its definition.
    book = parse_book(
        """rulebook: 1
rules:
- id: fuse
  vars: {x: "f32 [~S]", y: "f32 [~S]"}
  match: return aten.relu.default(aten.add.Tensor(x, y))
  replace: return bound_foo.add_relu(x, y)
"""
    ).require_valid()
    assert check_book(book, trials=20).is_accepted
    editor = exported(lambda _, x, y: ((x + y).relu(),), x, y)
    before = outputs(editor.program, x, y)
    RuleEngine(book.rules).run(editor)
    assert targets(editor.program) == ["add_relu"]
    torch.testing.assert_close(outputs(editor.program, x, y), before)
    assert targets(editor.program.run_decompositions()) == ["add", "relu"]
    apart, _ = UnfuseOperators(bound_book()).apply(editor.program)
    assert targets(apart) == ["add", "relu"]
    torch.testing.assert_close(outputs(apart, x, y), before)


def test_an_operator_with_a_schema_needs_only_its_name(library: torch.library.Library) -> None:
    library.define("scaled.by(Tensor x, float factor) -> Tensor")

    @bind_pattern_to_op(library, "bound_foo::scaled.by")
    def pattern(x: torch.Tensor, factor: float) -> torch.Tensor:
        x = torch.ops.aten.mul.Scalar(x, factor)
        return torch.ops.aten.neg.default(x)

    x = torch.randn(3)
    torch.testing.assert_close(torch.ops.bound_foo.scaled.by(x, 2.0), -2 * x)
    assert "bound_foo.scaled.by" in bound_book().require_valid().operators
    # Again is not a mistake: what has a kernel keeps it.
    bind_pattern_to_op(library, "scaled.by")(pattern)


def test_a_function_that_the_language_cannot_say(library: torch.library.Library) -> None:
    def pattern(x: torch.Tensor) -> torch.Tensor:
        while True:
            return x + 1

    bind_pattern_to_op(library, "endless(Tensor x) -> Tensor")(pattern)
    torch.testing.assert_close(torch.ops.bound_foo.endless(torch.ones(2)), torch.full((2,), 2.0))
    assert "bound_foo.endless" not in bound_book().operators


@pytest.mark.parametrize(
    ("what", "function", "why"),
    [
        ("nothing_of_the_kind", lambda x: x, "does not define it"),
        ("other::add(Tensor x) -> Tensor", lambda x: x, "the library is that of bound_foo"),
        ("one(Tensor x) -> Tensor", lambda x, y: x, "it takes 1 arguments, and the function 2"),
        ("two(Tensor x -> Tensor", lambda x: x, "no pattern can be bound"),
    ],
)
def test_what_cannot_be_bound(
    library: torch.library.Library, what: str, function: Callable[..., Any], why: str
) -> None:
    with pytest.raises(UsageError, match="EK232") as caught:
        bind_pattern_to_op(library, what)(function)
    assert why in str(caught.value)
