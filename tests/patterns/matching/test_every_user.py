"""Patterns about every user of a value, or those of one form."""

from __future__ import annotations

import pytest
import torch
from tests.patterns.engine_runs import book_of, fired, rewritten
from tests.patterns.syntax import python_rules

from exirkit.patterns import check_book
from exirkit.patterns.checking.near_misses import NearMisses
from exirkit.patterns.checking.trials.rule_trials import RuleTrials

FACTORS = """  vars: {x: 'f32 [*S]', ks: 'floats'}
  match: |
    d = aten.neg.default(x)
    return *[aten.mul.Scalar(u, k) for u, k in zip(users(d), ks)]
  replace: return *[aten.mul.Scalar(x, -k) for k in ks]
"""
ALIKE = """  vars: {x: 'f32 [*S]'}
  match: |
    d = aten.exp.default(x)
    return *[aten.neg.default(aten.abs.default(u)) for u in users(d)]
  replace: return aten.neg.default(aten.exp.default(x))
"""
SOME = """  vars: {x: 'f32 [*S]'}
  match: return *[aten.abs.default(aten.neg.default(u)) for u in some(users(x))]
  replace: return aten.abs.default(x)
"""
X = torch.randn(3, 4)


def names(program: torch.export.ExportedProgram, part: str) -> int:
    return sum(part in str(node.target) for node in program.graph.nodes)


@pytest.mark.parametrize("factors", [[2.0], [2.0, 3.0], [0.5, 2.0, 2.0, 5.0]])
@pytest.mark.parametrize("is_edge", [True, False])
def test_all_users_are_results(factors: list[float], is_edge: bool) -> None:
    def scaled(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.neg()
        return tuple(y * one for one in factors)

    times, program = rewritten(book_of(FACTORS), scaled, X, is_edge=is_edge)
    assert (times, names(program, "neg")) == (1, 0)


def test_a_user_of_another_form_is_in_the_way() -> None:
    def other(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.neg()
        return y * 2.0, y.exp()

    assert fired(book_of(FACTORS), other, X) == 0


def test_a_program_that_returns_the_value_is_a_user() -> None:
    def returned(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.neg()
        return y * 2.0, y

    assert fired(book_of(FACTORS), returned, X) == 0


def test_one_result_stands_for_all() -> None:
    def alike(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.exp()
        return y.abs().neg(), y.abs().neg().sin(), y.abs().neg().cos()

    times, program = rewritten(book_of(ALIKE), alike, X, is_edge=False)
    assert (times, names(program, "neg"), names(program, "abs")) == (1, 1, 0)


def test_a_value_between_that_others_use_is_in_the_way() -> None:
    def shared(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.exp().abs()
        return y.neg(), y.sin()

    assert fired(book_of(ALIKE), shared, X) == 0


def test_some_users() -> None:
    def mixed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.neg().abs(), x.sin(), x.neg().abs().cos(), x.neg().exp()

    times, program = rewritten(book_of(SOME), mixed, X, is_edge=False)
    assert (times, names(program, "abs"), names(program, "neg")) == (1, 1, 1)


def test_users_with_users_of_each_other() -> None:
    def nested(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.neg()
        first = y * 2.0
        return first.sin(), (y * 3.0) + first

    assert fired(book_of(FACTORS), nested, X) == 1


@pytest.mark.parametrize("rule", [FACTORS, ALIKE, SOME])
def test_right_rules_are_accepted(rule: str) -> None:
    verdict = check_book(book_of(rule), trials=60)
    assert verdict.is_accepted, [one.render() for each in verdict.rules for one in each.found]


@pytest.mark.parametrize("rule", [
    FACTORS.replace("x, -k", "x, k"),
    FACTORS.replace("return *[aten.mul.Scalar(x, -k) for k in ks]", "return aten.mul.Scalar(x, -ks[0])"),
    FACTORS.replace("for k in ks]", "for k in ks[1:]]"),
    FACTORS.replace("for k in ks]", "for k in [ks[i - 1] for i in range(len(ks))]]"),
    ALIKE.replace("aten.neg.default(aten.exp.default(x))", "aten.exp.default(x)"),
])  # fmt: skip
def test_wrong_rules_are_rejected(rule: str) -> None:
    assert not check_book(book_of(rule), trials=100).is_accepted


@pytest.mark.parametrize(("rule", "text"), [(FACTORS, "users(d)"), (ALIKE, "users(d)"), (SOME, "some(users(x))")])
def test_one_user_that_does_not_fit_is_a_near_miss(rule: str, text: str) -> None:
    (found,) = [one for one in NearMisses(RuleTrials(book_of(rule).rules[0])).all() if one.what == "users"]
    assert (found.text, found.outcome) == (text, "witness")
    assert "as a user" in str(found.instead)


def test_a_rule_about_some_users_that_leaves_none_alone_is_rejected() -> None:
    rule = """  vars: {x: 'f32 [*S]'}
  match: |
    d = aten.neg.default(x)
    return *[aten.abs.default(u) for u in some(users(d))]
  replace: |
    y = aten.maximum.default(aten.neg.default(x), x)
    return aten.neg.default(aten.neg.default(aten.neg.default(aten.neg.default(y))))
"""
    (verdict,) = check_book(book_of(rule), trials=20).rules
    assert [one.code for one in verdict.found if one.severity == "error"] == ["EK268"]
    assert check_book(book_of(f"{rule}  keep: [d]\n"), trials=20).is_accepted
    assert check_book(book_of(rule.replace("some(users(d))", "users(d)")), trials=20).is_accepted


def test_trials_draw_several_users() -> None:
    for rule in (FACTORS, ALIKE):
        trials = RuleTrials(book_of(rule).rules[0])
        drawn = [len(one.expected) for number in range(1, 60) if (one := trials.trial(number)[0]) is not None]
        assert set(drawn) >= {1, 2, 3}


@pytest.mark.parametrize(("text", "message"), [
    ("*[aten.relu.default(u) for u in users([x])]", "users are those of a variable or a call"),
    ("*[aten.relu.default(u) for u in users(x) if u]", "has no `if`"),
    ("*[aten.mul.Tensor(u, k) for u, k in users(x)]", "2 names for 1 values"),
    ("*[aten.relu.default(x) for u in users(x)]", "does not use 'u'"),
    ("*[aten.relu.default(u) for u in some(x)]", "users has the name of a value"),
    ("*[aten.mul.Tensor(u, _) for u in users(x)]", "cannot stand in a comprehension"),
    ("*[aten.mul.Tensor(u, k) for u, k in zip(users(x), x)]", "x is not a list"),
])  # fmt: skip
def test_wrong_patterns(text: str, message: str) -> None:
    found = book_of(f"  vars: {{x: 'f32 [*S]'}}\n  match: return {text}\n  replace: return x\n").found
    assert any(message in one.message for one in found), [one.message for one in found]


def test_python_form_is_the_same_rule() -> None:
    loaded = python_rules.ADDITIONS.load()
    assert not loaded.found
    (rule,) = (one for one in loaded.rules if one.id == "simplify.neg-of-every-user")
    assert rule.pattern == book_of(FACTORS).rules[0].pattern


# Nothing changes but that no two users share a value any more.
OWN = """  vars: {x: 'f32 [*S]', ws: 'list of f32 [*S]'}
  match: |
    d = aten.neg.default(x)
    return *[aten.mul.Tensor(u, w) for u, w in zip(users(d), ws)]
  replace: |
    own = [aten.neg.default(x) for w in ws]
    return *[aten.mul.Tensor(u, w) for u, w in zip(own, ws)]
"""
SHARED = (
    OWN.replace("own = [aten.neg.default(x) for w in ws]", "one = aten.neg.default(x)")
    .replace("for u, w in zip(own, ws)", "for w in ws")
    .replace("aten.mul.Tensor(u, w) for w", "aten.mul.Tensor(one, w) for w")
)


def scaled(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = x.neg()
    return z * y, z * x, z * y.exp()


def test_a_value_of_its_own_for_each_user_is_something_new() -> None:
    times, program = rewritten(book_of(OWN), scaled, X, X)
    assert (times, names(program, "neg")) == (1, 3)


def test_what_shares_one_value_as_before_is_nothing_new() -> None:
    assert fired(book_of(SHARED), scaled, X, X) == 0
