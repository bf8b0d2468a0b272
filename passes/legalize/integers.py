"""Remainders and powers of integers, for runtimes that give them the wrong sign or round them."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import GraphEditor, ops
from exirkit.passes.contract import Pass

from .edge_calls import EdgeCalls

aten = ops.edge.aten

_POWER = aten.pow.Tensor_Scalar
_REMAINDERS = frozenset({aten.remainder.Tensor, aten.remainder.Scalar})


class LegalizeIntegers(Pass):
    """Replace remainders and powers of integers by quotients and products.

    The kernels of the official runtime give a remainder the sign of the dividend, and compute powers in double
    precision. Quotients rounded down and products of integers are exact. Powers whose exponents are tensors stay: their
    results are right up to 2**53.

    Before: `%y = aten.remainder.Scalar(%x_i64, 3)`
    After: `%q = aten.div.Tensor_mode(%x_i64, %three, rounding_mode="floor")`; `%p = aten.mul.Tensor(%q, %three)`;
        `%y = aten.sub.Tensor(%x_i64, %p)`
    """

    name = "legalize-integers"
    enters_bodies = True
    requires = ("edge-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Replace the calls, in graph order."""
        for node in list(editor.graph.nodes):
            if self.concerns(node):
                calls = EdgeCalls(editor, node)
                editor.replace(node, _power(calls, node) if node.target is _POWER else _remainder(calls, node))
                editor.erase(node)

    @staticmethod
    def concerns(node: Node) -> bool:
        """Whether the pass would replace a node."""
        if node.target not in _REMAINDERS and node.target is not _POWER:
            return False
        value: torch.Tensor = node.meta["val"]
        return not (value.is_floating_point() or value.is_complex() or value.dtype is torch.bool)


def _remainder(calls: EdgeCalls, node: Node) -> Node:
    dividend, divisor = node.args[:2]
    if not isinstance(divisor, Node):
        dtype = node.meta["val"].dtype
        divisor = calls(aten.full.default, [], divisor, dtype=dtype)
    quotient = calls(aten.div.Tensor_mode, dividend, divisor, rounding_mode="floor")
    return calls(aten.sub.Tensor, dividend, calls(aten.mul.Tensor, quotient, divisor))


def _power(calls: EdgeCalls, node: Node) -> Node:
    """Multiply out a power, by squares."""
    source: Any = node.args[0]
    exponent: Any = node.args[1]
    base = calls.cast(source, node.meta["val"].dtype)
    if exponent == 0:
        return calls(aten.add.Scalar, calls(aten.mul.Scalar, base, 0), 1)
    made: Node | None = None
    square, left = base, int(exponent)
    while True:
        if left % 2:
            made = square if made is None else calls(aten.mul.Tensor, made, square)
        left //= 2
        if not left:
            return made if made is not None else base
        square = calls(aten.mul.Tensor, square, square)
