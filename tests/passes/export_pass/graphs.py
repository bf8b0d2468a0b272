"""Graphs and small passes that the tests of `ExportPass` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.passes.programs import Function
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule, Node

from exirkit.ir import edge_operator
from exirkit.passes import ExportPass

aten = torch.ops.aten


def trace(function: Callable[..., Any], *inputs: torch.Tensor, dynamic_shapes: Any = None) -> GraphModule:
    """Export a function; placeholders are its inputs alone."""
    shapes = None if dynamic_shapes is None else (dynamic_shapes,)
    return torch.export.export(Function(function), inputs, dynamic_shapes=shapes).graph_module


def chain(length: int) -> GraphModule:
    """Build `relu(x + 1)`, again and again, with recorded values."""
    graph = torch.fx.Graph()
    value = graph.placeholder("x")
    with FakeTensorMode():
        value.meta["val"] = torch.empty(2)
        for _ in range(length):
            value = graph.call_function(aten.relu.default, (graph.call_function(aten.add.Tensor, (value, 1)),))
            for node in (value, value.prev):
                node.meta["val"] = torch.empty(2)
    graph.output((value,))
    return GraphModule(torch.nn.Module(), graph)


def as_edge(module: GraphModule) -> GraphModule:
    """Give the graph edge handles as targets, in place."""
    for node in module.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            node.target = edge_operator(node.target)
    module.recompile()
    return module


def targets(module: GraphModule) -> list[str]:
    return [str(node.target) for node in module.graph.nodes if node.op == "call_function"]


def nodes_of(module: GraphModule, target: Any) -> list[Node]:
    return list(module.graph.find_nodes(op="call_function", target=target))


def fingerprint(module: GraphModule) -> list[tuple[Any, ...]]:
    """Describe a graph so that any change of it shows."""
    return [
        (
            node.name,
            node.op,
            node.target,
            str(node.args),
            str(node.kwargs),
            {key: id(node.meta[key]) for key in node.meta},
        )
        for node in module.graph.nodes
    ]


class Swap(ExportPass):
    """Calls other operators, by a table."""

    def __init__(self, **table: Any) -> None:
        super().__init__()
        self.table = {getattr(aten, name).default: target for name, target in table.items()}

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        return super().call_operator(self.table.get(op, op), args, kwargs, meta)


class Untouched(ExportPass):
    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        return super().call_operator(op, args, kwargs, meta)


class AddIsMulSub(ExportPass):
    """x + y is x * y - y here, after the documentation."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
        if op != aten.add.Tensor:
            return super().call_operator(op, args, kwargs, meta)
        _, y = args
        product = super().call_operator(aten.mul.Tensor, args, {}, meta)
        return super().call_operator(aten.sub.Tensor, (product, y), {}, meta)
