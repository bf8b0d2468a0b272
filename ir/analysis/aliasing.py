"""Aliases in functional graphs: the value whose memory a chain of views shows."""

from __future__ import annotations

import operator
from typing import Any

from torch.fx import Graph, Node

from .interface import results_of_graph


def alias_root(node: Node) -> Node:
    """Return the value whose memory a chain of views shows; the node itself if it is not a view."""
    while node.op == "call_function":
        source = node
        if node.target is operator.getitem and isinstance(node.args[0], Node):
            # An item of a list of views is a view; items of other results are values of their own.
            source = node.args[0]
        first = source.args[0] if source.args else None
        if not _views_first_argument(source.target) or not isinstance(first, Node):
            return source if source is not node and _views_first_argument(source.target) else node
        node = first
    return node


def shared_results(graph: Graph) -> int:
    """Return how many results of a graph are inputs, views of inputs, or share memory with another result."""
    returned = [one for one in results_of_graph(graph) if isinstance(one, Node)]
    roots = {root for root in map(alias_root, returned) if root.op != "placeholder"}
    return len(returned) - len(roots)


def _views_first_argument(target: Any) -> bool:
    schema = getattr(target, "_schema", None)
    return schema is not None and bool(schema.arguments) and schema.arguments[0].alias_info is not None
