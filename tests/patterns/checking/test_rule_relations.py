"""What the rules of a set do to each other is found before a program shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.patterns import rule_files

from exirkit.patterns import CompiledRule, check_book, parse_book, relations_of, shipped_books
from exirkit.patterns.checking import abstract_overlap
from exirkit.patterns.checking.abstract_overlap import instances_of
from exirkit.patterns.checking.trials.rule_trials import RuleTrials
from exirkit.patterns.operators.table import name_of

HERE = Path(__file__).parents[1]


def book(*rules: str) -> list[CompiledRule]:
    """Return rules of a book, each written on one line."""
    text = "rulebook: 1\nrules:\n" + "".join(f"- {{{rule}}}\n" for rule in rules)
    return parse_book(text, "book.yaml").require_valid().rules


def said(*rules: str) -> list[str]:
    """Return the codes of what is found about rules, and which ones are named."""
    return [f"{one.code} {one.message}" for one in relations_of(book(*rules)).found]


def rule(name: str, match: str, replace: str, types: str = 'x: "f32 [*S]"', more: str = "") -> str:
    """Return a rule on one line."""
    return f'id: {name}, vars: {{{types}}}, match: "return {match}", replace: "return {replace}"{more}'


NEG = rule("neg", "aten.neg.default(x)", "aten.mul.Scalar(x, -1.0)")


# Rules that never fire


def test_rule_of_lower_priority_never_fires() -> None:
    narrow = rule("narrow", "aten.neg.default(x)", "aten.mul.Scalar(x, -1)", 'x: "f32 [N, K]"')
    wide = rule("wide", "aten.neg.default(y)", "aten.mul.Scalar(y, -1.0)", 'y: "f* [*T]"', ", priority: 1")
    relations = relations_of(book(narrow, wide))
    (one,) = relations.found
    assert one.code == "EK243"
    assert one.message == "rule narrow never fires: wide has a higher priority and matches wherever it does"
    assert one.location is not None
    assert one.location.line == 3
    assert one.notes == ("wide stands in book.yaml:4:8",)


def test_larger_pattern_never_fires_behind_a_smaller_one_of_higher_priority() -> None:
    large = rule("large", "aten.relu.default(aten.sigmoid.default(x))", "aten.sigmoid.default(x)")
    small = rule("small", "aten.relu.default(y)", "aten.clamp_min.default(y, 0)", 'y: "any [*T]"', ", priority: 1")
    assert [one[:23] for one in said(large, small)] == ["EK243 rule large never "]
    assert not said(large, small.replace("priority: 1", "priority: 0"))


def test_same_pattern_twice() -> None:
    other = rule("other", "aten.neg.default(x)", "aten.sub.Tensor(aten.full_like.default(x, 0.0), x)")
    assert [one[:23] for one in said(NEG, other)] == ["EK243 rule other never "]


@pytest.mark.parametrize(
    "wide",
    [
        rule("wide", "aten.neg.default(x)", "aten.mul.Scalar(x, -1)", 'x: "f16 [*S]"', ", priority: 1"),
        rule("wide", "aten.neg.default(x)", "aten.mul.Scalar(x, -1)", 'x: "f32 [N]"', ", priority: 1"),
        rule("wide", "aten.neg.default(x)", "aten.mul.Scalar(x, -1)", 'x: "const f32 [*S]"', ", priority: 1"),
        rule("wide", "aten.neg.default(x)", "aten.mul.Scalar(x, -1)", more=', priority: 1, where: "rank(x) > 1"'),
        rule("wide", "aten.neg.default(aten.neg.default(x))", "x", more=", priority: 1"),
    ],
    ids=["dtype", "rank", "constness", "guard", "calls"],
)
def test_rule_fires_where_the_one_before_does_not_match(wide: str) -> None:
    assert not [one for one in said(wide, NEG) if one.startswith("EK243")]


def test_repeated_variable_is_not_a_general_case() -> None:
    same = rule("same", "aten.mul.Tensor(x, x)", "aten.pow.Tensor_Scalar(x, 2)", more=", priority: 1")
    two = rule("two", "aten.mul.Tensor(x, y)", "aten.mul.Tensor(y, x)", 'x: "f32 [*S]", y: "f32 [*S]"')
    assert not [one for one in said(same, two) if one.startswith("EK243")]


def test_operands_in_the_other_order() -> None:
    left = rule(
        "left", "aten.mul.Tensor(aten.relu.default(x), y)", "y", 'x: "f32 [*S]", y: "f32 [*S]"', ", priority: 1"
    )
    right = rule("right", "aten.mul.Tensor(b, aten.relu.default(a))", "b", 'a: "f32 [*S]", b: "f32 [*S]"')
    assert [one[:23] for one in said(left, right)] == ["EK243 rule right never "]


# Choices by order


def test_order_that_matters_is_a_note() -> None:
    even = rule("even", "aten.neg.default(x)", "aten.mul.Scalar(x, -1)", 'x: "f32 [*S]"', ', where: "rank(x) < 9"')
    relations = relations_of(book(NEG, even))
    assert not relations.found
    (one,) = relations.notes
    assert (one.code, one.severity) == ("EK244", "note")
    assert "even" in one.message
    assert "neg" in one.message


def test_guards_that_exclude_each_other_leave_no_choice() -> None:
    low = rule("low", "aten.neg.default(x)", "aten.mul.Scalar(x, -1)", more=', where: "rank(x) < 2"')
    high = rule("high", "aten.neg.default(x)", "aten.mul.Scalar(x, -1.0)", more=', where: "rank(x) >= 2"')
    assert not relations_of(book(low, high)).notes


# Cycles


def test_fuse_and_decompose_undo_each_other() -> None:
    fuse = rule("fuse", "aten.mul.Tensor(x, aten.sigmoid.default(x))", "aten.silu.default(x)")
    split = rule("split", "aten.silu.default(x)", "aten.mul.Tensor(x, aten.sigmoid.default(x))")
    relations = relations_of(book(fuse, split))
    (one,) = relations.found
    assert one.code == "EK245"
    assert one.message == "rules undo each other: fuse -> split -> fuse"
    assert "split stands in book.yaml:4:8" in one.notes


def test_cycle_of_three() -> None:
    rules = [
        rule("a", "aten.neg.default(x)", "aten.mul.Scalar(x, -1)"),
        rule("b", "aten.mul.Scalar(x, -1)", "aten.div.Scalar(x, -1)"),
        rule("c", "aten.div.Scalar(x, -1)", "aten.neg.default(x)"),
    ]
    assert said(*rules) == ["EK245 rules undo each other: a -> b -> c -> a"]


def test_cycle_that_needs_a_context() -> None:
    away = rule("away", "aten.relu.default(x)", "aten.clamp_min.default(x, 0)")
    back = rule("back", "aten.exp.default(aten.clamp_min.default(x, 0))", "aten.exp.default(aten.relu.default(x))")
    assert said(away, back) == ["EK245 rules undo each other: away -> back -> away"]


def test_rule_that_matches_its_own_result() -> None:
    assert said(rule("more", "aten.relu.default(x)", "aten.relu.default(aten.relu.default(x))")) == [
        "EK245 rule more matches its own result for ever"
    ]


TWICE = rule("a", "aten.mul.Scalar(x, 2)", "aten.add.Tensor(x, x)")
THRICE = rule("b", "aten.add.Tensor(x, x)", "aten.mul.Scalar(x, 3)")
ALPHA = rule(
    "a", "aten.add.Tensor(x, x, alpha=c)", "aten.add.Tensor(x, aten.mul.Scalar(x, c))",
    'x: "f32 [*S]", c: "one_of 1, 2"', ', where: "c != 1"',
)  # fmt: skip
NEG_NEG = rule("a", "aten.neg.default(aten.neg.default(x))", "x")
NEG_RELU = rule("b", "aten.relu.default(aten.neg.default(x))", "aten.neg.default(x)")
BOUNDED = rule(
    "a", "aten.relu.default(x)", "aten.relu.default(aten.relu.default(x))", more=", measure: {bound: 3}"
)  # fmt: skip


@pytest.mark.parametrize(
    "rules",
    [[TWICE, THRICE], [ALPHA], [NEG_NEG, NEG_RELU], [BOUNDED]],
    ids=["another number", "guard about a number", "smaller", "declared"],
)
def test_what_ends_is_not_a_cycle(rules: list[str]) -> None:
    assert not said(*rules)


def test_rules_that_only_move_calls_are_not_error() -> None:
    before, after = (
        "aten.neg.default(aten.permute_copy.default(x, p))",
        "aten.permute_copy.default(aten.neg.default(x), p)",
    )
    sink = rule("sink", before, after, 'x: "f32 [*S]", p: "perm of x"')
    relations = relations_of(book(sink))
    assert not relations.found
    assert [one.code for one in relations.notes] == ["EK246"]


# Books


@pytest.mark.parametrize("name", shipped_books())
def test_shipped_books_have_no_rules_in_the_way_of_each_other(name: str) -> None:
    assert not relations_of(rule_files.book(name).rules).found


def test_books_that_are_applied_together() -> None:
    books = ("canonicalize", "algebra", "fold", "host")
    assert not relations_of([one for name in books for one in rule_files.book(name).rules]).found


def test_books_that_undo_each_other() -> None:
    both = [
        rule_files.book("decompose").rule("decompose.rsqrt"),
        rule_files.book("algebra").rule("simplify.reciprocal-of-sqrt"),
    ]
    (one,) = relations_of(both).found
    assert one.message.startswith("rules undo each other: decompose.rsqrt -> simplify.reciprocal-of-sqrt")


def test_sets_are_checked_one_by_one() -> None:
    text = "rulebook: 1\nsets: {first: {rules: [fuse]}, second: {exclude: [fuse]}}\nrules:\n"
    fuse = rule("fuse", "aten.mul.Tensor(x, aten.sigmoid.default(x))", "aten.silu.default(x)")
    split = rule("split", "aten.silu.default(x)", "aten.mul.Tensor(x, aten.sigmoid.default(x))")
    apart = parse_book(f"{text}- {{{fuse}}}\n- {{{split}}}\n")
    together = parse_book(f"rulebook: 1\nrules:\n- {{{fuse}}}\n- {{{split}}}\n")
    assert not [one for one in check_book(apart, trials=5).found if one.code == "EK245"]
    warned = check_book(together, trials=5)
    assert [(one.code, one.severity) for one in warned.found] == [("EK245", "warning")]
    assert [one.severity for one in check_book(together, trials=5, is_strict=True).found] == ["error"]


def test_the_same_is_said_every_time() -> None:
    rules = rule_files.book("canonicalize").rules
    first, second = relations_of(rules), relations_of(list(reversed(rules)))
    assert first == second


# What rules of many steps cost


def test_results_that_are_used_twice_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 16
    lines = "".join(f"    y{at + 1} = aten.add.Tensor(y{at}, y{at})\n" for at in range(steps))
    text = (
        'rulebook: 1\nrules:\n- id: doubled\n  vars: {x: "f32 [N]"}\n'
        f"  match: return aten.mul.Scalar(x, {2.0**steps})\n"
        f"  replace: |\n    y0 = aten.clone.default(x)\n{lines}    return y{steps}\n"
    )
    (doubled,) = parse_book(text, "book.yaml").require_valid().rules
    compared: list[object] = []

    def noted(op: Any) -> str:
        compared.append(op)
        return name_of(op)

    monkeypatch.setattr(abstract_overlap, "name_of", noted)
    assert len(instances_of(RuleTrials(doubled, seed=0))) == 1
    # Twice for each call of each instance: when it is counted, and when it is compared with others.
    assert len(compared) <= 2 * 3 * (steps + 3)
