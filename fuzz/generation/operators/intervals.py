"""Bounds of what operators of one tensor return, by the name that the catalogue gives them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

Interval = tuple[float, float]


def _growing(function: Callable[[float], float]) -> Callable[[float, float], Interval]:
    return lambda low, high: (function(low), function(high))


def _falling(function: Callable[[float], float]) -> Callable[[float, float], Interval]:
    return lambda low, high: (function(high), function(low))


def _fixed(low: float, high: float) -> Callable[[float, float], Interval]:
    return lambda _low, _high: (low, high)


def _abs(low: float, high: float) -> Interval:
    return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _square(low: float, high: float) -> Interval:
    least, most = _abs(low, high)
    return least * least, most * most


def _cosh(low: float, high: float) -> Interval:
    least, most = _abs(low, high)
    return math.cosh(least), math.cosh(most)


def _sign(low: float, high: float) -> Interval:
    return math.copysign(1, low) if low else 0, math.copysign(1, high) if high else 0


def _not(low: float, high: float) -> Interval:
    return -high - 1, -low - 1


def _softplus(value: float) -> float:
    return math.log1p(math.exp(value))


INTERVALS: Mapping[str, Callable[[float, float], Interval]] = {
    "same": lambda low, high: (low, high),
    "abs": _abs,
    "neg": lambda low, high: (-high, -low),
    "relu": lambda low, high: (max(low, 0), max(high, 0)),
    "relu6": lambda low, high: (min(max(low, 0), 6), min(max(high, 0), 6)),
    "round": lambda low, high: (math.floor(low), math.ceil(high)),
    "sign": _sign,
    "square": _square,
    "exp": _growing(math.exp),
    "expm1": _growing(math.expm1),
    "log": _growing(math.log),
    "log2": _growing(math.log2),
    "log10": _growing(math.log10),
    "log1p": _growing(math.log1p),
    "sqrt": _growing(math.sqrt),
    "rsqrt": _falling(lambda value: 1 / math.sqrt(value)),
    "reciprocal": _falling(lambda value: 1 / value),
    "unit": _fixed(-1, 1),
    "unit2": _fixed(-2, 2),
    "sigmoid": _fixed(0, 1),
    "tan": _growing(math.tan),
    "sinh": _growing(math.sinh),
    "cosh": _cosh,
    "asin": _fixed(-1.6, 1.6),
    "acos": _fixed(0, 3.2),
    "asinh": _growing(math.asinh),
    "acosh": _growing(math.acosh),
    "atanh": _growing(math.atanh),
    "bump": lambda _low, high: (-0.5, max(high, 0)),
    "softplus": _growing(_softplus),
    "below": lambda low, _high: (min(low, 0) - 0.75, 0),
    "selu": lambda low, high: (-1.8 if low < 0 else 0, 1.06 * max(high, 0)),
    "elu": lambda low, high: (-1.5 if low < 0 else 0, 1.5 * max(high, 0)),
    "not": _not,
    "zero": _fixed(0, 0),
    "one": _fixed(1, 1),
    "two": _fixed(1, 2),
}
"""Functions of the bounds of the operand."""
