"""Operators that call other graphs: control flow, which is lowered, and others, which are not."""

from __future__ import annotations

from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node

from exirkit.ir import Diagnostic, ModelError, body_calls, control_flow_call, locate


def graph_call_findings(module: GraphModule) -> list[Diagnostic]:
    """List the calls of other graphs that the chain cannot lower, those inside of bodies included.

    Returns:
        A finding EK432 for each operator that calls other graphs and is no `cond`, `map`, `scan` or `while_loop`, in
        graph order.
    """
    return [
        *(_cannot_be_lowered(node) for node in module.graph.nodes if _calls_graphs(node) and not control_flow_call(node)),
        *(finding for call in body_calls(module) for body in call.bodies for finding in graph_call_findings(body)),
    ]


def refuse_graph_calls(module: GraphModule) -> None:
    """Refuse a graph that calls other graphs in a way that cannot be lowered.

    Raises:
        ModelError: EK432, for each such call.
    """
    found = graph_call_findings(module)
    if found:
        raise ModelError(found)


def _calls_graphs(node: Node) -> bool:
    return node.op == "call_function" and isinstance(node.target, HigherOrderOperator)


def _cannot_be_lowered(node: Node) -> Diagnostic:
    return Diagnostic(
        code="EK432",
        message=f"{node.target} cannot be lowered",
        location=locate(node),
        expected="of the operators that call other graphs: cond, map, scan and while_loop only",
        hint="write the model with torch.cond, map, scan or while_loop, or without calls of other graphs",
    )
