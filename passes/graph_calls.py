"""Operators that call other graphs: control flow and delegates."""

from __future__ import annotations

from torch._ops import HigherOrderOperator
from torch.fx import Graph, Node

from exirkit.ir import Diagnostic, ModelError, locate


def graph_call_findings(graph: Graph) -> list[Diagnostic]:
    """List the calls of other graphs, which the chain cannot lower yet.

    Returns:
        A finding EK432 for each operator that calls other graphs, in graph order.
    """
    return [
        _calls_graphs(node)
        for node in graph.nodes
        if node.op == "call_function" and isinstance(node.target, HigherOrderOperator)
    ]


def refuse_graph_calls(graph: Graph) -> None:
    """Refuse a graph that calls other graphs.

    Raises:
        ModelError: EK432, for each operator that calls other graphs.
    """
    found = graph_call_findings(graph)
    if found:
        raise ModelError(found)


def _calls_graphs(node: Node) -> Diagnostic:
    return Diagnostic(
        code="EK432",
        message=f"{node.target} is not supported yet",
        location=locate(node),
        expected="a graph without control flow and without delegates",
        hint="write the branches so that both are computed, for example with torch.where",
    )
