"""Graphs whose calls name operators by the handles of another library for a while, and by exirkit's afterwards."""

from __future__ import annotations

import sys
from typing import Any

from torch.fx import GraphModule, Node

from exirkit.ir.analysis.walk import called_graphs

from .edge_operators import EdgeOpOverload, edge_operator
from .foreign_handles import REGISTRIES, operator_behind


def give_foreign_handles(module: GraphModule, library: str) -> None:
    """Let the calls of a graph, and of the graphs that it calls, name operators by the handles of another library.

    Args:
        module: A graph with handles of exirkit; it is changed.
        library: Name of the library, which has been imported; operators that it does not know keep their handles.
    """
    names = [name for name in REGISTRIES.values() if name.partition(".")[0] == library]
    registry = next((found for name in names if (found := sys.modules.get(name)) is not None), None)
    edge: Any = getattr(getattr(registry, "ops", None), "edge", None)
    for node in _calls(module):
        if isinstance(node.target, EdgeOpOverload):
            node.target = _handle(edge, node.target) or node.target


def take_foreign_handles(module: GraphModule) -> None:
    """Let the calls of a graph, and of the graphs that it calls, name operators by the handles of exirkit again."""
    for node in _calls(module):
        op = None if isinstance(node.target, EdgeOpOverload) else operator_behind(node.target)
        if op is not None:
            node.target = edge_operator(op)


def _handle(edge: Any, target: EdgeOpOverload) -> Any:
    schema: Any = target._schema
    namespace, _, name = schema.name.partition("::")
    found = edge
    for part in (namespace, name, schema.overload_name or "default"):
        found = getattr(found, part, None)
    return found


def _calls(module: GraphModule) -> list[Node]:
    return [node for one in called_graphs(module) for node in one.graph.nodes if node.op == "call_function"]
