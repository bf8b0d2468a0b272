"""Put edge handles in the place of torch overloads."""

from __future__ import annotations

import torch
from torch._ops import OpOverload

from exirkit.ir import EdgeOpOverload, GraphEditor, edge_operator
from exirkit.passes.contract import Pass

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
