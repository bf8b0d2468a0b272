"""The copy that passes insert where a value needs memory of its own."""

from __future__ import annotations

from torch.fx import Node

from exirkit.ir import GraphEditor, dim_order_from_stride, ops


def insert_clone(editor: GraphEditor, node: Node, before: Node, *, skip_dim_order: bool = False) -> Node:
    """Return a new node with the value and the layout of `node` in memory of its own.

    Args:
        editor: Editor of the graph.
        node: Node whose value is a tensor.
        before: Node in front of which the copy is placed.
        skip_dim_order: Use `aten.clone` instead of the operator that states the dim order.
    """
    if skip_dim_order:
        return editor.call(ops.edge.aten.clone.default, (node,), before=before, origins=node)
    value = node.meta["val"]
    order = list(dim_order_from_stride(value.stride(), value.shape))
    clone = ops.edge.dim_order_ops._clone_dim_order.default
    return editor.call(clone, (node,), {"dim_order": order}, before=before, origins=node)
