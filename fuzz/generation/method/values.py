"""What is known of a value while a program is made: type, interval, grid and who may disagree about it.

Exactness: a float value is on a grid if it is a multiple of 2**-bits, always. While such a value, and every partial sum
on the way to it, fits the mantissa of its dtype, arithmetic is exact, so that its order does not matter and any two
executors must agree (up to the sign of a zero).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from .extents import Extents

MANTISSA = {torch.float32: 24, torch.float64: 53, torch.float16: 11, torch.bfloat16: 8}
"""How many bits of a float are exact, by dtype."""

_RANGES: dict[torch.dtype, tuple[float, float]] = {
    torch.float32: (-1e30, 1e30),
    torch.float64: (-1e30, 1e30),
    torch.float16: (-3e4, 3e4),
    torch.bfloat16: (-1e30, 1e30),
    torch.int64: (-(2.0**62), 2.0**62),
    torch.int32: (-(2.0**31), 2.0**31 - 1),
    torch.int16: (-(2.0**15), 2.0**15 - 1),
    torch.int8: (-128, 127),
    torch.uint8: (0, 255),
    torch.bool: (0, 1),
}

_CALM = {
    torch.float32: 2.0**12,
    torch.float64: 2.0**12,
    torch.float16: 2.0**7,
    torch.bfloat16: 2.0**7,
    torch.int64: 2.0**20,
    torch.int32: 2.0**14,
    torch.int16: 2.0**8,
    torch.int8: 2.0**6,
    torch.uint8: 2.0**6,
    torch.bool: 1.0,
}

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)

Source = Literal["input", "stored", "result"]


class Fact(NamedTuple):
    """What a result is going to be.

    Attributes:
        dtype: Of its elements.
        sizes: Of its dims.
        low: No element is less.
        high: No element is greater.
        bits: Elements are multiples of 2**-bits; None for floats that are on no grid.
        is_dense: It is known to lie row by row, without gaps.
        is_undecided: Its elements depend on the last bits of something inexact.
    """

    dtype: torch.dtype
    sizes: Extents
    low: float
    high: float
    bits: int | None
    is_dense: bool = True
    is_undecided: bool = False


@dataclass(slots=True, eq=False)
class Value:
    """A value that calls can use.

    Attributes:
        name: Of the input, the stored tensor or the result.
        fact: What it is.
        source: Where it comes from.
        uses: How many arguments it is so far.
        root: The value whose elements it shows, for views.
    """

    name: str
    fact: Fact
    source: Source
    uses: int = 0
    root: str | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Of its elements."""
        return self.fact.dtype

    @property
    def sizes(self) -> Extents:
        """Of its dims."""
        return self.fact.sizes

    @property
    def rank(self) -> int:
        """Number of dims."""
        return len(self.fact.sizes)

    @property
    def magnitude(self) -> float:
        """No element is farther from 0."""
        return max(abs(self.fact.low), abs(self.fact.high))

    @property
    def is_exact(self) -> bool:
        """Whether all executors must agree about every element."""
        return self.fact.bits is not None and not self.fact.is_undecided


def is_float(dtype: torch.dtype) -> bool:
    """Whether a dtype is one of floats."""
    return dtype in MANTISSA


def fits(dtype: torch.dtype, low: float, high: float) -> bool:
    """Whether a dtype holds numbers of an interval."""
    least, greatest = _RANGES[dtype]
    return least <= low and high <= greatest


def range_of(dtype: torch.dtype) -> tuple[float, float]:
    """Return the interval that values of a dtype are kept in."""
    return _RANGES[dtype]


def calm_magnitude(dtype: torch.dtype) -> float:
    """Return what operands of arithmetic are kept below."""
    return _CALM[dtype]


def is_on_grid(dtype: torch.dtype, magnitude: float, bits: int | None) -> bool:
    """Whether multiples of 2**-bits up to a magnitude are all numbers of a dtype."""
    if bits is None:
        return False
    mantissa = MANTISSA.get(dtype)
    return mantissa is None or (magnitude <= 2.0 ** (mantissa - bits) and bits <= 14)


def bits_of(number: float) -> int | None:
    """Return how many binary places a number needs, or None if that is more than any grid has."""
    if isinstance(number, int):
        return 0
    if not math.isfinite(number):
        return None
    _, denominator = float(number).as_integer_ratio()
    places = denominator.bit_length() - 1
    return places if places <= 14 else None


def promoted(one: Value, other: Value) -> torch.dtype:
    """Return the dtype in which an operator combines two tensors; those without dims count less."""
    if (one.rank == 0) == (other.rank == 0) or one.dtype == other.dtype:
        return torch.promote_types(one.dtype, other.dtype)
    ranked, single = (one, other) if one.rank else (other, one)
    if _category(single.dtype) > _category(ranked.dtype):
        return torch.promote_types(single.dtype, ranked.dtype)
    return ranked.dtype


def promoted_with_number(dtype: torch.dtype, number: float) -> torch.dtype:
    """Return the dtype in which an operator combines a tensor and a number."""
    kind = 0 if isinstance(number, bool) else 1 if isinstance(number, int) else 2
    if kind <= _category(dtype):
        return dtype
    return torch.int64 if kind == 1 else torch.float32


def _category(dtype: torch.dtype) -> int:
    return 0 if dtype == torch.bool else 2 if dtype in MANTISSA else 1
