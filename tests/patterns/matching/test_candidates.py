"""The short ways to a match find what the long ones find: candidates, arguments, literals asked first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tests.patterns.exported_programs import exported
from tests.patterns.rule_files import book
from torch.fx import Node

from exirkit import to_edge
from exirkit.ir import GraphEditor, register_quantized_decomposed, underlying
from exirkit.patterns import FailureTrace, RewriteOptions, RuleEngine, backend_books, parse_book, shipped_books
from exirkit.patterns.engine.application import RuleApplication
from exirkit.patterns.engine.program_facts import ProgramFacts
from exirkit.patterns.matching.pattern_questions import Anchored
from exirkit.patterns.matching.predicate_tree import PredicateTree, TreeNode
from exirkit.patterns.operators.arguments import argument_of, canonical_arguments


@pytest.fixture(scope="module")
def engine() -> RuleEngine:
    """An engine for all shipped rules, those of backends, and those of the examples."""
    names = ["example_rules", *shipped_books(), *backend_books()]
    rules = {rule.id: rule for name in names for rule in book(name).rules}
    return RuleEngine(list(rules.values()))


def attention() -> GraphEditor:
    q, k, v, m = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6), torch.randn(2, 3, 5)
    return exported(lambda _, q, k, v, m: (torch.softmax(q @ k.permute(0, -1, 1) * 0.5 + m, dim=2) @ v,), q, k, v, m)


def pointwise() -> GraphEditor:
    x = torch.randn(2, 3, 4)
    return exported(
        lambda _, x: (
            (1 * x).relu().permute(0, 1, 2).add(x.sigmoid() * x, alpha=2),
            x.clamp(0.0, 6.0).clamp(1, 2).permute(-1, 0, 1).permute(1, 2, 0) + 0,
            torch.cat(x.split([1, 2], dim=-2), dim=1).view(-1, 4).reshape(2, 3, 4),
        ),
        x,
    )


def convolution() -> GraphEditor:
    x, norm, conv = torch.randn(2, 3, 8, 8), torch.nn.BatchNorm2d(4), torch.nn.Conv2d(3, 4, 3, padding=1)
    return exported(lambda m, x: (m.norm(m.conv(x)).relu(), m.conv(x).mean((-1, -2))), x, norm=norm, conv=conv)


def lowered() -> GraphEditor:
    """Products as Edge writes them, operands that broadcast, a chain, a view that adds a dim."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, q: torch.Tensor, k: torch.Tensor, few: torch.Tensor) -> tuple[torch.Tensor, ...]:
            scores = torch.softmax(q @ k.permute(0, 1, 3, 2) * 0.5, dim=-1) @ k
            chained = q.permute(0, 2, 1, 3).relu().permute(0, 2, 1, 3).relu().permute(0, 2, 1, 3)
            return self.linear(scores) * few.T, few + few.T, chained.unsqueeze(2), few.relu().relu().clamp(0, 3) + 0

    example = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4), torch.randn(4, 1)
    edge = to_edge(torch.export.export(Model().eval(), example))
    return GraphEditor(edge.exported_program())


def cut() -> GraphEditor:
    """Slices in all the ways in which they are written, some of which take all, and numbers beside tensors."""
    x, y, cut, end = torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.ops.aten.slice.Tensor, 9223372036854775807
    return exported(
        lambda _, x, y: (
            (cut(x, 1, 1, 3), cut(x, 1, 0, 2), cut(x, 1, 0, 3), cut(x, -2, None, None), cut(x, -1, -4, 9)),
            (cut(x, -1, 0, 4), cut(x, 2, 0, 3), cut(x, 0, 0, end), cut(x, 0, 1, end), cut(x, 2, 0, 4, 2)),
            (x.narrow(-1, 0, 4), x.narrow(1, 1, 2), x + y, x * y, x + 0, x * 1, x * 2, x / 1.0, x / 2, 1.0 * x),
        ),
        x,
        y,
    )


PROGRAMS = {
    "attention": attention,
    "pointwise": pointwise,
    "convolution": convolution,
    "lowered": lowered,
    "cut": cut,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_rule_that_matches_is_a_candidate(name: str, engine: RuleEngine) -> None:
    editor = PROGRAMS[name]()
    application = RuleApplication(editor, ProgramFacts(editor))
    matches = 0
    for node in editor.graph.nodes:
        if node.op != "call_function":
            continue
        root = engine.tree.root_of(node.target)
        candidates = set() if root is None else set(engine.tree.candidates(node, root, application.composites))
        for rank, rule in enumerate(engine.rules):
            found = application.match(rule, node) is not None
            assert rank in candidates or not found, f"{rule.id} at %{node.name}"
            matches += found
    assert matches


@pytest.mark.parametrize(
    "rule",
    [
        "canonicalize.slice-all-remove",
        "canonicalize.slice-of-all-remove",
        "simplify.add-zero-remove",
        "simplify.mul-one-remove",
        "simplify.mul-scalar-one-remove",
    ],
)
def test_rules_that_numbers_and_constants_decide_are_candidates_where_they_match(rule: str, engine: RuleEngine) -> None:
    editor = cut()
    application = RuleApplication(editor, ProgramFacts(editor))
    (rank,) = [rank for rank, one in enumerate(engine.rules) if one.id == rule]
    asked, matched = set(), set()
    for node in editor.graph.nodes:
        root = engine.tree.root_of(node.target) if node.op == "call_function" else None
        if root is not None and rank in engine.tree.candidates(node, root, application.composites):
            asked.add(node)
        if node.op == "call_function" and application.match(engine.rules[rank], node) is not None:
            matched.add(node)
    # A variable for a number may be met by none, which is asked in the search alone.
    assert matched <= asked
    assert not [one.format_node() for one in asked - matched if None not in canonical_arguments(one).values()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_visits_far_from_a_change_are_left_out_where_nothing_matches(name: str, engine: RuleEngine) -> None:
    nowhere_limited = RuleEngine(engine.rules)
    nowhere_limited.tree.reaches = (engine.height,) * len(engine.rules)
    nowhere_limited.tree.candidates = _anchored(nowhere_limited)  # type: ignore[method-assign]
    assert engine.tree.reaches != nowhere_limited.tree.reaches
    limited, whole = (_applied(one, name) for one in (engine, nowhere_limited))
    assert limited == whole
    assert limited[0]


def test_too_short_a_reach_misses_matches(engine: RuleEngine) -> None:
    near = RuleEngine(engine.rules)
    near.tree.reaches = (1,) * len(engine.rules)
    assert any(_applied(near, name) != _applied(engine, name) for name in PROGRAMS)


def _applied(engine: RuleEngine, name: str) -> tuple[list[tuple[str, str]], str]:
    """Return the first applications of an engine in a program, and what it is after them."""
    editor = PROGRAMS[name]()
    report = engine.run(editor, RewriteOptions(limit=60))
    return [(one.rule, one.root) for one in report.journal], str(editor.graph)


def _anchored(engine: RuleEngine) -> Callable[..., Sequence[int]]:
    """Return candidates of which nothing but the operator of the call is asked."""

    def candidates(node: Node, *_: Any) -> Sequence[int]:
        target = underlying(node.target)
        return [rank for rank, one in enumerate(engine.rules) if not one.anchors or target in one.anchors]

    return candidates


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_trace_changes_no_result(name: str, engine: RuleEngine) -> None:
    editor = PROGRAMS[name]()
    application = RuleApplication(editor, ProgramFacts(editor))
    heard = 0
    for node in editor.graph.nodes:
        for rule in engine.rules if node.op == "call_function" else ():
            silent = application.match(rule, node)
            trace = FailureTrace()
            told = application.match(rule, node, trace)
            assert (told is None) <= bool(trace.failures), f"{rule.id} at %{node.name}"
            heard += len(trace.failures)
            assert (silent is None) == (told is None), f"{rule.id} at %{node.name}"
            assert silent is None or told is None or silent.names == told.names
    assert heard


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_argument_is_that_of_the_whole_view(name: str) -> None:
    for node in PROGRAMS[name]().graph.nodes:
        if node.op == "call_function":
            view = canonical_arguments(node)
            assert all(argument_of(node, key) is value for key, value in view.items())
            assert argument_of(node, "no_such_argument") is None


def test_defaults_in_a_view_are_not_shared() -> None:
    x = torch.randn(1, 2, 4, 4)
    editor = exported(lambda _, x: (torch.max_pool2d(x, 2), torch.max_pool2d(x.relu(), 2)), x)
    pools = [node for node in editor.graph.nodes if "max_pool2d" in str(node.target)]
    first, second = (canonical_arguments(node) for node in pools)
    assert first["padding"] == second["padding"] == [0, 0]
    first["padding"].append(7)
    assert second["padding"] == [0, 0]


def test_questions_about_a_large_pattern_are_few() -> None:
    """Sums and products of parts that are met in many forms would be asked about in a tree of millions of questions."""
    rules = [rule for rule in book("backends/xnnpack").rules if "bilinear" in rule.id]
    tree = PredicateTree([Anchored(one.anchors, one.pattern.roots[0], one.forms or {}) for one in rules])
    roots = [tree.root_of(operator) for operator in tree.operators or ()]
    assert roots
    pending = [root for root in roots if root is not None]
    known: dict[int, TreeNode] = {}
    while pending:
        node = pending.pop().build()
        if id(node) not in known:
            known[id(node)] = node
            others = [node.otherwise] if node.otherwise is not None else []
            further = [below for _, below in (*node.screened, *node.read, *node.parts.values())]
            pending += [*node.by_operator.values(), *others, *further]
    # At most 64 ways of matching for each rule and way to read a call, with 64 questions each.
    assert len(known) < 20_000


def test_one_number_for_all_dims_of_a_convolution_is_one_for_each() -> None:
    x, conv = torch.randn(1, 2, 6, 6), torch.nn.Conv2d(2, 3, 3)
    editor = exported(
        lambda m, x: (torch.ops.aten.convolution.default(x, m.conv.weight, None, [2], [0], [1], False, [0], 1),),
        x,
        conv=conv,
    )
    (node,) = [one for one in editor.graph.nodes if "convolution" in str(one.target)]
    written = canonical_arguments(node)
    assert [written[name] for name in ("stride", "padding", "dilation", "output_padding")] == [
        [2, 2],
        [0, 0],
        [1, 1],
        [0, 0],
    ]


def test_literals_of_calls_that_others_look_through() -> None:
    text = """rulebook: 1
rules:
- id: copies
  vars: {x: "f32 [N, C, H, W]", s: float, z: int, m: "one_of contiguous_format, channels_last"}
  measure: once
  keep: [q]
  match: |
    q = quantized_decomposed.quantize_per_tensor.default(x, s, z, -128, 127, i8)
    return aten._to_copy.default(q, memory_format=m)
  replace: return aten.clone.default(q, memory_format=m)
"""
    register_quantized_decomposed()
    quantize = torch.ops.quantized_decomposed.quantize_per_tensor.default

    def copied(_: Any, x: torch.Tensor) -> tuple[torch.Tensor]:
        y = quantize(x, 0.1, 3, -128, 127, torch.int8)
        return (torch.ops.aten._to_copy.default(y, memory_format=torch.channels_last),)

    editor = exported(copied, torch.randn(1, 3, 4, 5))
    # The dtype that the copy does not say, the call behind it says.
    assert RuleEngine(parse_book(text).require_valid().rules).run(editor).applied == {"copies": 1}
