"""Operators that kernels compute otherwise for integers than PyTorch does."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import ops

from .edge_calls import CallLegalization, EdgeCalls

aten = ops.edge.aten

_POWER = aten.pow.Tensor_Scalar
_POWERS_OF_TENSORS = frozenset({aten.pow.Tensor_Tensor, aten.pow.Scalar})
# Bits of exponents that are multiplied out one by one, and those that some dtypes have at most.
_MOST_BITS = 7
_BITS = {torch.bool: 1, torch.int8: 7, torch.uint8: 8}
# Single precision holds integers up to here.
_EXACT = 2**24
_REMAINDERS = frozenset({aten.remainder.Tensor, aten.remainder.Scalar})
_TRUNCATED_REMAINDERS = frozenset({aten.fmod.Tensor, aten.fmod.Scalar})
_ROUNDINGS = frozenset({aten.floor.default, aten.ceil.default, aten.trunc.default})


class LegalizeIntegers(CallLegalization):
    """Compute with integers alone what kernels compute in floating point, and cast integers that a float is added to.

    The kernels of the official runtime give a remainder the sign of the dividend. They compute powers, truncated
    quotients and remainders in double precision, and what is rounded to integers, and sums along one dim that keep
    their dtype, in single precision: of a number beyond 2^53, or 2^24, the last digits are lost. Quotients rounded
    down, products and cumulative sums of integers are exact, up to what wraps around, as it does in eager torch. The
    kernel that adds a number to a tensor rejects one that leads to another dtype than that of the tensor.

    Before: `%y = aten.remainder.Scalar(%x_i64, 3)`
    After: `%q = aten.div.Tensor_mode(%x_i64, %three, rounding_mode="floor")`; `%p = aten.mul.Tensor(%q, %three)`;
        `%y = aten.sub.Tensor(%x_i64, %p)`
    """

    name = "legalize-integers"

    def made(self, calls: EdgeCalls) -> Node:
        """Compute the result from exact ones."""
        node = calls.node
        target = node.target
        if target in _POWERS_OF_TENSORS:
            return _power_of_tensors(calls, node)
        if target is _POWER:
            return _power(calls, node)
        if target is aten.add.Scalar:
            tensor, number, factor = calls.given("self", "other", "alpha")
            return calls(aten.add.Scalar, calls.cast(tensor, node.meta["val"].dtype), number, factor)
        if target in _ROUNDINGS:
            # The one of these kernels that copies integers.
            return calls(aten.round.default, node.args[0])
        if target is aten.sum.dim_IntList:
            return _sum(calls)
        quotient, remainder = _divided(calls)
        if target in _REMAINDERS:
            return remainder
        is_less = _is_less_than_truncated(calls, remainder)
        if target in _TRUNCATED_REMAINDERS:
            return calls(aten.where.self, is_less, calls(aten.sub.Tensor, remainder, _divisor(calls)), remainder)
        return calls(aten.add.Tensor, quotient, calls.cast(is_less, quotient.meta["val"].dtype))

    @staticmethod
    def concerns(node: Node) -> bool:
        """Whether the pass would replace a node."""
        target = node.target
        if target is aten.add.Scalar:
            source: Any = node.args[0]
            return bool(source.meta["val"].dtype != node.meta["val"].dtype)
        if target in _REMAINDERS or target in _POWERS_OF_TENSORS or target is _POWER:
            return _is_integer(node.meta["val"].dtype)
        if target is aten.sum.dim_IntList:
            return _may_lose_digits(node)
        if target in _ROUNDINGS:
            return node.meta["val"].dtype in (torch.int32, torch.int64)
        # Double precision is exact for quotients of narrower integers.
        if target is aten.div.Tensor_mode:
            return _is_long(node) and node.kwargs.get("rounding_mode") == "trunc"
        return target in _TRUNCATED_REMAINDERS and _is_long(node)


def _is_integer(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype is torch.bool)


def _may_lose_digits(node: Node) -> bool:
    """Return whether a sum of integers may be one that single precision does not hold."""
    summed: Any = node.args[0]
    value, dtype = summed.meta["val"], node.meta["val"].dtype
    if value.ndim == 0 or not _is_integer(dtype) or value.dtype is not dtype:
        return False
    if dtype is torch.int64:
        return True
    dims: Any = node.args[1] if len(node.args) > 1 else None
    reduced = dims or range(value.ndim)
    if len(reduced) > 1:
        # Summed up in the dtype itself.
        return False
    size = value.shape[reduced[0]]
    return not isinstance(size, int) or size * (torch.iinfo(dtype).max + 1) > _EXACT


def _is_long(value: Any) -> bool:
    return isinstance(value, Node) and value.meta["val"].dtype is torch.int64


def _dividend(calls: EdgeCalls) -> Node:
    """Return what is divided in the dtype of the result: no kernel subtracts integers from booleans."""
    dividend: Any = calls.node.args[0]
    return calls.cast(dividend, calls.node.meta["val"].dtype)


def _divisor(calls: EdgeCalls) -> Node:
    """Return the divisor as a tensor of the dtype of the result."""
    return _of_dtype(calls, calls.node.args[1], calls.node.meta["val"].dtype)


def _divided(calls: EdgeCalls) -> tuple[Node, Node]:
    """Return the quotient of the arguments, rounded down, and what remains, which has the sign of the divisor."""
    dividend, divisor = _dividend(calls), _divisor(calls)
    quotient = calls(aten.div.Tensor_mode, dividend, divisor, rounding_mode="floor")
    return quotient, calls(aten.sub.Tensor, dividend, calls(aten.mul.Tensor, quotient, divisor))


def _is_less_than_truncated(calls: EdgeCalls, remainder: Node) -> Node:
    """Return where a quotient rounded down is less than one rounded towards zero."""
    signs = calls(aten.bitwise_xor.Tensor, _dividend(calls), _divisor(calls))
    return calls(aten.logical_and.default, calls(aten.ne.Scalar, remainder, 0), calls(aten.lt.Scalar, signs, 0))


def _sum(calls: EdgeCalls) -> Node:
    """Return the last of the cumulative sums over each dim."""
    total: Node
    total, dims, keepdim = calls.given("self", "dim", "keepdim")
    rank = total.meta["val"].ndim
    for dim in sorted((one % rank for one in dims or range(rank)), reverse=True):
        size = total.meta["val"].shape[dim]
        if not isinstance(size, int) or size == 0:
            # So that there is a last one, also where a size that varies is 0.
            pad = [0] * (2 * (total.meta["val"].ndim - 1 - dim)) + [1, 0]
            total = calls(aten.constant_pad_nd.default, total, pad, 0)
        sums = calls(aten.cumsum.default, total, dim, dtype=total.meta["val"].dtype)
        total = calls(aten.select_copy.int, sums, dim, -1)
        if keepdim:
            total = calls(aten.unsqueeze_copy.default, total, dim)
    return total


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
    bits = _bits_of_exponent(calls, node.args[1], dtype)
    zero, one = (calls(aten.full.default, [], number, dtype=dtype) for number in (0, 1))
    made, square = one, base
    for place in range(bits or _MOST_BITS):
        if place:
            square = calls(aten.mul.Tensor, square, square)
        is_set = calls(aten.ne.Scalar, calls(aten.bitwise_and.Scalar, exponent, 1 << place), 0)
        factor = calls(aten.where.self, is_set, square, one)
        made = factor if place == 0 else calls(aten.mul.Tensor, made, factor)
    if bits is None:
        made = calls(aten.mul.Tensor, made, _power_of_great_exponent(calls, base, square, exponent, one, zero))
    if dtype is torch.uint8:
        return made
    # A negative power of an integer is zero, but for 1, and for -1, whose sign is that of the exponent's last bit.
    sign = calls(aten.where.self, calls(aten.ne.Scalar, calls(aten.bitwise_and.Scalar, exponent, 1), 0), base, one)
    is_unit = calls(aten.logical_or.default, calls(aten.eq.Scalar, base, 1), calls(aten.eq.Scalar, base, -1))
    inverse = calls(aten.where.self, is_unit, sign, zero)
    return calls(aten.where.self, calls(aten.lt.Scalar, exponent, 0), inverse, made)


def _bits_of_exponent(calls: EdgeCalls, exponent: Any, dtype: torch.dtype) -> int | None:
    """Return how many low bits of an exponent determine it where it is not negative, or None if that may be many."""
    known = calls.known(exponent)
    if known is not None and known.numel():
        # What is cast to a narrower dtype wraps around.
        bits = max(1, int(known.to(dtype).max()).bit_length())
        if bits <= _MOST_BITS:
            return bits
    found = [_BITS[one] for one in (dtype, exponent.meta["val"].dtype) if one in _BITS]
    return min(found, default=None)


def _power_of_great_exponent(calls: EdgeCalls, base: Node, square: Node, exponent: Node, one: Node, zero: Node) -> Node:
    """Return the power whose exponent is the given one without its lowest bits.

    The power of an odd base whose exponent is 2^7 leaves 1 when divided by 2^9, and 1 + x to the q is the sum of
    `binomial(q, i) * x^i`: i factors of 2^9, less what the factorial of i has of twos, are soon out of range.

    Args:
        calls: Makes the calls.
        base: The base.
        square: The base to the highest of the powers that the lowest bits stand for.
        exponent: The exponent.
        one: The number 1.
        zero: The number 0.
    """
    width = torch.iinfo(base.meta["val"].dtype).bits
    count = max(i for i in range(1, width) if (_MOST_BITS + 2) * i - (i - i.bit_count()) < width)
    x = calls(aten.sub.Tensor, calls(aten.mul.Tensor, square, square), one)
    quotient = calls(aten.div.Scalar_mode, exponent, 1 << _MOST_BITS, rounding_mode="floor")
    # From the inside: 1 + q * x * (1 + (q - 1) * x / 2 * (1 + (q - 2) * x / 3 * ...)).
    made: Node | None = None
    for i in range(count, 0, -1):
        left = quotient if i == 1 else calls(aten.add.Scalar, quotient, 1 - i)
        term = calls(aten.mul.Tensor, left, _divided_by(calls, x, i))
        made = calls(aten.add.Scalar, term if made is None else calls(aten.mul.Tensor, term, made), 1)
    # An even base leaves nothing of an exponent that has a higher bit.
    is_odd = calls(aten.ne.Scalar, calls(aten.bitwise_and.Scalar, base, 1), 0)
    is_small = calls(aten.lt.Scalar, exponent, 1 << _MOST_BITS)
    return calls(aten.where.self, calls(aten.logical_or.default, is_odd, is_small), made, zero)


def _divided_by(calls: EdgeCalls, x: Node, number: int) -> Node:
    """Return a multiple of 2^9 divided by a small number, but for its highest bits: in 2-adic integers, up to 2^n."""
    width = torch.iinfo(x.meta["val"].dtype).bits
    two = number & -number
    odd = pow(number // two, -1, 1 << width)
    if two > 1:
        x = calls(aten.div.Scalar_mode, x, two, rounding_mode="floor")
    return x if odd == 1 else calls(aten.mul.Scalar, x, odd - (odd >> (width - 1) << width))


def _of_dtype(calls: EdgeCalls, value: Any, dtype: torch.dtype) -> Node:
    if isinstance(value, Node) and isinstance(value.meta["val"], torch.Tensor):
        return calls.cast(value, dtype)
    return calls(aten.full.default, [], value, dtype=dtype)
