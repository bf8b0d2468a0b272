"""Graphs inside a graph: branches and loop bodies take a block of their parent's arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node

from exirkit.ir import view

# Operators whose graphs receive slices that the parent has no tensor for, so that their inputs need memory.
_SLICING = frozenset({"map_impl", "scan"})


@dataclass(frozen=True, slots=True)
class SubmoduleCall:
    """One node that runs other graphs.

    Attributes:
        node: The call.
        submodules: Its graphs, in order of the arguments.
        operands: What the placeholders of each graph receive, where that is one to one; else empty.
    """

    node: Node
    submodules: tuple[GraphModule, ...]
    operands: tuple[Any, ...]


def submodule_calls(graph_module: GraphModule) -> list[SubmoduleCall]:
    """Return the calls of control flow in a graph, in order; a delegate's graph is not one the planner may enter."""
    calls = []
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, HigherOrderOperator):
            found = (_graph_of(graph_module, argument) for argument in node.args)
            submodules = tuple(submodule for submodule in found if submodule is not None)
            if submodules:
                calls.append(SubmoduleCall(node, submodules, _operands(node)))
    return calls


def needs_inputs_planned(node: Node) -> bool:
    """Return whether the graphs that a node runs need memory for their inputs.

    A branch reads the values of its parent in place. The body of a `map` or `scan` gets a slice of them in each round.
    """
    return _name(node) in _SLICING


def results_outlive_call(node: Node) -> bool:
    """Return whether results may lie in the memory of the called graph, which must be kept as long as they are.

    The runtime moves the result of a branch by renaming it. Loops that collect slices copy each into the result.
    """
    return _name(node) not in _SLICING


def returned_operands(call: SubmoduleCall) -> list[Node]:
    """Return the operands of a conditional that one of its branches returns as they are, or as a view."""
    found: dict[Node, None] = {}
    for submodule in call.submodules:
        placeholders = submodule.graph.find_nodes(op="placeholder")
        if len(placeholders) != len(call.operands):
            continue
        operand_of = dict(zip(placeholders, call.operands, strict=True))
        for result in _listed(submodule.graph.output_node().args[0]):
            while isinstance(result, Node) and result.target is view:
                result = result.args[0]
            operand = operand_of.get(result) if isinstance(result, Node) else None
            if isinstance(operand, Node):
                found[operand] = None
    return list(found)


def _operands(node: Node) -> tuple[Any, ...]:
    if node.target is torch.ops.higher_order.cond and len(node.args) > 3:
        return tuple(_listed(node.args[3]))
    if _name(node) == "while_loop":
        return tuple(value for argument in node.args[2:] for value in _listed(argument))
    return ()


def _graph_of(graph_module: GraphModule, argument: Any) -> GraphModule | None:
    if not isinstance(argument, Node) or argument.op != "get_attr":
        return None
    found: Any = graph_module
    for part in str(argument.target).split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, GraphModule) else None


def _name(node: Node) -> str:
    return str(getattr(node.target, "_name", node.target))


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)
