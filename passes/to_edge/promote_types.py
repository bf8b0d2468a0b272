"""Make the operands of arithmetic agree in dtype."""

from __future__ import annotations

import torch
from torch.fx import Node

from exirkit.ir import GraphEditor, underlying
from exirkit.passes.contract import Pass

# Operators whose two operands the kernels of small runtimes want in one dtype.
_ARITHMETIC = frozenset(
    {
        torch.ops.aten.add.Tensor,
        torch.ops.aten.sub.Tensor,
        torch.ops.aten.mul.Tensor,
        torch.ops.aten.div.Tensor,
        torch.ops.aten.div.Tensor_mode,
        torch.ops.aten.minimum.default,
        torch.ops.aten.maximum.default,
    }
)


_WHERE = torch.ops.aten.where.self


class PromoteTypes(Pass):
    """Insert casts so that both operands of an arithmetic operator have the dtype that torch promotes them to.

    Ensures: operands of the operators above have one dtype; those of `where` have it if one of them would not count in
        torch, because it has no dims, and does count in a kernel.

    Before: `%add = aten.add.Tensor(%i64, %f32)`
    After: `%c = aten._to_copy.default(%i64, dtype=torch.float32)`; `%add = aten.add.Tensor(%c, %f32)`
    """

    name = "promote-types"
    enters_bodies = True
    requires = ("tensor-arguments",)
    invalidates = ()
    before = ("convert-to-edge-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Insert the casts."""
        for node in list(editor.graph.nodes):
            op = underlying(node.target)
            if node.op != "call_function" or (op not in _ARITHMETIC and op is not _WHERE):
                continue
            at = 1 if op is _WHERE else 0
            left, right = node.args[at : at + 2]
            if not (isinstance(left, Node) and isinstance(right, Node)):
                continue
            one, other = left.meta["val"], right.meta["val"]
            promoted = torch.result_type(one, other)
            if one.dtype == other.dtype or (op is _WHERE and promoted == torch.promote_types(one.dtype, other.dtype)):
                continue
            cast = [self._cast(editor, node, operand, promoted) for operand in (left, right)]
            editor.rewire(node, (*node.args[:at], *cast, *node.args[at + 2 :]), val=node.meta["val"])

    @staticmethod
    def _cast(editor: GraphEditor, node: Node, operand: Node, dtype: torch.dtype) -> Node:
        if operand.meta["val"].dtype == dtype:
            return operand
        return editor.call(torch.ops.aten._to_copy.default, (operand,), {"dtype": dtype}, before=node, origins=node)
