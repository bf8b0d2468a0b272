"""Operators that call other graphs: control flow, which is lowered, and others, which are not."""

from __future__ import annotations

from collections.abc import Iterator

from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node

from exirkit.ir import Diagnostic, ModelError, control_flow_call, delegate_of, locate


def graph_call_findings(module: GraphModule) -> list[Diagnostic]:
    """List the calls of other graphs that the chain cannot lower, those inside of bodies included.

    Returns:
        A finding EK432 for each operator that calls other graphs and is no `cond`, `map`, `scan` or `while_loop`, and
        for each call of a graph that another call runs as well, in graph order.
    """
    return list(_findings(module, set()))


def _findings(module: GraphModule, seen: set[GraphModule]) -> Iterator[Diagnostic]:
    for node in module.graph.nodes:
        call = control_flow_call(node)
        if call is not None:
            if len(seen.union(call.bodies)) < len(seen) + len(call.bodies):
                yield _runs_what_others_run(node)
            seen.update(call.bodies)
            for body in call.bodies:
                yield from _findings(body, seen)
        elif (
            node.op == "call_function"
            and isinstance(node.target, HigherOrderOperator)
            # What a delegate computes is the business of its backend.
            and delegate_of(node) is None
        ):
            yield _cannot_be_lowered(node)


def reject_graph_calls(module: GraphModule) -> None:
    """Reject a graph that calls other graphs in a way that cannot be lowered.

    Raises:
        ModelError: EK432, for each such call.
    """
    found = graph_call_findings(module)
    if found:
        raise ModelError(found)


def _cannot_be_lowered(node: Node) -> Diagnostic:
    return Diagnostic(
        code="EK432",
        message=f"{node.target} cannot be lowered",
        location=locate(node),
        expected="of the operators that call other graphs: cond, map, scan and while_loop only, and calls of delegates",
        hint="write the model with torch.cond, map, scan or while_loop, or without calls of other graphs",
    )


def _runs_what_others_run(node: Node) -> Diagnostic:
    return Diagnostic(
        code="EK432",
        message=f"{node.target} runs a graph that is run from elsewhere too",
        location=locate(node),
        expected="a graph of its own for each branch and each loop, whose tensors have one place in memory",
        hint="export the model again, or give each call a copy of the graph",
    )
