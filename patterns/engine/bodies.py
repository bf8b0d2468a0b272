"""Bodies of control flow that replacements write: each becomes a graph, given the operands and what it stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Graph, GraphModule, Node

from exirkit.ir import GraphEditor, alias_root, program_around, same_value
from exirkit.patterns.operators.control_flow import Body, ControlFlow
from exirkit.patterns.syntax.expressions import ExpressionError

if TYPE_CHECKING:
    from exirkit.patterns.engine.graph_builder import GraphBuilder


def make_run(builder: GraphBuilder, op: ControlFlow, args: Sequence[Any]) -> Node:
    """Make a call of control flow with the graphs of its bodies.

    Raises:
        ExpressionError: It cannot be: an operand is not a tensor, or branches give different results.
    """
    given = dict(zip((one.name for one in op._schema.arguments), args, strict=True))
    operands = [[builder.node_of(one) for one in given[name]] for name in op.lists]
    extra: dict[Node, None] = {}
    made: list[_Made] = []
    for name in op.bodies:
        if not isinstance(given[name], Body):
            raise ExpressionError(f"{op} takes a body here, not a {type(given[name]).__name__}")
        values = [
            _row(one.meta["val"]) if role == "sliced" else one.meta["val"]
            for role, listed in zip(op.lists, operands, strict=True)
            for one in listed
        ]
        made.append(_Made(builder, given[name], values, extra, is_single=name == op.single))
    for one in made:
        one.finish(extra)
    if op.kind == "cond" and not same_value(made[0].values, made[1].values):
        raise ExpressionError("the branches of a condition would give results of different kinds")
    operands[-1] += extra
    graphs = [
        builder.editor.add_subgraph(one.module, f"{op.kind}_{name}", before=builder.before)
        for one, name in zip(made, op.bodies, strict=True)
    ]
    first = () if op.kind != "cond" else (builder.node_of(given["pred"]),)
    lists = [list(one) if op.kind == "map_impl" else tuple(one) for one in operands]
    return builder.make(op.target, (*first, *graphs, *lists), {})


def _row(value: torch.Tensor) -> torch.Tensor:
    """Return one row of what is sliced."""
    row: torch.Tensor = value[0]
    return row


class _Made:
    """The graph of one body."""

    def __init__(
        self, outer: GraphBuilder, body: Body, values: Sequence[Any], extra: dict[Node, None], *, is_single: bool
    ) -> None:
        graph = Graph()
        inputs = [_placeholder(graph, f"operand_{number}", value) for number, value in enumerate(values)]
        end = graph.output(())
        self.module = GraphModule(torch.nn.Module(), graph)
        self.graph = self.module.graph
        inputs = list(self.graph.find_nodes(op="placeholder"))
        end = self.graph.output_node()
        self.program = program_around(outer.editor.program, self.module)
        editor = GraphEditor(self.program)
        self.handed: dict[Node, Node] = {}
        builder = outer.inside(editor, end, partial(self._hand, outer, extra, end))
        with editor.transaction("body"):
            results = [builder.node_of(one) for one in body.results(builder, inputs)]
            results = self._apart(results, builder)
        self.values = [one.meta["val"] for one in results]
        end.args = (results[0] if is_single else tuple(results),)
        for node in reversed(self.graph.nodes):
            if node.op in ("call_function", "get_attr") and not node.users:
                self.graph.erase_node(node)

    def _hand(self, outer: GraphBuilder, extra: dict[Node, None], end: Node, stored: Node) -> Node:
        """Return what stands in the body for a stored tensor of the program, which becomes an operand."""
        extra.setdefault(stored)
        if stored not in self.handed:
            last = [*self.graph.find_nodes(op="placeholder")]
            with self.graph.inserting_after(last[-1]) if last else self.graph.inserting_before(end):
                node = self.handed[stored] = _placeholder(self.graph, stored.name, stored.meta["val"])
            taken = InputSpec(InputKind.USER_INPUT, TensorArgument(name=node.name), target=None)
            self.program.graph_signature.input_specs.append(taken)
        return self.handed[stored]

    def finish(self, extra: Mapping[Node, None]) -> None:
        """Take all stored tensors that some body of the call uses, in one order."""
        for stored in extra:
            known = self._hand_again(stored)
            last = list(self.graph.find_nodes(op="placeholder"))[-1]
            if last is not known:
                last.append(known)
        self.module.recompile()

    def _hand_again(self, stored: Node) -> Node:
        known = self.handed.get(stored)
        if known is None:
            first = next(one for one in self.graph.nodes if one.op != "placeholder")
            with self.graph.inserting_before(first):
                known = self.handed[stored] = _placeholder(self.graph, stored.name, stored.meta["val"])
        return known

    @staticmethod
    def _apart(results: Sequence[Node], builder: GraphBuilder) -> list[Node]:
        """Return results of which none is an operand, or shares memory with one or with another: torch forbids it."""
        roots: set[Node] = set()
        kept: list[Node] = []
        for one in results:
            root = alias_root(one)
            if root.op == "placeholder" or root in roots:
                one = builder.call(torch.ops.aten.clone.default, (one,), {})
            roots.add(alias_root(one))
            kept.append(one)
        return kept


def _placeholder(graph: Graph, name: str, value: Any) -> Node:
    node = graph.placeholder(name)
    node.meta["val"] = value
    return node
