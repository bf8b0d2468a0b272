"""Debug handles: the numbers by which instructions lead back to the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import Diagnostic

from .program_graphs import ProgramGraph, graphs_of


def check_debug_handles(program: ExportedProgram | GraphModule, *, bodies: bool = True) -> list[Diagnostic]:
    """Check that every call has a debug handle, and that calls that come from different nodes have different ones.

    Args:
        program: Program of any dialect.
        bodies: Also look at bodies of control flow.

    Returns:
        All findings (EK350: no handle, EK351: no number, EK352: one for nodes of different origin), in graph order.
    """
    findings: list[Diagnostic] = []
    for graph in graphs_of(program) if bodies else graphs_of(program)[:1]:
        owners: dict[int, tuple[Node, Any]] = {}
        for node in graph.calls():
            findings += _findings(graph, node, owners)
    return findings


def _findings(graph: ProgramGraph, node: Node, owners: dict[int, tuple[Node, Any]]) -> Iterator[Diagnostic]:
    handle = node.meta.get("debug_handle")
    if handle is None:
        yield graph.finding(
            "EK350",
            node,
            f"%{node.name} has no debug handle",
            expected="a number, counted from 1",
            hint="run GenerateDebugHandles, and make nodes with `origins`, from which they inherit it",
        )
        return
    several = handle if isinstance(handle, tuple) else (handle,)
    if not several or not all(type(one) is int and one > 0 for one in several):
        yield graph.finding(
            "EK351",
            node,
            f"the debug handle of %{node.name} is {handle!r}",
            expected="a number counted from 1, or a tuple of such numbers for a node that stands for several",
        )
        return
    origin = _origin(node)
    if len(several) > 1 or origin is None:
        return
    owner, known = owners.setdefault(several[0], (node, origin))
    if known != origin:
        yield graph.finding(
            "EK352",
            node,
            f"%{node.name} has the debug handle {handle} of %{owner.name}, which comes from another node of the model",
            expected="a handle for each node of the exported program",
            hint="do not copy meta of one node to another that does something else",
        )


def _origin(node: Node) -> Any:
    """Return what identifies the node of the exported program from which this one descends, or None."""
    sources = node.meta.get("from_node")
    if not sources:
        return None
    source = sources[0]
    while source.from_node:
        source = source.from_node[0]
    return (source.graph_id, source.name)
