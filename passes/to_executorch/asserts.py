"""Assertions are removed: the runtime has no operators for them."""

from __future__ import annotations

import torch
from torch.fx import Node

from exirkit.ir import GraphEditor, underlying
from exirkit.passes.contract import Pass


class RemoveMetadataAsserts(Pass):
    """Erase `aten._assert_tensor_metadata`; assertions about sizes stay until later."""

    name = "remove-metadata-asserts"
    enters_bodies = True
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Erase the assertions."""
        target = torch.ops.aten._assert_tensor_metadata.default
        for node in editor.graph.find_nodes(op="call_function", target=target):
            editor.erase(node)


_ASSERTS = frozenset(
    {
        torch.ops.aten._assert_scalar.default,
        torch.ops.aten._assert_async.default,
        torch.ops.aten._assert_async.msg,
        torch.ops.aten._assert_tensor_metadata.default,
        torch.ops.aten.sym_constrain_range.default,
        torch.ops.aten.sym_constrain_range_for_size.default,
        torch._check,
    }
)


def is_assertion(node: Node) -> bool:
    """Return whether a node asserts something, so that lowering removes it."""
    return node.op == "call_function" and underlying(node.target) in _ASSERTS


class RemoveAsserts(Pass):
    """Remove assertions on sizes and values, and what was computed for them alone.

    What they say of sizes is known to the shape environment and still bounds them.
    """

    name = "remove-asserts"
    enters_bodies = True
    ensures = ("no-assertions",)
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Remove the assertions."""
        for node in list(editor.graph.nodes):
            if is_assertion(node):
                checked = node.all_input_nodes
                editor.erase(node)
                for producer in checked:
                    _erase_unused(editor, producer)


def _erase_unused(editor: GraphEditor, node: Node) -> None:
    # A producer may have gone already, as the producer of another one.
    if not node._erased:
        editor.erase_unused(node)
