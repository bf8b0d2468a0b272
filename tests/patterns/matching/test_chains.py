"""Chains in patterns: any number of calls of some operators, made on another value by the replacement."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from tests.patterns.engine_runs import Whole, book_of, fired, rewritten
from tests.patterns.syntax import python_rules

from exirkit.ir import GraphEditor, OpOverload
from exirkit.patterns import RuleEngine, check_book, explain_rule, parse_book
from exirkit.patterns.checking.near_misses import NearMisses
from exirkit.patterns.checking.trials.rule_trials import RuleTrials
from exirkit.patterns.operators.links import drawn_link, reason_against
from exirkit.patterns.operators.table import FAMILIES
from exirkit.patterns.types.scalars import family_members

RELU = """  vars: {x: 'f32 [*S]'}
  match: |
    l = aten.relu.default(x)
    v = chain(l, [OPS]USERS)
    return aten.relu.default(v)
  replace: return along(v, aten.relu.default(x))
"""
MOVES = "aten.view_copy.default, aten.permute_copy.default, aten.slice_copy.Tensor"
X = torch.randn(2, 3, 4)
STEPS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x.permute(2, 0, 1), lambda x: x.reshape(4, 6), lambda x: x[1:3], lambda x: x.permute(1, 0),
]  # fmt: skip


def rule_of(ops: str = MOVES, users: str = ", users=1") -> str:
    return RELU.replace("OPS", ops).replace("USERS", users)


def moved(x: torch.Tensor, count: int) -> torch.Tensor:
    for step in STEPS[:count]:
        x = step(x)
    return x


@pytest.mark.parametrize("count", [0, 1, 2, 4])
@pytest.mark.parametrize("is_edge", [True, False])
def test_chains_of_any_length(count: int, is_edge: bool) -> None:
    times, program = rewritten(book_of(rule_of()), lambda x: moved(x.relu(), count).relu(), X, is_edge=is_edge)
    assert times == 1
    assert sum("relu" in str(node.target) for node in program.graph.nodes) == 1


def test_a_link_of_another_operator_ends_the_chain() -> None:
    assert fired(book_of(rule_of()), lambda x: x.relu().reshape(4, 6).neg().permute(1, 0).relu(), X) == 0
    assert fired(book_of(rule_of("aten.view_copy.default")), lambda x: x.relu().permute(2, 0, 1).relu(), X) == 0


@pytest.mark.parametrize(("users", "fires"), [("", 1), (", users=1", 0)])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_value_that_others_use_ends_a_private_chain(users: str, fires: int, at: int) -> None:
    def shared(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values = [x.relu()]
        values.append(values[-1].permute(2, 0, 1))
        values.append(values[-1].reshape(4, 6))
        return values[-1].relu(), values[at].exp()

    # Without the condition links are made a second time, as other values that move data are.
    assert fired(book_of(rule_of(users=users)), shared, X) == fires


def test_the_longest_chain_is_taken_from_a_variable() -> None:
    rule = """  vars: {x: 'f32 [*S]'}
  match: |
    v = chain(x, [aten.view_copy.default, aten.permute_copy.default], users=1)
    return aten.exp.default(v)
  where: {expr: links(v) > 0, kind: profit}
  replace: return along(v, aten.exp.default(x))
"""
    times, program = rewritten(book_of(rule), lambda x: x.permute(2, 0, 1).reshape(4, 6).permute(1, 0).exp(), X)
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    assert times == 1
    assert "exp" in str(calls[0].target)
    assert fired(book_of(rule), lambda x: x.exp(), X) == 0


def test_sizes_may_vary() -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    function = Whole(lambda x: x.relu().permute(2, 0, 1).reshape(4, -1).relu())
    program = torch.export.export(function, (X,), dynamic_shapes=(({0: rows},),))
    (rule,) = book_of(rule_of()).rules
    editor = GraphEditor(program)
    report = RuleEngine([rule]).run(editor)
    for given in (X, torch.randn(7, 3, 4)):
        torch.testing.assert_close(editor.program.module()(given), function(given))
    assert len(report.journal) <= 1


@pytest.mark.parametrize("ops", [MOVES, "copy_like", f"{MOVES}, aten.flip.default, aten.expand_copy.default"])
def test_right_rules_are_accepted(ops: str) -> None:
    verdict = check_book(book_of(rule_of(ops)), trials=60)
    assert verdict.is_accepted, [one.render() for each in verdict.rules for one in each.found]


@pytest.mark.parametrize("rule", [
    rule_of(f"{MOVES}, aten.neg.default"),
    rule_of().replace("along(v, aten.relu.default(x))", "aten.relu.default(x)"),
    rule_of().replace("along(v, aten.relu.default(x))", "along(v, along(v, aten.relu.default(x)))"),
    rule_of().replace("along(v, aten.relu.default(x))", "along(v, x)"),
])  # fmt: skip
def test_wrong_rules_are_rejected(rule: str) -> None:
    verdict = check_book(book_of(rule), trials=100)
    assert not verdict.is_accepted


LIMITED = """rulebook: 1
attributes:
  act: {lo: float, hi: float, key: LIMITS, means: "aten.clamp.default(result, lo, hi)"}
rules:
- id: abs-above
  vars: {x: "f32 [*S]"}
  match: |
    v = chain(x, [aten.view_copy.default, aten.permute_copy.default], users=1)
    return aten.abs.default(v)
  where: {expr: links(v) > 0, kind: profit}
  replace: return along(v, aten.abs.default(x))
"""


def outcomes(rule: str) -> dict[str, tuple[str, str | None]]:
    trials = RuleTrials(book_of(rule).rules[0])
    return {one.text: (one.outcome, one.instead) for one in NearMisses(trials).all() if one.what in ("chain", "users")}


def test_a_link_of_another_operator_and_another_user_are_near_misses() -> None:
    assert outcomes(rule_of()) == {
        "v: operators of the links": ("witness", "aten.neg.default as link 1 of 1"),
        "v: users=1": ("witness", "returned as well"),
    }
    assert set(outcomes(rule_of(users=""))) == {"v: operators of the links"}


def test_operators_that_make_no_difference_are_reported() -> None:
    rule = """  vars: {x: 'f32 []'}
  match: |
    v = chain(x, [aten.abs.default, aten.relu.default])
    return aten.view_copy.default(aten.ones_like.default(v, dtype=f32), [1])
  replace: return aten.view_copy.default(aten.ones_like.default(x, dtype=f32), [1])
"""
    assert outcomes(rule) == {"v: operators of the links": ("none", None)}
    (usual,), (strict,) = (check_book(book_of(rule), trials=20, is_strict=one).rules for one in (False, True))
    assert [one.severity for one in usual.found if one.code == "EK267"] == ["warning"]
    assert [one.severity for one in strict.found if one.code == "EK267"] == ["error"]


def test_attributes_of_links_are_tried() -> None:
    # A rule that hands them on past the root is wrong for those of links, which no other call here has.
    assert check_book(parse_book(LIMITED, "book.yaml"), trials=60).is_accepted
    (verdict,) = check_book(parse_book(f"{LIMITED}  keep: {{act: first}}\n", "book.yaml"), trials=60).rules
    notes = [note for one in verdict.found if one.code == "EK240" for note in one.notes]
    assert any(note.startswith("act of link") for note in notes), verdict.found
    guarded = LIMITED.replace("where: {", 'where: ["no(v, act)", {').replace("profit}", "profit}]")
    (rule,) = parse_book(guarded, "book.yaml").rules
    found = {one.text: one.outcome for one in NearMisses(RuleTrials(rule)).all()}
    assert found["no(v, act)"] == "witness"


def test_reports_name_the_links() -> None:
    (verdict,) = check_book(book_of(rule_of("aten.neg.default")), trials=60).rules
    assert any("links of v: aten.neg.default()" in note for one in verdict.found for note in one.notes)


def test_trials_draw_chains_of_none_to_three() -> None:
    (rule,) = book_of(rule_of()).rules
    trials = RuleTrials(rule)
    drawn = [found.names["v.links"] for number in range(1, 60) if (found := trials.trial(number)[0]) is not None]
    assert {len(one) for one in drawn} == {0, 1, 2, 3}
    again = RuleTrials(rule).trial(7)[0]
    first = trials.trial(7)[0]
    assert again is not None
    assert first is not None
    assert again.names["v.links"] == first.names["v.links"]


def test_drawn_links_can_be_called() -> None:
    rng = random.Random(0)
    shapes = [(), (1,), (0, 3), (2, 3, 4), (1, 5, 1)]
    members = [op for name in FAMILIES for op in family_members((name,)) if isinstance(op, OpOverload)]
    usable = [op for op in dict.fromkeys(members) if reason_against(op) is None]
    assert len(usable) > 30
    called = 0
    for op in usable:
        for shape in shapes:
            link = drawn_link(op, torch.randn(shape), rng)
            if link is None:
                continue
            try:
                link.op(torch.randn(shape), *link.args)
                called += 1
            except (RuntimeError, IndexError):
                # What an operator does not take is drawn again in another trial.
                continue
    assert called > 3 * len(usable)


@pytest.mark.parametrize(("text", "message"), [
    ("chain(l, [aten.mm.default])", "aten.mm.default cannot be a link of a chain: it does not have one tensor"),
    ("chain(l, [aten.sum.dim_IntList])", "trials cannot draw its argument 'dim'"),
    ("chain(l, [aten.relu_.default])", "it writes to its argument"),
    ("chain(l, [aten.split_copy.Tensor])", "cannot be a link of a chain"),
    ("chain(l)", "chain has a value, a list of operators"),
    ("chain(l, [aten.view_copy.default], users=2)", "says `users=1`, or nothing"),
    ("chain(l, [])", "a chain has no operators"),
    ("chain([l], [aten.view_copy.default])", "a chain begins at a call or a variable"),
    ("chain(l, [x])", "no operator"),
])  # fmt: skip
def test_wrong_chains(text: str, message: str) -> None:
    rule = rule_of().replace(f"chain(l, [{MOVES}], users=1)", text)
    found = book_of(rule).found
    assert any(message in one.message for one in found) or (message == "no operator" and found), found


def test_chains_have_names() -> None:
    rule = """  vars: {x: 'f32 [*S]'}
  match: return aten.relu.default(chain(aten.relu.default(x), [aten.view_copy.default]))
  replace: return x
"""
    assert [one.message for one in book_of(rule).found] == ["a chain without a name"]
    other = rule_of().replace("along(v, aten", "along(l, aten")
    assert any("l is not a chain" in one.message for one in book_of(other).found)


def test_python_form_is_the_same_rule() -> None:
    loaded = python_rules.ADDITIONS.load()
    assert not loaded.found
    assert fired(loaded, lambda x: x.relu().permute(2, 0, 1).reshape(4, 6).relu(), X) == 1


def test_explanation_of_another_beginning() -> None:
    (rule,) = book_of(rule_of()).rules
    program = torch.export.export(Whole(lambda x: x.exp().permute(2, 0, 1).relu()), (X,))
    (node,) = explain_rule(rule, GraphEditor(program)).nodes
    assert node.mismatch is not None
    assert node.mismatch.expected == "aten.relu.default"
    assert "aten.exp.default" in node.mismatch.found or "aten.permute" in node.mismatch.found
