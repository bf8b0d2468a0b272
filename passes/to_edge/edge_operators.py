"""Edge operators instead of ATen overloads, and constants as inputs."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch._ops import OpOverload

from exirkit.ir import (
    DefinedOperator,
    EdgeOpOverload,
    GraphEditor,
    dim_order_from_stride,
    edge_operator,
    ops,
    underlying,
)
from exirkit.passes.contract import Pass


class LiftConstants(Pass):
    """Turn `get_attr` nodes of tensors into placeholders with a place in signature and constants.

    Passes that create tensors leave such nodes behind.
    """

    name = "lift-constants"
    enters_bodies = True
    ensures = ("constants-lifted",)
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Lift every tensor attribute."""
        module = editor.program.graph_module
        for node in editor.graph.find_nodes(op="get_attr"):
            value = reduce(getattr, str(node.target).split("."), module)
            if isinstance(value, torch.Tensor):
                name = str(node.target).replace(".", "_").lstrip("_")
                editor.replace(node, editor.add_constant(value, name=f"c_{name}", origins=node))
                editor.erase(node)


_VARIANTS: dict[OpOverload | DefinedOperator, Any] = {
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
            variant = _VARIANTS.get(underlying(node.target)) if callable(node.target) else None
            if variant is None:
                continue
            value = node.meta["val"]
            kwargs = {key: node.kwargs[key] for key in _KEPT_ARGUMENTS if key in node.kwargs}
            kwargs["dim_order"] = list(dim_order_from_stride(value.stride(), value.shape))
            editor.retarget(node, variant, node.args, kwargs, val=value)
            editor.rename(node, editor.graph._target_to_str(variant))


# Assertions are no operators of the Edge dialect: they stay as they are until the graph is lowered further.
_ASSERTIONS = frozenset(
    {
        torch.ops.aten._assert_scalar.default,
        torch.ops.aten._assert_async.msg,
        torch.ops.aten.sym_constrain_range.default,
        torch.ops.aten.sym_constrain_range_for_size.default,
    }
)


class ConvertToEdgeOperators(Pass):
    """Replace each torch overload by its edge handle, and name the node after it.

    Ensures: call targets are edge handles, arithmetic on sizes, `getitem`, or assertions.

    Before: `%add = aten.add.Tensor(%x, %y)`
    After: `%aten_add_tensor = edge.aten.add.Tensor(%x, %y)`
    """

    name = "convert-to-edge-operators"
    enters_bodies = True
    requires = ("functional", "control-flow", "no-views", "tensor-arguments", "constants-lifted")
    ensures = ("edge-operators",)
    invalidates = ("core-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Convert every call."""
        names: dict[EdgeOpOverload, str] = {}
        for node in editor.graph.nodes:
            target = node.target
            if node.op != "call_function" or not isinstance(target, OpOverload) or target in _ASSERTIONS:
                continue
            handle = edge_operator(target)
            editor.retarget(node, handle, val=node.meta.get("val"))
            if handle not in names:
                names[handle] = editor.graph._target_to_str(handle)
            editor.rename(node, names[handle])
