"""Make the operands of arithmetic agree in dtype."""

from __future__ import annotations

import torch
from torch.fx import Node

from exirkit.ir import GraphEditor, underlying

from .contract import Pass

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


class PromoteTypes(Pass):
    """Insert casts so that both operands of an arithmetic operator have the dtype that torch promotes them to.

    Ensures: operands of the operators above have one dtype.

    Before: `%add = aten.add.Tensor(%i64, %f32)`
    After: `%c = aten._to_copy.default(%i64, dtype=torch.float32)`; `%add = aten.add.Tensor(%c, %f32)`
    """

    name = "promote-types"
    enters_bodies = True

    def edit(self, editor: GraphEditor) -> None:
        """Insert the casts."""
        for node in list(editor.graph.nodes):
            if node.op != "call_function" or underlying(node.target) not in _ARITHMETIC:
                continue
            left, right = node.args[:2]
            if not (isinstance(left, Node) and isinstance(right, Node)):
                continue
            values = left.meta["val"], right.meta["val"]
            if values[0].dtype == values[1].dtype:
                continue
            promoted = torch.result_type(*values)
            cast = [self._cast(editor, node, operand, promoted) for operand in (left, right)]
            editor.rewire(node, (*cast, *node.args[2:]), val=node.meta["val"])

    @staticmethod
    def _cast(editor: GraphEditor, node: Node, operand: Node, dtype: torch.dtype) -> Node:
        if operand.meta["val"].dtype == dtype:
            return operand
        return editor.call(torch.ops.aten._to_copy.default, (operand,), {"dtype": dtype}, before=node, origins=node)
