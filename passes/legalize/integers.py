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
_POWERS_OF_TENSORS = frozenset({aten.pow.Tensor_Tensor, aten.pow.Scalar})
# Exponents from 64 on leave only bases whose powers do not depend on more than whether the exponent is odd.
_MOST_BITS = 7
_REMAINDERS = frozenset({aten.remainder.Tensor, aten.remainder.Scalar})


class LegalizeIntegers(Pass):
    """Replace remainders and powers of integers by quotients and products.

    The kernels of the official runtime give a remainder the sign of the dividend, and compute powers in double
    precision. Quotients rounded down and products of integers are exact, up to products that wrap around: what an odd
    base other than 1 and -1 leaves of an exponent of 128 or more is not what it leaves in eager torch.

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
                editor.replace(node, _made(calls, node))
                editor.erase(node)

    @staticmethod
    def concerns(node: Node) -> bool:
        """Whether the pass would replace a node."""
        if node.target not in _REMAINDERS and node.target not in _POWERS_OF_TENSORS and node.target is not _POWER:
            return False
        value: torch.Tensor = node.meta["val"]
        return not (value.is_floating_point() or value.is_complex() or value.dtype is torch.bool)


def _made(calls: EdgeCalls, node: Node) -> Node:
    if node.target in _POWERS_OF_TENSORS:
        return _power_of_tensors(calls, node)
    return _power(calls, node) if node.target is _POWER else _remainder(calls, node)


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


def _power_of_tensors(calls: EdgeCalls, node: Node) -> Node:
    """Multiply out a power whose exponent is a tensor, by the bits of the exponent."""
    dtype = node.meta["val"].dtype
    base, exponent = (_of_dtype(calls, one, dtype) for one in node.args[:2])
    bits = 8 if dtype is torch.uint8 else _MOST_BITS
    zero, one = (calls(aten.full.default, [], number, dtype=dtype) for number in (0, 1))
    made, square = one, base
    for place in range(bits):
        is_set = calls(aten.ne.Scalar, calls(aten.bitwise_and.Scalar, exponent, 1 << place), 0)
        if place == _MOST_BITS - 1 and dtype not in (torch.uint8, torch.int8):
            # All larger exponents have one of the bits that are not examined.
            is_set = calls(aten.logical_or.default, is_set, calls(aten.ge.Scalar, exponent, 1 << bits))
        factor = calls(aten.where.self, is_set, square, one)
        made = factor if place == 0 else calls(aten.mul.Tensor, made, factor)
        if place < bits - 1:
            square = calls(aten.mul.Tensor, square, square)
    if dtype is torch.uint8:
        return made
    # A negative power of an integer is zero, but for 1, and for -1, whose sign is that of the exponent's last bit.
    sign = calls(aten.where.self, calls(aten.ne.Scalar, calls(aten.bitwise_and.Scalar, exponent, 1), 0), base, one)
    is_unit = calls(aten.logical_or.default, calls(aten.eq.Scalar, base, 1), calls(aten.eq.Scalar, base, -1))
    inverse = calls(aten.where.self, is_unit, sign, zero)
    return calls(aten.where.self, calls(aten.lt.Scalar, exponent, 0), inverse, made)


def _of_dtype(calls: EdgeCalls, value: Any, dtype: torch.dtype) -> Node:
    return calls.cast(value, dtype) if isinstance(value, Node) else calls(aten.full.default, [], value, dtype=dtype)
