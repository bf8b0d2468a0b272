"""Walks over the graphs of a program: that of the method and those that its nodes name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node

from exirkit.ir.graph.metadata import attribute_of


def called_graphs(module: GraphModule) -> Iterator[GraphModule]:
    """Yield a graph and those that its nodes name, at any depth, each once.

    A pass that inlines a graph leaves the attribute behind; a graph that no node names is not part of the program.
    """
    pending, seen = [module], {id(module)}
    while pending:
        one = pending.pop()
        yield one
        for _, found in _named_graphs(one):
            if id(found) not in seen:
                seen.add(id(found))
                pending.append(found)


def graphs_by_path(module: GraphModule) -> list[tuple[str, GraphModule]]:
    """Return the graphs of `called_graphs`, outer ones first, each with its path, `true_graph_0.body_graph_1`."""
    found = [("", module)]
    seen = {id(module)}
    for path, one in found:
        for name, inner in _named_graphs(one):
            if id(inner) not in seen:
                seen.add(id(inner))
                found.append((f"{path}.{name}".lstrip("."), inner))
    return found


def graph_argument(argument: Any) -> GraphModule | None:
    """Return the graph that an argument names, or None if it names none."""
    if not isinstance(argument, Node) or argument.op != "get_attr":
        return None
    found = attribute_of(argument)
    return found if isinstance(found, GraphModule) else None


def graphs_of_call(node: Node) -> list[GraphModule]:
    """Return the graphs that a call of control flow runs; those inside of a delegate are the backend's own."""
    if node.op != "call_function" or not isinstance(node.target, HigherOrderOperator):
        return []
    return [found for argument in node.args if (found := graph_argument(argument)) is not None]


def _named_graphs(module: GraphModule) -> Iterator[tuple[str, GraphModule]]:
    for node in module.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            found = attribute_of(node)
            if isinstance(found, GraphModule):
                yield str(node.target), found
