"""Comprehensions in patterns: any number of elements of one form, what they share, and lists around them."""

from __future__ import annotations

import pytest
import torch
from tests.patterns.engine_runs import Whole, book_of, fired, rewritten
from tests.patterns.syntax import python_rules

from exirkit.ir import GraphEditor
from exirkit.patterns import check_book, explain_rule
from exirkit.patterns.checking.near_misses import NearMisses
from exirkit.patterns.checking.trials.rule_trials import RuleTrials

JOINED = """  vars: {xs: 'list of any [*S]', p: perm of S, d: axis of S}
  match: return aten.cat.default([aten.permute_copy.default(x, p) for x in xs], d)
  replace: return aten.permute_copy.default(aten.cat.default(xs, p[norm(d, xs[0])]), p)
"""
MIDDLE = """  vars:
    {xs: 'list of f32 [*S]', before: 'list from 0 of f32 [*S]', rest: 'list from 0 of f32 [*S]', d: axis of S}
  match: return aten.cat.default([*before, *[aten.relu.default(x) for x in xs], *rest], d)
  where: {expr: len(xs) > 1, kind: profit}
  replace: return aten.cat.default([*before, aten.relu.default(aten.cat.default(xs, d)), *rest], d)
"""
POWERS = """  vars: {x: 'f32 [N]', ks: 'floats'}
  gen: len(ks) > 0
  match: return aten.stack.default([aten.pow.Tensor_Scalar(x, k) for k in ks], 0)
  where: all(k == 1.0 for k in ks)
  replace: return aten.stack.default([x for _ in ks], 0)
"""
SCALED = """  vars: {xs: 'list of f32 [*S]', ks: 'floats len(xs) in [0.5, 2.0]', d: axis of S}
  match: return aten.cat.default([aten.mul.Tensor(x, k) for x, k in zip(xs, ks)], d)
  where: all(k == ks[0] for k in ks)
  replace: return aten.mul.Tensor(aten.cat.default(xs, d), ks[0])
"""
X = torch.randn(2, 3, 4)


@pytest.mark.parametrize("count", [2, 3, 7])
@pytest.mark.parametrize("is_edge", [True, False])
def test_any_number_of_elements(count: int, is_edge: bool) -> None:
    def joined(*given: torch.Tensor) -> torch.Tensor:
        return torch.cat([one.permute(2, 0, 1) for one in given], -1)

    times, program = rewritten(book_of(JOINED), joined, *[X + one for one in range(count)], is_edge=is_edge)
    permutes = sum("permute" in str(node.target) for node in program.graph.nodes)
    assert (times, permutes) == (1, 1)


def test_every_element_has_to_match() -> None:
    assert fired(book_of(JOINED), lambda x, y: torch.cat([x.permute(2, 0, 1), y], 0), X, X.permute(2, 0, 1)) == 0


def test_what_is_not_of_the_element_is_the_same_for_all() -> None:
    square = torch.randn(3, 3, 3)
    assert fired(book_of(JOINED), lambda x: torch.cat([x.permute(2, 0, 1), x.permute(1, 0, 2)], 0), square) == 0
    assert fired(book_of(JOINED), lambda x: torch.cat([x.permute(2, 0, 1), x.permute(2, 0, 1)], 0), square) == 1


def test_one_node_may_stand_twice_in_a_list() -> None:
    def twice(x: torch.Tensor) -> torch.Tensor:
        y = x.permute(2, 0, 1)
        return torch.cat([y, y], 0)

    # The same call cannot be matched twice; what is right to do is left alone.
    assert fired(book_of(JOINED), twice, X) in (0, 1)


def test_an_element_with_another_user_stays() -> None:
    def used(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = torch.relu(x)
        return torch.cat([first, torch.relu(y)], 0), first + 1

    assert fired(book_of(MIDDLE), used, X, X + 1) == 0


@pytest.mark.parametrize(("before", "run", "rest"), [(0, 2, 0), (2, 2, 0), (0, 3, 2), (1, 2, 3)])
def test_elements_before_and_after(before: int, run: int, rest: int) -> None:
    def some(*given: torch.Tensor) -> torch.Tensor:
        parts = [one.relu() if before <= index < before + run else one.exp() for index, one in enumerate(given)]
        return torch.cat(parts, 1)

    given = [X + one for one in range(before + run + rest)]
    times, program = rewritten(book_of(MIDDLE), some, *given)
    assert times == 1
    assert sum("relu" in str(node.target) for node in program.graph.nodes) == 1


def test_a_single_run_is_long_enough() -> None:
    def parted(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        return torch.cat([a.relu(), b.exp(), c.relu(), d.relu()], 1)

    # The first run is of one element, so that the condition does not hold; the matcher goes on to the second.
    assert fired(book_of(MIDDLE), parted, X, X + 1, X + 2, X + 3) == 1


def test_numbers_run_along() -> None:
    assert fired(book_of(SCALED), lambda x, y: torch.cat([x * 2.0, y * 2.0], 0), X, X + 1) == 1
    assert fired(book_of(SCALED), lambda x, y: torch.cat([x * 2.0, y * 3.0], 0), X, X + 1) == 0
    assert fired(book_of(POWERS), lambda x: torch.stack([x**1.0, x**1.0]), torch.randn(3), is_edge=False) == 1


@pytest.mark.parametrize("text", [JOINED, MIDDLE, SCALED])
def test_right_rules_are_accepted(text: str) -> None:
    verdict = check_book(book_of(text), trials=60)
    assert verdict.is_accepted, [one.render() for rule in verdict.rules for one in rule.found]


@pytest.mark.parametrize("text", [
    JOINED.replace("p[norm(d, xs[0])]", "d"),
    MIDDLE.replace("*before, aten.relu", "aten.relu").replace("*rest], d)\n", "*rest, *before], d)\n"),
    SCALED.replace("  where: all(k == ks[0] for k in ks)\n", ""),
    JOINED.replace("cat.default(xs, p", "cat.default(xs[:2], p"),
])  # fmt: skip
def test_wrong_rules_are_rejected(text: str) -> None:
    assert not check_book(book_of(text), trials=60).is_accepted


def test_what_elements_share_has_a_witness() -> None:
    (rule,) = book_of(JOINED).rules
    found = {(one.what, one.text): one for one in NearMisses(RuleTrials(rule)).all()}
    assert found["repeated", "p"].outcome == "witness"


def test_trials_draw_lists_of_several_lengths() -> None:
    (rule,) = book_of(MIDDLE).rules
    trials = RuleTrials(rule)
    drawn = [trial.names for number in range(1, 200) if (trial := trials.trial(number)[0]) is not None]
    assert {len(one["before"]) for one in drawn} >= {0, 1, 2}
    assert {len(one["xs"]) for one in drawn} >= {2, 3, 4}


@pytest.mark.parametrize(("match", "message"), [
    ("[aten.exp.default(x) for x in xs if rank(x) == 2]", "has no `if`"),
    ("[aten.exp.default(x) for x in xs for y in xs]", "has one `for`"),
    ("[aten.exp.default(x) for x in y]", "y is not a list"),
    ("[aten.exp.default(x) for x in x0]", "x0 is not a list"),
    ("[aten.exp.default(x0) for x in xs]", "does not use 'x'"),
    ("[aten.exp.default(x0) for x0 in xs]", "'x0' means something else"),
    ("[x for x in xs]", "the element of a comprehension is a call"),
    ("[aten.mul.Tensor(x, _) for x in xs]", "`_` and `...` cannot stand in a comprehension"),
    ("[addc(x, 1) for x in xs]", "`alt`, `opt` and `thru` cannot stand in a comprehension"),
    ("[aten.exp.default(x) for x in sorted(xs)]", "runs over a variable, or `zip`"),
    ("[aten.add.Tensor(x, y) for x, y in zip(xs)]", "2 names for the elements of 1 lists"),
    ("[aten.add.Tensor(x, y) for x, y in zip(xs, xs)]", "a list runs along itself"),
    ("[aten.exp.default(x) for x.y in xs]", "is a name, or several"),
    ("[*xs, *_]", "two `*`, with something between them"),
    ("(aten.exp.default(x) for x in xs)", "a comprehension in a pattern is a list"),
])  # fmt: skip
def test_wrong_patterns(match: str, message: str) -> None:
    book = book_of(f"""  vars: {{xs: 'list of f32 [*S]', x0: 'f32 [*S]'}}
  match: return aten.cat.default({match}, 0)
  replace: return x0
""")
    assert any(message in one.message for one in book.found), [one.message for one in book.found]
    assert {one.code for one in book.found} <= {"EK211", "EK212", "EK218"}


def test_python_form_is_the_same_rule() -> None:
    loaded = python_rules.ADDITIONS.load()
    assert fired(loaded, lambda x, y: torch.cat([x.permute(2, 0, 1), y.permute(2, 0, 1)], 0), X, X + 1) == 1
    (rule,) = (one for one in loaded.rules if one.id == "layout.cat-before-permute")
    assert rule.pattern == book_of(JOINED).rules[0].pattern


def test_explanation_names_what_is_expected() -> None:
    (rule,) = book_of(JOINED).rules
    other = Whole(lambda x, y: torch.cat([x.permute(2, 0, 1), y.exp()], 0))
    program = torch.export.export(other, (X, X.permute(2, 0, 1)))
    (node,) = explain_rule(rule, GraphEditor(program)).nodes
    assert node.mismatch is not None
    assert node.mismatch.expected == "elements of one form"
    assert "aten.exp.default" in node.mismatch.found
