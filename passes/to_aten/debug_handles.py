"""Debug handles: one number for all nodes that come from one node of the exported program."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from exirkit.ir import GraphEditor
from exirkit.passes.contract import Pass
from exirkit.passes.to_executorch.propagate_specs import all_editors


class GenerateDebugHandles(Pass):
    """Give each call a debug handle: one number for all nodes that come from one node of the exported program.

    Handles count from 1 in graph order, those in bodies of control flow after the others. What has a handle keeps it.
    """

    name = "generate-debug-handles"
    ensures = ("debug-handles",)
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Set the handles that are missing."""
        known: dict[Any, int] = {}
        last = 0
        editors = list(all_editors(editor))
        for node in (node for one in editors for node in one.graph.nodes):
            handle = node.meta.get("debug_handle")
            if handle is not None:
                last = max(last, max(handle) if isinstance(handle, tuple) else handle)
        for owner, node in ((one, node) for one in editors for node in one.graph.nodes):
            if node.op in ("placeholder", "output") or node.meta.get("debug_handle") is not None:
                continue
            ancestor = _ancestor(node)
            handle = known.get(ancestor)
            if handle is None:
                last += 1
                known[ancestor] = handle = last
            owner.set_meta(node, "debug_handle", handle)


def _ancestor(node: Node) -> Any:
    """Return what identifies the node of the exported program from which this one descends."""
    sources = node.meta.get("from_node")
    if not sources:
        return node
    source = sources[0]
    # The first step of a chain is the latest one; the exported program's node is at its end.
    while source.from_node:
        source = source.from_node[0]
    return (source.graph_id, source.name)
