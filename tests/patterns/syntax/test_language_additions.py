"""Computed arguments, `let` in conditions, libraries, `none`, `-inf`, and diagnostics about errors and dialects."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from exirkit import to_edge
from exirkit.ir import GraphEditor, copy_program
from exirkit.patterns import RuleEngine, check_book, explain_rule, parse_book
from exirkit.patterns.checking.trials.rule_trials import RuleTrials


class Whole(torch.nn.Module):
    """A module around a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> Any:
        return self.function(*given)


def book_of(text: str, head: str = "") -> Any:
    return parse_book(f"rulebook: 1\n{head}rules:\n- id: one\n{text}", "book.yaml")


def fired(text: str, function: Callable[..., Any], *given: torch.Tensor) -> int:
    """Return how often a rule fires on a function in Edge; its results must stay."""
    book = book_of(text)
    assert not book.found, [one.render() for one in book.found]
    program = to_edge(torch.export.export(Whole(function), given)).exported_program()
    wanted = program.module()(*given)
    editor = GraphEditor(copy_program(program))
    report = RuleEngine(book.rules).run(editor)
    torch.testing.assert_close(editor.program.module()(*given), wanted)
    return len(report.journal)


X = torch.randn(2, 6, 4)


# Computed arguments

HALVES = """  vars: {x: 'f32 [N, 2 * H, M]'}
  match: return aten.add.Tensor(aten.slice.Tensor(x, 1, 0, H), aten.slice.Tensor(x, 1, H, 2 * H))
  replace: return aten.add.Tensor(aten.slice.Tensor(x, 1, H, 2 * H), aten.slice.Tensor(x, 1, 0, H))
  measure: once
"""
SHAPE = """  vars: {x: 'f32 [*S]'}
  match: return aten.view.default(aten.exp.default(aten.view.default(x, [-1])), shape(x))
  replace: return aten.exp.default(x)
"""


def test_arithmetic_over_sizes_is_an_argument() -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        return x[:, :3] + x[:, 3:6]

    def others(x: torch.Tensor) -> torch.Tensor:
        return x[:, :3] + x[:, 2:5]

    assert fired(HALVES, halves, X) == 1
    assert fired(HALVES, others, X) == 0


def test_the_shape_of_a_variable_is_an_argument() -> None:
    assert fired(SHAPE, lambda x: x.reshape(-1).exp().reshape(2, 6, 4), X) == 1
    assert fired(SHAPE, lambda x: x.reshape(-1).exp().reshape(2, 4, 6), X) == 0


def test_a_computed_argument_is_checked_and_tried() -> None:
    verdict = check_book(book_of(SHAPE), trials=30)
    assert verdict.is_accepted, [one.render() for rule in verdict.rules for one in rule.found]
    wrong = check_book(book_of(SHAPE.replace("return aten.exp.default(x)", "return aten.neg.default(x)")), trials=30)
    assert not wrong.is_accepted


def test_what_a_computed_argument_is_not_is_explained() -> None:
    book = book_of(SHAPE)
    program = to_edge(torch.export.export(Whole(lambda x: x.reshape(-1).exp().reshape(2, 4, 6)), (X,)))
    explained = explain_rule(book.rules[0], GraphEditor(copy_program(program.exported_program())))
    assert not explained.firing
    assert "shape(x)" in explained.nodes[0].diagnostic().render()


def test_arithmetic_over_numbers_is_a_literal() -> None:
    text = "  vars: {x: 'f32 [*S]'}\n  match: return aten.mul.Tensor(x, 1 / 2)\n"
    text += "  replace: return aten.div.Tensor(x, 2.0)\n"
    assert fired(text, lambda x: x * 0.5, X) == 1


# Names of `let` in conditions

LET = """  vars: {x: 'f32 [*S]', a: 'int in [1, 9]', b: 'int in [1, 9]'}
  match: return aten.mul.Scalar(aten.mul.Scalar(x, a), b)
  where: even
  let: |
    both = a * b
    even = both % 2 == 0
  replace: return aten.mul.Scalar(x, both)
  equiv: {rtol: 1.0e-5, atol: 1.0e-6}
"""


def test_conditions_know_what_let_computes() -> None:
    assert fired(LET, lambda x: x * 3 * 4, X) == 1
    assert fired(LET, lambda x: x * 3 * 5, X) == 0


def test_a_condition_over_let_has_a_witness() -> None:
    text = """  vars: {x: 'f32 [*S]', c: 'const f32 {0.5, 1.0, 2.0} []'}
  match: return aten.mul.Tensor(x, c)
  let: twice = c * 2
  where: all_eq(twice, 2)
  replace: return x
"""
    (rule,) = check_book(book_of(text), trials=30).rules
    assert rule.is_accepted, [one.render() for one in rule.found]
    assert [one.witness is not None for one in rule.near_misses if one.what == "guard"] == [True]


# Libraries

LIBRARY = """import torch
library = torch.library.Library("small_words", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
"""
TWICE = "  vars: {x: 'f32 [*S]'}\n  match: return aten.mul.Tensor(x, 2.0)\n  replace: return small_words.twice(x)\n"


def test_libraries_register_operators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small_words_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [one.code for one in book_of(TWICE).found] == ["EK221"]
    assert not book_of(TWICE, "libraries: [small_words_library]\n").found
    assert "small_words_library" in sys.modules


def test_a_library_that_is_not_there_is_one_error() -> None:
    found = book_of(
        "  match: return aten.neg.default(_)\n  replace: return 1\n", "libraries: [no.such.library]\n"
    ).found
    assert found[0].code == "EK225"
    assert found[0].location is not None
    assert found[0].location.line == 2


# Literals


def test_none_and_minus_infinity_are_literals() -> None:
    text = (
        "  vars: {x: 'f32 [*S]'}\n  match: return aten.clamp.default(x, -inf, none)\n"
        "  replace: return aten.clamp.default(x, none, inf)\n  measure: once\n"
    )
    assert fired(text, lambda x: x.clamp(min=-float("inf")), X) == 1


# Diagnostics


def test_a_generator_in_a_pattern_has_a_hint() -> None:
    text = "  vars: {xs: 'list of f32 [N]'}\n  match: return aten.cat.default((aten.neg.default(x) for x in xs))\n"
    text += "  replace: return xs\n"
    (first, *_) = book_of(text).found
    assert "comprehension" in first.message
    assert first.hint is not None
    assert "where" in first.hint


def test_a_gen_that_leaves_no_sample_is_named() -> None:
    text = "  vars: {x: 'f32 [N]'}\n  gen: N > 3 and N < 2\n  match: return aten.neg.default(x)\n"
    text += "  replace: return aten.neg.default(x)\n"
    (rule,) = check_book(book_of(text), trials=10).rules
    (found,) = [one for one in rule.found if one.code == "EK241"]
    assert "gen: N > 3 and N < 2" in found.message


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("aten.view.default(x, _)", "(in aten.view.default, whose argument 'size' is left open"),
        ("aten.neg.default(aten.mm.default(x, x))", "(in aten.mm.default)"),
    ],
)
def test_the_argument_that_keeps_trials_from_being_drawn_is_named(call: str, said: str) -> None:
    text = f"  vars: {{x: 'f32 [2, 3]'}}\n  match: return {call}\n  replace: return x\n"
    book = book_of(text)
    assert not book.found
    report = RuleTrials(book.rules[0]).positives(10)
    assert report.open is not None
    assert said in report.open


# Dialects


def test_a_rule_that_lowering_hides_is_told() -> None:
    """Edge has no fractional part: it is decomposed there, and not recognized in its parts."""
    text = "  {}vars: {{x: 'f32 [*S]'}}\n  match: return aten.frac.default(x)\n"
    text += "  replace: return aten.fmod.Scalar(x, 1)\n"
    severities = {}
    for dialect in ("", "dialect: any\n  ", "dialect: edge\n  ", "dialect: aten\n  "):
        (rule,) = check_book(book_of(text.format(dialect)), trials=10).rules
        severities[dialect.strip()] = [one.severity for one in rule.found if one.code == "EK224"]
    assert severities == {"": ["warning"], "dialect: any": ["error"], "dialect: edge": ["error"], "dialect: aten": []}


def test_a_rule_that_does_what_lowering_does_is_not_complained_about() -> None:
    """Lowering leaves nothing of it to match, and nothing of what simplification removes is missed."""
    rules = {
        "aten.transpose.int(x, 0, 1)": "aten.permute.default(x, [1, 0])",
        "aten.alias.default(x)": "x",
        "aten.view.default(aten.view.default(x, [N * M]), [N * M, 1])": "aten.view.default(x, [N * M, 1])",
    }
    for match, replacement in rules.items():
        text = f"  vars: {{x: 'f32 [N, M]'}}\n  match: return {match}\n  replace: return {replacement}\n"
        (rule,) = check_book(book_of(text), trials=10).rules
        assert not [one for one in rule.found if one.code == "EK224"], match


def test_a_rule_about_what_another_rule_of_its_book_makes_is_not_complained_about() -> None:
    text = """rulebook: 1
rules:
- id: first
  vars: {x: "f32 [*S]"}
  match: return aten.sub.Tensor(x, aten.trunc.default(x))
  replace: return aten.frac.default(x)
- id: second
  vars: {x: "f32 [*S]"}
  match: return aten.neg.default(aten.frac.default(x))
  replace: return aten.frac.default(aten.neg.default(x))
"""
    _, second = check_book(parse_book(text), trials=10).rules
    assert not [one for one in second.found if one.code == "EK224"]
    (_, alone) = check_book(
        parse_book(text.replace("return aten.frac.default(x)", "return aten.fmod.Scalar(x, 1)", 1)), trials=10
    ).rules
    assert [one.code for one in alone.found if one.code == "EK224"] == ["EK224"]


def test_a_rule_that_fires_in_every_dialect_has_no_diagnostic() -> None:
    text = "  vars: {x: 'f32 [N, M]'}\n  match: return aten.permute.default(aten.exp.default(x), [1, 0])\n"
    text += "  replace: return aten.exp.default(aten.permute.default(x, [1, 0]))\n"
    (rule,) = check_book(book_of(text), trials=10).rules
    assert not rule.found, [one.render() for one in rule.found]


# Trials


def test_lists_are_long_and_parts_are_empty_now_and_then() -> None:
    text = """  vars: {xs: 'list of f32 [N]'}
  match: return aten.neg.default(aten.cat.default(xs))
  replace: return aten.cat.default([aten.neg.default(x) for x in xs])
"""
    bench = RuleTrials(book_of(text).rules[0])
    trials = [bench.trial(number)[0] for number in range(1, 80)]
    lengths = {len(one.names["xs"]) for one in trials if one is not None}
    assert {1, 2, 3, 4} < lengths
    assert max(lengths) > 4
    parts = """  vars: {y: 'f32 [12, M]', sizes: 'partition of y at 0'}
  match: return aten.split_with_sizes.default(y, sizes)[0]
  replace: return aten.narrow.default(y, 0, 0, sizes[0])
"""
    bench = RuleTrials(book_of(parts).rules[0])
    found = [one.names["sizes"] for number in range(1, 120) if (one := bench.trial(number)[0]) is not None]
    assert any(0 in one for one in found)
    assert max(map(len, found)) > 4
