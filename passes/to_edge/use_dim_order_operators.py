"""Copies that choose a memory format become copies that state a dim order."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload

from exirkit.ir import DefinedOperator, GraphEditor, dim_order_from_stride, ops, underlying
from exirkit.passes.contract import Pass

_TWINS: dict[OpOverload | DefinedOperator, Any] = {
    torch.ops.aten._to_copy.default: ops.edge.dim_order_ops._to_dim_order_copy.default,
    torch.ops.aten.clone.default: ops.edge.dim_order_ops._clone_dim_order.default,
    torch.ops.aten.empty.memory_format: ops.edge.dim_order_ops._empty_dim_order.default,
}

_KEPT_ARGUMENTS = ("dtype", "non_blocking")


class UseDimOrderOperators(Pass):
    """Replace `_to_copy`, `clone` and `empty` by operators of `dim_order_ops` that name the order of dims in memory.

    The order is the one the value has, so no memory format is left to be guessed at run time.
    """

    name = "use-dim-order-operators"
    enters_bodies = True
    requires = ("no-views",)
    invalidates = ()
    before = ("convert-to-edge-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Replace the operators."""
        for node in list(editor.graph.nodes):
            if node.op != "call_function":
                continue
            twin = _TWINS.get(underlying(node.target)) if callable(node.target) else None
            if twin is None:
                continue
            value = node.meta["val"]
            kwargs = {key: node.kwargs[key] for key in _KEPT_ARGUMENTS if key in node.kwargs}
            kwargs["dim_order"] = list(dim_order_from_stride(value.stride(), value.shape))
            editor.retarget(node, twin, node.args, kwargs, val=value)
            editor.rename(node, editor.graph._target_to_str(twin))
