"""Numbers in the place of symbolic sizes.

An operator on symbolic fake tensors asks hundreds of questions about expressions; one on a few numeric sizes asks none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import sympy
import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from .meta_tensors import bare_tensor

_WIDEST = 97
"""Above its least size no symbol is tried higher than by this."""

Point: TypeAlias = "dict[Any, int]"
"""A number for each symbol."""
Ranges: TypeAlias = "Mapping[Any, tuple[int, int]]"
"""Least and greatest size of each symbol."""


def points_within(ranges: Ranges, *, alone: bool = False) -> list[Point]:
    """Return sizes to try: the least and the greatest of all together, and uneven ones in between, the latter first.

    Args:
        ranges: Of the symbols.
        alone: Also take each symbol by itself to the ends of its range.
    """
    lows = {one: low for one, (low, _) in ranges.items()}
    highs = {one: min(high, low + _WIDEST) for one, (low, high) in ranges.items()}
    middle = {
        one: low + (highs[one] - low) * share // 7
        for (one, low), share in zip(lows.items(), (3, 5, 2, 4, 1, 6) * len(lows), strict=False)
    }
    found = [middle, lows, highs]
    for one in ranges if alone else ():
        found += [{**middle, one: lows[one]}, {**middle, one: highs[one]}]
    unique = {tuple(one.values()): one for one in found}
    return list(unique.values())


def points_of(ranges: Ranges, *, most: int) -> list[Point]:
    """Return all combinations of sizes, or those of `points_within` if there are more than `most`."""
    sizes = [range(low, high + 1) for low, high in ranges.values()]
    if math.prod(map(len, sizes)) > most:
        return points_within(ranges, alone=True)
    return [dict(zip(ranges, choice, strict=True)) for choice in itertools.product(*sizes)]


def symbols_within(values: Any) -> Iterator[Any]:
    """Yield the symbols in the sizes and numbers of arguments or values, some of them repeatedly, in a fixed order."""
    found: list[Any] = []
    map_aggregate(values, found.append)
    for one in found:
        value = one.meta.get("val") if isinstance(one, Node) else one
        sizes: tuple[Any, ...] = (value,)
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            sizes = (*value.shape, *value.stride(), value.storage_offset())
        for size in sizes:
            if isinstance(size, torch.SymInt):
                yield from sorted_symbols(size.node.expr)


def at_point(arguments: Any, point: Point) -> Any:
    """Return arguments with numbers for symbolic ones, and tensors without memory for values of nodes."""
    key = tuple(point.items())

    def place(argument: Any) -> Any:
        value = argument.meta.get("val") if isinstance(argument, Node) else argument
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            numbers = [[_number(one, key) for one in each] for each in (value.shape, value.stride())]
            return bare_tensor(value.dtype, numbers[0], numbers[1], _number(value.storage_offset(), key))
        return _number(value, key) if isinstance(value, torch.SymInt) else value

    return map_aggregate(arguments, place)


def evaluated(expression: Any, point: Point) -> int:
    """Return what an expression is at a point, which has a number for each of its symbols."""
    return _evaluated(expression, tuple(point.items()))


@lru_cache(maxsize=4096)
def sorted_symbols(expression: Any) -> tuple[Any, ...]:
    """Return the symbols of an expression by name."""
    return tuple(sorted(expression.free_symbols, key=str))


def _number(size: Any, point: tuple[tuple[Any, int], ...]) -> int:
    return size if type(size) is int else _evaluated(size.node.expr, point)


@lru_cache(maxsize=50_000)
def _evaluated(expression: Any, point: tuple[tuple[Any, int], ...]) -> int:
    return int(expression.xreplace({one: sympy.Integer(value) for one, value in point}))
