"""What operators of two operands return, and how operands are kept where they are defined.

A rule takes two operands, one of which may be a number, and returns bounds and grid of the results. Operands are kept
in range before: see `Guarded`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from exirkit.fuzz.generation.method.values import bits_of


class Operand(NamedTuple):
    """What is known of an operand: its interval and grid."""

    low: float
    high: float
    bits: int | None

    @property
    def magnitude(self) -> float:
        """No element is farther from 0."""
        return max(abs(self.low), abs(self.high))


class Outcome(NamedTuple):
    """What is known of the results.

    Attributes:
        low: No element is less.
        high: No element is greater.
        bits: Of the grid, or None.
        decides: Results jump, so that the last bit of an operand changes them.
    """

    low: float
    high: float
    bits: int | None
    decides: bool = False


def number_operand(number: float) -> Operand:
    """Return a number as an operand."""
    return Operand(number, number, bits_of(number))


def _finest(one: Operand, other: Operand) -> int | None:
    return None if one.bits is None or other.bits is None else max(one.bits, other.bits)


def _sum(one: Operand, other: Operand) -> Outcome:
    return Outcome(one.low + other.low, one.high + other.high, _finest(one, other))


def _difference(one: Operand, other: Operand) -> Outcome:
    return Outcome(one.low - other.high, one.high - other.low, _finest(one, other))


def _reverse_difference(one: Operand, other: Operand) -> Outcome:
    return _difference(other, one)


def _product(one: Operand, other: Operand) -> Outcome:
    corners = [one.low * other.low, one.low * other.high, one.high * other.low, one.high * other.high]
    bits = None if one.bits is None or other.bits is None else one.bits + other.bits
    return Outcome(min(corners), max(corners), bits)


def _quotient(one: Operand, other: Operand) -> Outcome:
    """Divide by something that is not 0 and of one sign."""
    corners = [one.low / other.low, one.low / other.high, one.high / other.low, one.high / other.high]
    bits = None
    if other.low == other.high and one.bits is not None:
        inverse = bits_of(1 / other.low)
        bits = None if inverse is None or bits_of(other.low) is None else one.bits + inverse
    return Outcome(min(corners), max(corners), bits)


def _whole_quotient(one: Operand, other: Operand) -> Outcome:
    made = _quotient(one, other)
    return Outcome(math.floor(made.low), math.ceil(made.high), 0, decides=True)


def _remainder(one: Operand, other: Operand) -> Outcome:
    most = min(other.magnitude, one.magnitude + other.magnitude)
    return Outcome(-most, most, _finest(one, other), decides=True)


def _maximum(one: Operand, other: Operand) -> Outcome:
    return Outcome(max(one.low, other.low), max(one.high, other.high), _finest(one, other))


def _minimum(one: Operand, other: Operand) -> Outcome:
    return Outcome(min(one.low, other.low), min(one.high, other.high), _finest(one, other))


def _angle(_one: Operand, _other: Operand) -> Outcome:
    return Outcome(-3.25, 3.25, None)


def _power(one: Operand, other: Operand) -> Outcome:
    """Raise something positive to a small power, or anything to a whole number."""
    if other.low == other.high and other.low in (2, 3):
        times = int(other.low)
        bits = None if one.bits is None else times * one.bits
        corners = [one.low**times, one.high**times] + ([0.0] if one.low <= 0 <= one.high else [])
        return Outcome(min(corners), max(corners), bits)
    corners = [one.low**other.low, one.low**other.high, one.high**other.low, one.high**other.high]
    return Outcome(min(corners), max(corners), None)


def _compared(_one: Operand, _other: Operand) -> Outcome:
    return Outcome(0, 1, 0, decides=True)


def _bitwise(one: Operand, other: Operand) -> Outcome:
    if one.high <= 1 and other.high <= 1 and one.low >= 0 and other.low >= 0:
        return Outcome(0, 1, 0)
    most = 2 ** int(max(one.magnitude, other.magnitude) + 1).bit_length()
    return Outcome(0 if one.low >= 0 and other.low >= 0 else -most, most - 1, 0)


def _left_shift(one: Operand, other: Operand) -> Outcome:
    return Outcome(0, one.high * 2**other.high, 0)


def _right_shift(one: Operand, _other: Operand) -> Outcome:
    return Outcome(min(one.low, 0), max(one.high, 0), 0)


RULES: Mapping[str, Callable[[Operand, Operand], Outcome]] = {
    "add": _sum,
    "sub": _difference,
    "rsub": _reverse_difference,
    "mul": _product,
    "div": _quotient,
    "div_mode": _whole_quotient,
    "floor_divide": _whole_quotient,
    "remainder": _remainder,
    "maximum": _maximum,
    "minimum": _minimum,
    "atan2": _angle,
    "pow": _power,
    "pow_of": lambda one, other: _power(other, one),
    "compare": _compared,
    "bitwise": _bitwise,
    "left_shift": _left_shift,
    "right_shift": _right_shift,
}
"""By the name that the catalogue gives them."""

DOMAINS: Mapping[str, tuple[tuple[float, float] | None, tuple[float, float] | None]] = {
    "atan2": (None, (0.25, 1024)),
    "pow": ((0.25, 4), (-2, 2)),
    "pow_of": ((-4, 4), None),
    "left_shift": ((0, 15), (0, 3)),
    "right_shift": (None, (0, 3)),
}
"""Intervals that first and second operands are kept in, by rule."""

NEEDS_DIVISOR = frozenset({"div", "div_mode", "floor_divide", "remainder"})
"""Rules whose second operand must not be 0."""

NUMBERS: Mapping[str, tuple[float, ...]] = {
    "add": (1, -2, 0.5, 0, 3),
    "sub": (1, 2, 0.25, -3),
    "rsub": (1, 0.5, 2),
    "mul": (2, -1, 0.5, 3, 0, 1),
    "div": (2, 4, 0.5, 3, -2),
    "div_mode": (2, 3, 0.5, -2),
    "remainder": (2, 3, 0.5, 1.5),
    "pow": (2, 3, 0.5, 2),
    "pow_of": (2, 1.5, 0.5),
    "compare": (0, 1, 0.5, -1),
    "bitwise": (1, 6, 3),
    "left_shift": (1, 2, 3),
    "right_shift": (1, 2),
}
"""Numbers that replace an operand, by rule, the simplest first."""

DECIDING = frozenset({"compare", "div_mode", "floor_divide", "remainder"})
"""Rules whose results jump."""
