"""Graphs inside a graph: branches and loop bodies take a block of their parent's arena."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node

# Operators whose graphs receive slices that the parent has no tensor for, so that their inputs need memory.
_SLICING = frozenset({"map_impl", "scan"})


@dataclass(frozen=True, slots=True)
class SubmoduleCall:
    """One node that runs other graphs.

    Attributes:
        node: The call.
        submodules: Its graphs, in order of the arguments.
    """

    node: Node
    submodules: tuple[GraphModule, ...]


def submodule_calls(graph_module: GraphModule) -> list[SubmoduleCall]:
    """Return the calls of control flow in a graph, in order; a delegate's graph is not one the planner may enter."""
    calls = []
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, HigherOrderOperator):
            found = (_graph_of(graph_module, argument) for argument in node.args)
            submodules = tuple(submodule for submodule in found if submodule is not None)
            if submodules:
                calls.append(SubmoduleCall(node, submodules))
    return calls


def needs_inputs_planned(node: Node) -> bool:
    """Return whether the graphs that a node runs need memory for their inputs.

    A branch reads the values of its parent in place. The body of a `map` or `scan` gets a slice of them in each round.
    """
    return _name(node) in _SLICING


def is_branching(node: Node) -> bool:
    """Return whether of the graphs that a node runs one runs once."""
    return _name(node) == "cond"


def _graph_of(graph_module: GraphModule, argument: Any) -> GraphModule | None:
    if not isinstance(argument, Node) or argument.op != "get_attr":
        return None
    found: Any = graph_module
    for part in str(argument.target).split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, GraphModule) else None


def _name(node: Node) -> str:
    return str(getattr(node.target, "_name", node.target))
