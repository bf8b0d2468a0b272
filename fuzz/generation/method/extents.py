"""Sizes: numbers, or sums of multiples of symbols whose ranges are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from exirkit.fuzz.programs import Symbol

MOST_ELEMENTS = 4000
"""Elements of the largest tensor that a call is to make."""


@dataclass(frozen=True, slots=True)
class Affine:
    """A size that callers choose: a constant and multiples of symbols.

    Attributes:
        constant: What is added.
        terms: Name of each symbol and how often it is taken, in the order of the names; never empty.
        low: Least value.
        high: Greatest value.
    """

    constant: int
    terms: tuple[tuple[str, int], ...]
    low: int
    high: int

    def __str__(self) -> str:
        parts = [name if factor == 1 else f"{factor} * {name}" for name, factor in self.terms]
        text = " + ".join(parts)
        if self.constant:
            text += f" {'+' if self.constant > 0 else '-'} {abs(self.constant)}"
        return text


Extent: TypeAlias = "int | Affine"
Extents: TypeAlias = "tuple[Extent, ...]"


def symbolic(symbol: Symbol) -> Affine:
    """Return the size that a symbol names."""
    return Affine(0, ((symbol.name, 1),), symbol.low, symbol.high)


def low_of(extent: Extent) -> int:
    """Return the least value."""
    return extent if isinstance(extent, int) else extent.low


def high_of(extent: Extent) -> int:
    """Return the greatest value."""
    return extent if isinstance(extent, int) else extent.high


def plus(one: Extent, other: Extent) -> Extent:
    """Return the sum of two sizes."""
    if isinstance(one, int) and isinstance(other, int):
        return one + other
    if isinstance(one, int):
        one, other = other, one
    assert isinstance(one, Affine)
    if isinstance(other, int):
        return Affine(one.constant + other, one.terms, one.low + other, one.high + other) if other else one
    factors = dict(one.terms)
    for name, factor in other.terms:
        factors[name] = factors.get(name, 0) + factor
    terms = tuple(sorted(factors.items()))
    return Affine(one.constant + other.constant, terms, one.low + other.low, one.high + other.high)


def times(extent: Extent, factor: int) -> Extent:
    """Return a multiple of a size; the factor is at least 0."""
    if isinstance(extent, int) or factor == 1:
        return extent * factor if isinstance(extent, int) else extent
    if factor == 0:
        return 0
    terms = tuple((name, count * factor) for name, count in extent.terms)
    return Affine(extent.constant * factor, terms, extent.low * factor, extent.high * factor)


def divided(extent: Extent, divisor: int) -> Extent | None:
    """Return a size divided by a number, or None if that is not a size for every value of the symbols."""
    if isinstance(extent, int):
        return extent // divisor if extent % divisor == 0 else None
    if extent.constant % divisor or any(factor % divisor for _, factor in extent.terms):
        return None
    terms = tuple((name, factor // divisor) for name, factor in extent.terms)
    return Affine(extent.constant // divisor, terms, extent.low // divisor, extent.high // divisor)


def factor_of(extent: Extent) -> int:
    """Return the greatest number that divides a size, whatever its symbols are."""
    if isinstance(extent, int):
        return extent
    return math.gcd(extent.constant, *(factor for _, factor in extent.terms))


def product(extents: Sequence[Extent]) -> Extent | None:
    """Return the product of sizes, or None if more than one of them has symbols."""
    number = 1
    found: Affine | None = None
    for extent in extents:
        if isinstance(extent, int):
            number *= extent
        elif found is None:
            found = extent
        else:
            return None
    return number if found is None else times(found, number)


def least_count(extents: Sequence[Extent]) -> int:
    """Return the least number of elements."""
    return math.prod(low_of(extent) for extent in extents)


def greatest_count(extents: Sequence[Extent]) -> int:
    """Return the greatest number of elements."""
    return math.prod(high_of(extent) for extent in extents)


def is_static(extents: Sequence[Extent]) -> bool:
    """Whether no size has symbols."""
    return all(isinstance(extent, int) for extent in extents)
