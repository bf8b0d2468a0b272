"""Graphs inside of graphs: branches and bodies of control flow, and delegates, with the nodes that call them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule, Node

from exirkit.ir import (
    COND,
    MAP,
    SCAN,
    WHILE,
    HigherOrderOperator,
    attribute_of,
    called_graphs,
    control_flow_calls,
    delegate_of,
    underlying,
)
from exirkit.program import LoweredBackendModule

Called = tuple[str, GraphModule, Node]
"""Name of the attribute that holds a graph, the graph, and the node that calls it."""


def get_control_flow_submodules(graph_module: GraphModule) -> list[Called]:
    """Return the graphs that `cond`, `map` and `scan` call in one graph, not those inside of them."""
    return _called(graph_module, (COND, MAP, SCAN))


def get_cond_while_submodules(graph_module: GraphModule) -> list[Called]:
    """Return the graphs that `cond` and `while_loop` call in one graph, not those inside of them."""
    return _called(graph_module, (COND, WHILE))


def get_scan_submodules(graph_module: GraphModule) -> list[Called]:
    """Return the graphs that `scan` calls in one graph, not those inside of them."""
    return _called(graph_module, (SCAN,))


def _called(graph_module: GraphModule, kinds: Collection[str]) -> list[Called]:
    return [
        found
        for call in control_flow_calls(graph_module)
        if call.kind in kinds
        for found in _graphs(call.node, range(len(call.node.args)))
    ]


def _get_control_flow_submodules(
    graph_module: GraphModule, op_to_submodule_arg_index: Mapping[HigherOrderOperator, Sequence[int]]
) -> list[Called]:
    """Return the graphs that certain operators call in one graph.

    Args:
        graph_module: The graph.
        op_to_submodule_arg_index: Places of graphs among the arguments, by operator.
    """
    return [
        found
        for node in graph_module.graph.nodes
        if node.op == "call_function" and node.target in op_to_submodule_arg_index
        for found in _graphs(node, op_to_submodule_arg_index[node.target])
    ]


def _graphs(call: Node, places: Sequence[int]) -> list[Called]:
    found = []
    for place in places:
        source = call.args[place]
        graph = attribute_of(source) if isinstance(source, Node) and source.op == "get_attr" else None
        if isinstance(source, Node) and isinstance(graph, GraphModule):
            found.append((str(source.target), graph, call))
    return found


def contains_any_call_fn_target_op(graph_module: GraphModule, ops: Collection[Any]) -> bool:
    """Return whether a graph, or one that it calls at any depth, calls one of some operators."""
    return any(
        node.op == "call_function" and (node.target in ops or underlying(node.target) in ops)
        for module in called_graphs(graph_module)
        for node in module.graph.nodes
    )


def get_lowered_submodules(graph_module: GraphModule) -> list[tuple[str, LoweredBackendModule, Node]]:
    """Return the delegates that one graph calls: the name of the attribute, the delegate, and the call."""
    found = []
    for node in graph_module.graph.nodes:
        delegate = delegate_of(node)
        if isinstance(delegate, LoweredBackendModule):
            found.append((str(node.args[0].target), delegate, node))
    return found


def get_lowered_backend_modules(graph_module: GraphModule) -> list[LoweredBackendModule]:
    """Return the delegates that one graph calls."""
    return [delegate for _, delegate, _ in get_lowered_submodules(graph_module)]
