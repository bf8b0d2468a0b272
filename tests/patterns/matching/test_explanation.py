"""Why a rule fires or not: every kind of mismatch, with its place, and nothing of it in the engine's own matcher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.patterns.exported_programs import exported, targets
from tests.patterns.rule_files import book

from exirkit.ir import GraphEditor, UsageError, copy_program
from exirkit.patterns import NodeExplanation, RuleEngine, explain_rule, parse_book, shipped_books
from exirkit.patterns.engine.application import RuleApplication
from exirkit.patterns.engine.program_facts import ProgramFacts
from exirkit.program import to_edge

SILU = """
  vars: {x: "f32 [*S]"}
  match: return aten.mul.Tensor(x, aten.sigmoid.default(x))
  replace: return aten.silu.default(x)
"""
BIAS = """
  vars: {x: "f32 [N, K]", b: "const f32 [K]"}
  match: |
    y = aten.relu.default(x)
    return aten.add.Tensor(y, b)
  where: ["K % 4 == 0", {expr: "shape(x) == [4, 4]", why: "tiles are square"}]
  replace: return aten.add.Tensor(b, aten.relu.default(x))
"""
DIMS = """
  vars: {x: "f32 [N, K]"}
  match: return aten.sum.dim_IntList(aten.abs.default(x), [0])
  replace: return aten.sum.dim_IntList(x, [0])
"""
SOFTMAX = """
  vars: {x: "f32 [N, K]"}
  match: return aten._softmax.default(x, -1, False)
  replace: return aten._softmax.default(x, 1, False)
"""
CONSTANTS = """
  vars: {x: "f32 [*S]", c: "float in [0.0, 1.0]"}
  match: return aten.leaky_relu.default(x, c)
  replace: return aten.relu.default(x)
"""
ALTERNATIVES = """
  vars: {x: "f32 [*S]"}
  match: return aten.neg.default(alt(a=aten.sin.default(x), b=aten.cos.default(x)))
  replace: return aten.abs.default(x)
"""
SHARED = """
  vars: {x: "f32 [*S]"}
  match: return aten.neg.default(aten.sin.default(x))
  replace: return aten.abs.default(aten.cos.default(aten.exp.default(x)))
"""
UNLESS = """
  vars: {x: "f32 [*S]"}
  match: |
    return aten.neg.default(aten.sin.default(x))
  unless: ["return aten.neg.default(aten.cos.default(x))", "return aten.neg.default(_)"]
  replace: return aten.abs.default(x)
"""
CASES = """
  vars: {x: "f32 [*S]"}
  match: return aten.neg.default(x)
  replace: [{when: "rank(x) == 7", replace: "return aten.abs.default(x)"}]
"""
DOUBLE = """
  vars: {x: "f32 [*S]", y: "=x [*S]"}
  match: return aten.atan2.default(x, y)
  replace: return aten.mul.Tensor(x, y)
"""
SPLIT = """
  vars: {x: "f32 [*S]"}
  match: |
    y = aten.topk.default(x, 1)
    return y[0]
  replace: return aten.abs.default(x)
"""

ones = torch.ones


def used_twice(_: Any, x: torch.Tensor) -> Any:
    y = x.sin()
    return -y, y.cos()


def both_results(_: Any, x: torch.Tensor) -> Any:
    values, indices = torch.topk(x, 1)
    return values + 1, indices


CASES_OF_MISMATCHS: list[tuple[str, Callable[..., Any], tuple[torch.Tensor, ...], str, str, str, str]] = [
    # rule, program, inputs, kind, part of expected, part of found, text under the caret
    (SILU, lambda _, x: x * x.relu(), (ones(2, 3),), "operator", "aten.sigmoid.default", "%relu, aten.relu.default",
     "aten.sigmoid.default(x)"),
    (ALTERNATIVES, lambda _, x: -x.abs(), (ones(2),), "operator", "aten.sin.default or aten.cos.default", "%abs_1",
     "aten.sin.default(x)"),
    (SILU, lambda _, x: x.sin() * x.sigmoid(), (ones(2),), "repeated", "x again, which is %sin", "an input, f32 [2]",
     "x"),
    (SILU, lambda _, x: x * x.sigmoid(), (ones(2).double(),), "dtype", "f32 [*S]", "f64 [2]", "f32 [*S]"),
    (DOUBLE, lambda _, x, y: torch.atan2(x, y), (ones(2), ones(2).double()), "dtype", "f32, the dtype of x", "f64 [2]",
     "=x [*S]"),
    (DOUBLE, lambda _, x, y: torch.atan2(x, y), (ones(2), ones(1)), "shape", "y: [*S]", "f32 [1]", "=x [*S]"),
    (BIAS, lambda _, x: x.relu() + ones(5), (ones(1, 4, 5),), "shape", "x: [N, K]", "f32 [1, 4, 5]", "f32 [N, K]"),
    (BIAS, lambda _, x: x.relu() + x[0], (ones(4, 4),), "qualifier", "const f32 [K]", "%select", "const f32 [K]"),
    (BIAS, lambda _, x: x.relu() + ones(3), (ones(2, 3),), "guard", "(tiles are square)", "does not hold",
     "shape(x) == [4, 4]"),
    (BIAS, lambda _, x: torch.add(x.relu(), ones(4), alpha=2), (ones(4, 4),), "default", "1, the default", "2",
     "aten.add.Tensor(y, b)"),
    (DIMS, lambda _, x: x.abs().sum(1), (ones(2, 3),), "literal", "0", "1", "0"),
    (SOFTMAX, lambda _, x: x.softmax(0), (ones(2, 3),), "literal", "-1", "0", "-1"),
    (CONSTANTS, lambda _, x: torch.nn.functional.leaky_relu(x, 2.0), (ones(2),), "type", "float in [0.0, 1.0]", "2.0",
     "float in [0.0, 1.0]"),
    (SHARED, used_twice, (ones(2),), "users", "all users of it inside", "%sin, aten.sin.default, f32 [2], with 2 users",
     "aten.sin.default(x)"),
    (SPLIT, both_results, (ones(2, 3),), "users", "all users of it", "[f32 [2, 1], i64 [2, 1]]",
     "aten.topk.default(x, 1)"),
    (UNLESS, lambda _, x: -x.sin(), (ones(2),), "unless", "no match of it", "%neg", "return aten.neg.default(_)"),
    (CASES, lambda _, x: -x, (ones(2),), "replacement", "can stand there", "no case applies", "return aten.abs"),
]  # fmt: skip


def explained(
    rule: str, program: Callable[..., Any], *inputs: torch.Tensor, node: str | None = None, keep: tuple[Any, ...] = ()
) -> tuple[list[NodeExplanation], GraphEditor]:
    book = parse_book(f"rulebook: 1\nrules:\n- id: it{rule}", "book.yaml").require_valid()
    editor = exported(program, *inputs, keep=keep)
    before = [(one.name, one.target, one.args) for one in editor.graph.nodes]
    found = explain_rule(book.rules[0], editor, node).nodes
    assert [(one.name, one.target, one.args) for one in editor.graph.nodes] == before
    return list(found), editor


@pytest.mark.parametrize(
    ("rule", "program", "inputs", "kind", "expected", "found", "caret"),
    CASES_OF_MISMATCHS,
    ids=[f"{index}-{case[3]}" for index, case in enumerate(CASES_OF_MISMATCHS)],
)
def test_mismatch(
    rule: str, program: Any, inputs: tuple[torch.Tensor, ...], kind: str, expected: str, found: str, caret: str
) -> None:
    explanations, editor = explained(rule, program, *inputs)
    one = explanations[0]
    assert not one.fires
    mismatch = one.mismatch
    assert mismatch is not None
    assert (mismatch.kind, expected in mismatch.expected, found in mismatch.found) == (kind, True, True), mismatch
    place = one.diagnostic().location
    assert place.text is not None
    assert place.column is not None
    assert place.span is not None
    assert place.text[place.column - 1 : place.column - 1 + place.span].startswith(caret)
    # The engine agrees.
    book = parse_book(f"rulebook: 1\nrules:\n- id: it{rule}").require_valid()
    assert not RuleEngine(book.rules).run(editor).journal


def test_a_rule_that_fires_is_shown_with_what_it_makes() -> None:
    (one,), editor = explained(SILU, lambda _, x: x * x.sigmoid(), ones(2, 3))
    assert one.fires
    assert (one.made, one.matched) == (("aten.silu.default",), ("mul", "sigmoid"))
    assert one.bindings["S"] == "[2, 3]"
    assert targets(editor.program) == ["sigmoid", "mul"]


def test_all_conditions_that_fail_and_their_values_are_told() -> None:
    (one,), _ = explained(BIAS, lambda _, x: x.relu() + ones(3), ones(2, 3))
    assert one.mismatch is not None
    assert one.mismatch.values["shape(x)"] == "[2, 3]"
    assert one.mismatch.also == ("K % 4 == 0",)
    assert "it comes from" in one.diagnostic().render()


def test_the_way_that_gets_furthest_counts() -> None:
    # The second order of the operands gets further than the first, in which nothing fits.
    (one,), _ = explained(DOUBLE_PRODUCT, lambda _, x, y: x.sin() * y.cos().abs(), ones(2), ones(2))
    assert one.mismatch is not None
    assert (one.mismatch.expected, one.mismatch.found) == ("aten.exp.default", "%cos, aten.cos.default, f32 [2]")


DOUBLE_PRODUCT = """
  vars: {x: "f32 [*S]", y: "f32 [*S]"}
  match: return aten.mul.Tensor(aten.abs.default(aten.exp.default(x)), aten.sin.default(y))
  replace: return aten.mul.Tensor(x, y)
"""


def test_nodes_that_get_furthest_are_listed() -> None:
    def program(_: Any, x: torch.Tensor) -> Any:
        return x * x.relu(), x * x.sigmoid(), x.abs() * x.sigmoid(), x.cos() * x.sin()

    found, _ = explained(SILU, program, ones(2))
    assert [(one.node, one.fires) for one in found] == [("mul_1", True), ("mul_2", False)]


def test_an_inner_node_names_where_a_match_starts() -> None:
    (one,), _ = explained(SILU, lambda _, x: x * x.sigmoid(), ones(2), node="%sigmoid")
    assert one.starts == ("mul",)
    hint = one.diagnostic().hint
    assert hint is not None
    assert "%mul" in hint


def test_rules_that_are_asked_before_are_named() -> None:
    text = f"rulebook: 1\nrules:\n- id: it{SILU}- id: first\n  priority: 1{SILU}"
    book = parse_book(text).require_valid()
    editor = exported(lambda _, x: x * x.sigmoid(), ones(2))
    (one,) = explain_rule(book.rule("it"), editor, rules=book.rules).nodes
    assert one.earlier == ("first",)


@pytest.mark.parametrize(("node", "hint"), [("sigmoi", "did you mean %sigmoid?"), ("args_0", "it is used by")])
def test_no_such_call(node: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        explained(SILU, lambda _, x: x * x.sigmoid(), ones(2), node=node)
    assert error.value.code == "EK262"
    assert hint in str(error.value)


def test_symbolic_sizes_that_decide_nothing() -> None:
    class Doubled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.relu() + ones(4)

    rows = torch.export.Dim("rows", min=2, max=8)
    program = torch.export.export(Doubled(), (ones(4, 4),), dynamic_shapes=({0: rows},))
    book = parse_book(f"rulebook: 1\nrules:\n- id: it{BIAS}").require_valid()
    (one,) = explain_rule(book.rules[0], GraphEditor(program)).nodes
    assert one.mismatch is not None
    assert one.mismatch.message == "a condition cannot be decided"


class Attention(torch.nn.Module):
    """A little of everything that the shipped rules look for."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
        self.norm = torch.nn.LayerNorm(4)
        self.linear = torch.nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> Any:
        y = self.norm(self.convolution(x).flatten(2).permute(0, 2, 1))
        y = torch.nn.functional.scaled_dot_product_attention(y, y * 1, y + 0)
        y = torch.nn.functional.gelu(self.linear(y)).to(torch.float64).to(torch.float32)
        return y.permute(0, 2, 1).permute(0, 2, 1), torch.cat([y, y], 1).split(2, 1)[0], y.view(-1, 8).softmax(-1)


@pytest.mark.parametrize("name", shipped_books())
def test_explanations_of_shipped_rules_agree_with_the_engine(name: str) -> None:
    program = to_edge(torch.export.export(Attention().eval(), (torch.randn(1, 3, 8, 8),))).exported_program()
    editor = GraphEditor(copy_program(program))
    application = RuleApplication(editor, ProgramFacts(editor))
    fired = 0
    for rule in book(name).rules:
        explanation = explain_rule(rule, editor, most=1000)
        for one in explanation.nodes:
            node = next(each for each in editor.graph.nodes if each.name == one.node)
            matches = application.match(rule, node) is not None
            rejected = one.mismatch is not None and one.mismatch.kind == "replacement"
            assert matches == (one.fires or rejected), one.diagnostic().render()
            assert one.diagnostic().render()
        assert explanation.firing == sum(one.fires for one in explanation.nodes)
        fired += explanation.firing
    assert fired or name not in ("canonicalize", "algebra", "decompose", "fold")
    assert [one.name for one in editor.graph.nodes] == [one.name for one in program.graph.nodes]


BOOK_OF_WORDS = """rulebook: 1
attributes:
  act: {lo: float, hi: float, key: LIMITS, means: "aten.clamp.default(result, lo, hi)"}
tables:
  swapped: {aten.le.Tensor: aten.ge.Tensor, aten.lt.Tensor: aten.gt.Tensor}
rules:
- id: attribute
  vars: {x: "f32 [*S]", lo: float, hi: float}
  match: return aten.clamp.default(x @ act(lo, hi), lo, hi)
  replace: return x
- id: chain
  vars: {x: "f32 [*S]"}
  match: |
    l = aten.relu.default(x)
    v = chain(l, [aten.view.default], users=1)
    return aten.relu.default(v)
  replace: return along(v, aten.relu.default(x))
- id: users
  vars: {x: "f32 [*S]", ks: floats}
  match: |
    d = aten.neg.default(x)
    return *[aten.mul.Tensor(aten.exp.default(u), y) for u, y in zip(users(d), ys)]
  replace: return *[aten.mul.Tensor(aten.exp.default(aten.neg.default(x)), y) for y in ys]
- id: stored
  vars: {c: "f32 [*S]"}
  match: return stored(c)
  replace: return stored(cast(c, f16))
  uses: return aten._to_copy.default(new, dtype=f32)
- id: table
  vars: {f: op in swapped, x: "f32 [*S]", y: "f32 [*S]"}
  match: return aten.logical_not.default(f(x, y))
  replace: return aten.logical_not.default(swapped[f](y, x))
- id: each
  vars: {xs: "list of f32 [N, M]"}
  match: return aten.cat.default([aten.neg.default(x) for x in xs], 0)
  replace: return aten.neg.default(aten.cat.default(xs, 0))
- id: input
  vars: {x: "f32 [*S]"}
  match: return input(x)
  replace: return input(aten.neg.default(x))
  uses: return aten.neg.default(new)
- id: twice
  vars: {x: "f32 [*S]"}
  match: return aten.relu.default(aten.relu.default(x))
  replace: return aten.relu.default(x)
- id: bodies
  vars: {c: "num []"}
  graphs: bodies
  match: return stored(c)
  replace: return aten.full.default([], item(c), dtype=c.dtype)
""".replace('x: "f32 [*S]", ks: floats}', 'x: "f32 [*S]", ys: "list of f32 [*S]"}')


class Shared(torch.nn.Module):
    c: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("c", torch.ones(2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x + self.c, x * self.c


class Branches(torch.nn.Module):
    c: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("c", torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.cond(x.sum() > 0, lambda x: x.relu().relu(), lambda x: x + self.c, (x,))
        return found


def shared_link(_: Any, x: torch.Tensor) -> Any:
    moved = x.relu().view(2, 1)
    return moved.relu(), moved.exp()


def two_users(_: Any, x: torch.Tensor) -> Any:
    y = x.neg()
    return y.exp() * x, y.sin() * x


def explain_word(word: str, program: Any) -> NodeExplanation:
    model = program if isinstance(program, torch.nn.Module) else None
    found = torch.export.export(model, (ones(2),)) if model is not None else None
    editor = GraphEditor(found) if found is not None else exported(program, ones(2))
    rule = parse_book(BOOK_OF_WORDS, "book.yaml").require_valid().rule(word)
    return explain_rule(rule, editor, most=1).nodes[0]


@pytest.mark.parametrize(("word", "program", "kind", "told"), [
    ("attribute", lambda _, x: x.neg().clamp(0, 1), "attribute", "attribute act, in the metadata as 'LIMITS'"),
    ("users", two_users, "operator", "a user of d is another call; `users(d)` is about all of them"),
    ("stored", Shared(), "value", "or `shared: all`"),
    ("table", lambda _, x: (x == x.neg()).logical_not(), "operator", "f: op in aten.le.Tensor, aten.lt.Tensor"),
    ("each", lambda _, x: torch.cat([x.neg(), x.exp()], 0), "operator", "aten.neg.default"),
])  # fmt: skip
def test_words_of_patterns(word: str, program: Any, kind: str, told: str) -> None:
    one = explain_word(word, program)
    assert not one.fires
    assert one.mismatch is not None
    assert one.mismatch.kind == kind
    assert told in one.diagnostic().render()


def test_a_chain_that_something_else_uses() -> None:
    rule = parse_book(BOOK_OF_WORDS, "book.yaml").require_valid().rule("chain")
    editor = exported(shared_link, ones(2))
    (one,) = explain_rule(rule, editor, "relu_1").nodes
    assert one.mismatch is not None
    assert one.mismatch.kind == "chain"
    assert (
        one.mismatch.expected == "a value that nothing else uses, or any number of calls behind it: aten.view.default"
    )


def test_values_of_the_interface_are_replaced_elsewhere() -> None:
    one = explain_word("input", lambda _, x: x.neg())
    assert one.fires
    assert "only `ChangeInterface` applies it" in one.diagnostic().render()


def test_bodies_of_control_flow_are_explained() -> None:
    one = explain_word("twice", Branches())
    assert one.fires
    assert one.graph
    assert f"twice fires at %{one.node} of {one.graph}" in one.diagnostic().render()
    assert explain_word("bodies", Branches()).fires
    rule = parse_book(BOOK_OF_WORDS, "book.yaml").require_valid().rule("bodies")
    assert not explain_rule(rule, GraphEditor(torch.export.export(Shared(), (ones(2),)))).tried
    inner = parse_book(BOOK_OF_WORDS, "book.yaml").require_valid().rule("twice")
    editor = GraphEditor(torch.export.export(Branches(), (ones(2),)))
    assert explain_rule(inner, editor, f"%{one.node}").nodes[0].node == one.node
