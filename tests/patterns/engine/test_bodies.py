"""Rules about calls of control flow: what matches, what the programs compute then, and what is kept back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.patterns.exported_programs import Computes
from torch._higher_order_ops.map import map as _map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.export import ExportedProgram

from exirkit import to_edge
from exirkit.ir import GraphEditor, copy_program
from exirkit.patterns import (
    CompiledRule,
    RuleEngine,
    check_book,
    explain_rule,
    load_book,
    parse_book,
    shipped_witnesses,
)

map_rows: Any = _map_rows
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
CONTROL = load_book("control").require_valid().rules


class _Numbers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("yes", torch.tensor(True))
        self.register_buffer("no", torch.tensor(False))
        self.register_buffer("w", torch.full((4,), 1.5))


def rewritten(function: Callable[..., Any], *rules: str, given: Any = CONTROL) -> tuple[ExportedProgram, list[str]]:
    """Return a program after rules of a book, which must compute what it did, and the rules that were applied."""
    module = Computes(function, n=_Numbers())
    before = torch.export.export(module, (X,), strict=False)
    program = copy_program(before)
    chosen = [rule for rule in given if not rules or rule.id.partition(".")[2] in rules]
    assert chosen
    report = RuleEngine(chosen).run(GraphEditor(program))
    for x in (X, -X, X * 0):
        torch.testing.assert_close(program.module()(x), before.module()(x), rtol=0, atol=0, equal_nan=True)
    assert program.module()(X) is not None
    copied = copy_program(program)
    torch.testing.assert_close(copied.module()(X), before.module()(X), rtol=0, atol=0)
    return program, [one.rule.partition(".")[2] for one in report.journal]


def calls(program: ExportedProgram, name: str) -> int:
    return sum(
        name in str(node.target)
        for module in program.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
        if node.op == "call_function"
    )


def branches(m: Any, x: torch.Tensor, p: Any = None, *, same: bool = False) -> Any:
    second = (lambda x, y: x.sin() * y) if same else (lambda x, y: x.cos() - y)
    return torch.cond(x.sum() > 0 if p is None else p, lambda x, y: x.sin() * y, second, (x, m.n.w))


@pytest.mark.parametrize("flag", ["yes", "no"])
def test_a_known_predicate_leaves_one_branch(flag: str) -> None:
    program, applied = rewritten(lambda m, x: branches(m, x, getattr(m.n, flag)), "constant-predicate")
    assert applied == ["constant-predicate"]
    assert not calls(program, "cond")
    assert not list(program.graph.find_nodes(op="get_attr"))
    assert not [one for _, one in program.graph_module.named_children() if isinstance(one, torch.fx.GraphModule)]


def test_an_unknown_predicate_stays() -> None:
    assert rewritten(branches, "constant-predicate")[1] == []


def test_equal_branches_become_one_and_others_do_not() -> None:
    assert rewritten(lambda m, x: branches(m, x, same=True), "equal-branches")[1] == ["equal-branches"]
    assert rewritten(branches, "equal-branches")[1] == []


def test_branches_that_differ_in_a_number_are_others() -> None:
    def function(m: Any, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x.sin() + 1, lambda x: x.sin() + 2, (x,))

    assert rewritten(function, "equal-branches")[1] == []


def test_operands_are_told_apart() -> None:
    def function(m: Any, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x, y: x - y, lambda x, y: y - x, (x, x.sin()))

    assert rewritten(function, "equal-branches")[1] == []


def test_what_both_branches_begin_and_end_with_is_computed_outside() -> None:
    def function(m: Any, x: torch.Tensor) -> Any:
        return torch.cond(
            x.sum() > 0, lambda y, x: (x.tanh() * y).relu(), lambda y, x: (x.tanh() - y).relu(), (m.n.w, x)
        )

    program, applied = rewritten(function, "common-operand", "common-result")
    assert sorted(applied) == ["common-operand", "common-result"]
    assert (calls(program, "tanh"), calls(program, "relu")) == (1, 1)


def test_an_operand_that_a_branch_also_reads_stays() -> None:
    def function(m: Any, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x.tanh() * x, lambda x: x.tanh() - 1, (x,))

    assert rewritten(function, "common-operand")[1] == []


def test_branches_that_end_in_another_operator_stay() -> None:
    def function(m: Any, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x.exp().relu(), lambda x: x.exp().tanh(), (x,))

    assert rewritten(function, "common-result")[1] == []


def loop(m: Any, x: torch.Tensor) -> Any:
    def turn(i: torch.Tensor, y: torch.Tensor, k: torch.Tensor, u: torch.Tensor) -> Any:
        return i + 1, y * m.n.w.sigmoid() + k, k.clone(), u * 2

    found = while_loop(lambda i, y, k, u: i < 3, turn, (torch.zeros((), dtype=torch.int64), x, x.sin(), x.cos()))
    return found[1], found[2]


def test_loops_carry_what_changes_and_is_used() -> None:
    program, applied = rewritten(loop)
    assert sorted(applied) == ["carried-invariant", "loop-invariant", "unused-carried"]
    (call,) = (node for node in program.graph.nodes if "while_loop" in str(node.target) and node.op == "call_function")
    assert len(call.args[2]) == 2
    assert calls(program, "sigmoid") == 1
    body = getattr(program.graph_module, call.args[1].target)
    assert not any("sigmoid" in str(node.target) for node in body.graph.nodes)


def test_what_the_condition_reads_is_carried_on() -> None:
    def function(m: Any, x: torch.Tensor) -> Any:
        start = torch.zeros((), dtype=torch.int64)
        return while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2), (start, x))[1]

    assert rewritten(function, "unused-carried")[1] == []


def test_rows_of_an_elementwise_operator_are_the_operator() -> None:
    program, applied = rewritten(lambda m, x: map_rows(torch.tanh, x), "map-of-pointwise")
    assert applied == ["map-of-pointwise"]
    assert not calls(program, "map_impl")
    assert rewritten(lambda m, x: map_rows(lambda y: y.softmax(0), x), "map-of-pointwise")[1] == []


def rules(text: str) -> tuple[CompiledRule, ...]:
    return tuple(parse_book(f"rulebook: 1\nrules:\n{text}").require_valid().rules)


def test_new_bodies_store_what_they_need() -> None:
    given = rules("""
- id: made.doubled
  vars: {p: "bool []", g: body, x: "f32 [*S]"}
  match: |
    return *higher_order.cond(p, lambda v: [aten.sin.default(v)], lambda v: g(v), [x])
  replace: |
    return *higher_order.cond(
        p, lambda v: [aten.cos.default(aten.sub.Tensor(v, full([], 1.5, f32)))], lambda v: g(v), [x])
""")
    module = Computes(lambda m, x: torch.cond(x.sum() > 0, torch.sin, torch.exp, (x,)), n=_Numbers())
    program = torch.export.export(module, (X,), strict=False)
    assert RuleEngine(given).run(GraphEditor(program)).journal
    for x in (X.abs(), -X.abs()):
        wanted = (x - 1.5).cos() if x.sum() > 0 else x.exp()
        torch.testing.assert_close(program.module()(x), wanted)


def test_a_scan_is_matched_with_what_it_carries_in_any_order() -> None:
    given = rules("""
- id: scan.unused
  vars: {a: "any [*S]", rest: operands, xs: operands, hs: operands, f: body, g: body like a}
  match: |
    _, *others = higher_order.scan(lambda x, *v: [g(x, *v), *f(*v)], [a, *rest], xs, hs)
    return *others
  where: [{expr: "len(rest) >= 1", kind: target}]
  replace: return *higher_order.scan(f, rest, xs, hs)
""")

    def function(m: Any, x: torch.Tensor) -> Any:
        def turn(carry: Any, row: torch.Tensor) -> Any:
            return (carry[0] + row, carry[1] * 2), row - carry[0]

        (total, _), rows = scan(turn, (x[0], x[1]), x)
        return total, rows

    program, applied = rewritten(function, given=given)
    assert applied == ["unused"]
    (call,) = (node for node in program.graph.nodes if node.op == "call_function" and "scan" in str(node.target))
    assert len(call.args[1]) == 1


NUMBER = """
- id: made.number
  vars: {p: "bool []", g: body, x: "f32 [*S]"}
  match: |
    return *higher_order.cond(p, lambda v: [aten.mul.Tensor(v, 2.5)], g, [x])
  replace: |
    return *higher_order.cond(p, lambda v: [aten.add.Tensor(v, 7.5)], lambda v: g(v), [x])
"""


@pytest.mark.parametrize("is_edge", [False, True])
def test_numbers_of_bodies_are_numbers_also_where_they_are_operands(is_edge: bool) -> None:
    def function(m: Any, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x * 2.5, lambda x: x * 4.5 - x * 1.5, (x,))

    program = torch.export.export(Computes(function, n=_Numbers()), (X,), strict=False)
    program = to_edge(program).exported_program() if is_edge else program
    assert [one.rule for one in RuleEngine(rules(NUMBER)).run(GraphEditor(program)).journal] == ["made.number"]
    x = X.abs()
    torch.testing.assert_close(program.module()(x), x + 7.5)
    torch.testing.assert_close(program.module()(-x), -x * 3)


def asked(m: Any, x: torch.Tensor) -> Any:
    return torch.cond(x.max() > 1, lambda x: x * 2.5, lambda x: x - 3.5, (x,))


def other(m: Any, x: torch.Tensor) -> Any:
    return torch.cond(x.max() > 1, lambda x: x * 2.5, lambda x: x - 4.5, (x,))


NESTED = """
- id: nested.condition-in-a-loop
  vars: {c: condition, a: "f32 [*S]", xs: operands, shared: operands, q: condition, g: body like a, f: body like xs}
  match: |
    return *higher_order.while_loop(
        c, lambda x, *v: [higher_order.cond(q(x, *v), g, g, [x])[0], *f(x, *v)], [a, *xs], shared)
  replace: |
    return *higher_order.while_loop(c, lambda x, *v: [g(x), *f(x, *v)], [a, *xs], shared)
"""


def test_control_flow_in_bodies() -> None:
    """Bodies with control flow are matched as wholes, in detail, and rewritten by themselves."""
    program, applied = rewritten(
        lambda m, x: torch.cond(m.n.yes, lambda x: asked(m, x).sin() * 2.25, lambda x: asked(m, x), (x,))
    )
    assert applied == ["constant-predicate"]
    assert calls(program, "cond") == 1
    for second, wanted in ((asked, ["equal-branches"]), (other, [])):
        function = lambda m, x: torch.cond(x.sum() > 0, lambda x: asked(m, x), lambda x: second(m, x), (x,))  # noqa: B023, E731
        assert rewritten(function, "equal-branches")[1] == wanted

    def turns(m: Any, x: torch.Tensor) -> Any:
        def turn(i: torch.Tensor, y: torch.Tensor) -> Any:
            return i + 1, torch.cond(y.sum() > i, lambda y: y.tanh() * 1.5, lambda y: y.tanh() * 1.5, (y,))

        return while_loop(lambda i, y: i < 3, turn, (torch.zeros((), dtype=torch.int64), x))[1]

    program, applied = rewritten(turns, given=rules(NESTED))
    assert applied == ["condition-in-a-loop"]
    assert (calls(program, "cond"), calls(program, "tanh")) == (0, 1)
    program, applied = rewritten(turns, "equal-branches")
    assert applied == ["equal-branches"]
    assert not calls(program, "cond")
    # What the rule forgets there is found as elsewhere.
    wrong = NESTED.replace("q(x, *v), g, g, [x]", "q(x, *v), g, h, [x]").replace("g: body", "h: body like a, g: body")
    verdict = check_book(parse_book(f"rulebook: 1\nrules:\n{wrong}"), trials=4)
    assert "EK240" in [one.code for rule in verdict.rules for one in rule.found if one.severity == "error"]


def also(m: Any, x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.tanh() * x, lambda x: x.tanh() - 1, (x,))


def draws(m: Any, x: torch.Tensor) -> Any:
    return torch.cond(m.n.yes, lambda x: x + torch.rand(4), lambda x: x - 1, (x,))


EXPLAINED = [
    ("equal-branches", branches, "repeated", "f again, which is aten.sin.default, aten.mul.Tensor", "aten.cos.default"),
    ("common-operand", also, "body", "f reads all that it is given here, and nothing else", "%args_0, an input"),
    ("constant-predicate", draws, "effects", "bodies without effects", "%cond"),
    ("number", branches, "list", "as many operands as the pattern names", "[%args_0, %b_n_w]"),
    ("number", lambda m, x: torch.cond(x.sum() > 0, lambda x: x * 3.5, torch.exp, (x,)), "literal", "2.5", "3.5"),
    ("condition-in-a-loop", loop, "result", "result 0 of a call", "%add_1, aten.add.Tensor"),
]


def test_what_stops_a_match_in_a_body_is_explained() -> None:
    known = {rule.id.partition(".")[2]: rule for rule in (*CONTROL, *rules(NUMBER), *rules(NESTED))}
    for name, function, kind, expected, found in EXPLAINED:
        program = torch.export.export(Computes(function, n=_Numbers()), (X,), strict=False)
        explanation = explain_rule(known[name], GraphEditor(program))
        assert (explanation.tried, explanation.firing) == (1, 0)
        mismatch = explanation.nodes[0].mismatch
        assert mismatch is not None
        assert (mismatch.kind, mismatch.expected) == (kind, expected)
        assert mismatch.found.startswith(found), mismatch


def test_effects_keep_bodies_as_they_are() -> None:
    def function(m: Any, x: torch.Tensor) -> Any:
        return torch.cond(m.n.yes, lambda x: x + torch.rand(4), lambda x: x - 1, (x,))

    module = Computes(function, n=_Numbers())
    program = torch.export.export(module, (X,), strict=False)
    assert not RuleEngine(CONTROL).run(GraphEditor(program)).journal


WRONG = {
    "swapped": (
        "const bool []", "return *higher_order.cond(p, f, g, xs)", "return *higher_order.cond(p, g, f, xs)", "EK240"
    ),
    "one": ("bool []", "return *higher_order.cond(p, f, g, xs)", "return *f(*xs)", "EK240"),
    "outside": (
        "bool []", "return *higher_order.cond(p, lambda *v: [aten.neg.default(p)], f, [*xs])", "return *g(*xs)", "EK238"
    ),
    "spread": ("bool []", "return *higher_order.cond(p, lambda *v: f(v), g, xs)", "return *g(*xs)", "EK238"),
    "applied": ("bool []", "return aten.logical_not.default(f(p))", "return *g(*xs)", "EK238"),
    "default": ("bool []", "return *higher_order.cond(p, lambda x=1: f(x), g, xs)", "return *g(*xs)", "EK211"),
    "nested": (
        "bool []",
        "return *higher_order.cond("
        "p, lambda x: [higher_order.cond(f(x), lambda: [aten.sin.default(x)], g, [])[0]], g, xs)",
        "return *g(*xs)", "EK238",
    ),
    "missing": ("bool []", "return *higher_order.cond(p, f, xs)", "return *f(*xs)", "EK214"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(WRONG))
def test_wrong_rules_are_rejected(name: str) -> None:
    predicate, match, replacement, code = WRONG[name]
    text = f"""
rulebook: 1
rules:
- id: wrong.{name}
  vars: {{p: "{predicate}", f: body, g: body, xs: operands}}
  match: |
    {match}
  replace: |
    {replacement}
"""
    verdict = check_book(parse_book(text), trials=8)
    found = [*verdict.found, *(one for rule in verdict.rules for one in rule.found)]
    assert code in [one.code for one in found if one.severity == "error"]


def test_what_may_be_read_after_all_is_found() -> None:
    text = """
rulebook: 1
rules:
- id: needless.restriction
  vars: {p: "bool []", a: "f32 [*S]", f: body, xs: operands, g: body}
  match: |
    return *higher_order.cond(p, lambda x, *v: f(*v), lambda x, *v: g(x, *v), [a, *xs])
  replace: |
    return *higher_order.cond(aten.logical_not.default(p), lambda x, *v: g(x, *v), lambda x, *v: f(*v), [a, *xs])
"""
    verdict = check_book(parse_book(text), trials=8)
    (misses,) = (rule.near_misses for rule in verdict.rules)
    (reading,) = (one for one in misses if one.what == "body")
    assert reading.text == "f reads no x"
    assert reading.witness is not None


def test_the_shipped_book_is_accepted_with_its_witnesses() -> None:
    verdict = check_book(load_book("control"), trials=5, witnesses=shipped_witnesses("control"), is_fast=True)
    assert verdict.is_accepted
    assert len(verdict.rules) == 8
