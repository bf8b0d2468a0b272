"""Ranges: between which numbers all elements of a tensor lie, or a size; words and arithmetic of ranges."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from exirkit.patterns.functions.words import word

_INF = math.inf


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of numbers: of all elements of a tensor, or of a size.

    Attributes:
        lo: No number is less.
        hi: No number is greater.
        nan: Whether one may be not a number.
    """

    lo: Any
    hi: Any
    nan: bool = False

    def __add__(self, other: Any) -> Range:
        one = as_range(other)
        meets = (self.lo == -_INF and one.hi == _INF) or (self.hi == _INF and one.lo == -_INF)
        lo = -_INF if -_INF in (self.lo, one.lo) else self.lo + one.lo
        hi = _INF if _INF in (self.hi, one.hi) else self.hi + one.hi
        return Range(lo, hi, self.nan or one.nan or meets)

    def __neg__(self) -> Range:
        return Range(-self.hi, -self.lo, self.nan)

    def __sub__(self, other: Any) -> Range:
        return self + -as_range(other)

    def __rsub__(self, other: Any) -> Range:
        return as_range(other) + -self

    def __mul__(self, other: Any) -> Range:
        one = as_range(other)
        ends = [_product(a, b) for a in (self.lo, self.hi) for b in (one.lo, one.hi)]
        lost = (_has_zero(self) and _is_infinite(one)) or (_has_zero(one) and _is_infinite(self))
        return Range(min(ends), max(ends), self.nan or one.nan or lost)

    __radd__ = __add__
    __rmul__ = __mul__

    def contains(self, other: Range) -> bool:
        """Whether all numbers of another range are in this one."""
        return bool(self.lo <= other.lo and other.hi <= self.hi and self.nan >= other.nan)

    def text(self) -> str:
        """Return it as it is written in accounts: `[0, 1]`, `[-inf, inf] or nan`."""
        return f"[{_shown(self.lo)}, {_shown(self.hi)}]{' or nan' if self.nan else ''}"


def as_range(value: Any) -> Range:
    """Return a range; a number is the range of itself, a list of two its ends.

    Raises:
        TypeError: It is none of these.
    """
    if isinstance(value, Range):
        return value
    if isinstance(value, list | tuple) and len(value) == 2:
        return Range(*map(_number, value))
    return Range(_number(value), _number(value), isinstance(value, float) and math.isnan(value))


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, int | float):
        raise TypeError(f"a range has numbers as its ends, not {type(value).__name__}")
    return value


def _product(a: Any, b: Any) -> Any:
    return 0 if a == 0 or b == 0 else a * b


def _has_zero(one: Range) -> bool:
    return bool(one.lo <= 0 <= one.hi)


def _is_infinite(one: Range) -> bool:
    return bool(one.lo == -_INF or one.hi == _INF)


def _shown(end: Any) -> str:
    return f"{end:g}" if isinstance(end, float) else str(end)


@word()
def hull(*ranges: Any) -> Range:
    """Smallest range with all numbers of these ranges, numbers, or lists `[lo, hi]`."""
    found = [as_range(one) for one in ranges]
    return Range(min(one.lo for one in found), max(one.hi for one in found), any(one.nan for one in found))


@word()
def larger_of(a: Any, b: Any) -> Range:
    """Range of the larger one of two numbers in these ranges."""
    one, other = as_range(a), as_range(b)
    return Range(max(one.lo, other.lo), max(one.hi, other.hi), one.nan or other.nan)


@word()
def smaller_of(a: Any, b: Any) -> Range:
    """Range of the smaller one of two numbers in these ranges."""
    one, other = as_range(a), as_range(b)
    return Range(min(one.lo, other.lo), min(one.hi, other.hi), one.nan or other.nan)


# Ranges of tensors


def widest(dtype: torch.dtype) -> Range:
    """Return the range of which every tensor of a dtype is; for complex numbers it means nothing."""
    if dtype == torch.bool:
        return Range(0, 1)
    if dtype.is_floating_point or dtype.is_complex:
        return Range(-_INF, _INF, True)
    known = torch.iinfo(dtype)
    return Range(known.min, known.max)


def range_of_elements(tensor: torch.Tensor) -> Range:
    """Return the least range of which a tensor is; of one without elements, that of zero."""
    if tensor.dtype.is_complex or tensor.is_quantized or tensor.dtype not in _ORDERED:
        return widest(tensor.dtype)
    if not tensor.numel():
        return Range(0, 0)
    numbers = tensor.detach()
    if not tensor.is_floating_point():
        lo, hi = torch.aminmax(numbers.to(torch.uint8) if tensor.dtype == torch.bool else numbers)
        return Range(int(lo), int(hi))
    is_nan = torch.isnan(numbers)
    if not bool(is_nan.any()):
        lo, hi = torch.aminmax(numbers)
        return Range(float(lo), float(hi))
    numbers = numbers[~is_nan]
    if not numbers.numel():
        return Range(0, 0, True)
    lo, hi = torch.aminmax(numbers)
    return Range(float(lo), float(hi), True)


_ORDERED = frozenset(
    (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
     torch.float16, torch.bfloat16, torch.float32, torch.float64)
)  # fmt: skip


def in_dtype(one: Range, dtype: torch.dtype) -> Range:
    """Return the range of what a dtype makes of numbers: rounded outwards, or everything where integers wrap around.

    Rounding is monotonic, however many steps a kernel takes: what was between two numbers of the dtype stays there.
    """
    all_of_it = widest(dtype)
    if math.isnan(one.lo) or math.isnan(one.hi) or one.lo > one.hi:
        return all_of_it
    if dtype.is_floating_point:
        return Range(_outward(one.lo, dtype, -_INF), _outward(one.hi, dtype, _INF), one.nan)
    if dtype.is_complex or one.lo < all_of_it.lo or one.hi > all_of_it.hi:
        return all_of_it
    return Range(math.floor(one.lo), math.ceil(one.hi))


def _outward(end: Any, dtype: torch.dtype, towards: float) -> float:
    if abs(end) == _INF or (abs(end) <= 256 and end == int(end)):
        return float(end)
    if isinstance(end, int) and abs(end) >= 1 << 53:
        # A float64 may not hold it.
        end = math.nextafter(float(end), towards)
    made = torch.tensor(end, dtype=torch.float64).to(dtype)
    back = float(made)
    is_inside = back > end if towards < 0 else back < end
    return float(torch.nextafter(made, torch.tensor(towards, dtype=dtype))) if is_inside else back
