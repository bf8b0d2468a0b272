"""Symbolic sizes from samples: meta kernels run for a few numbers, and expressions are fitted to what they return.

An operator on symbolic fake tensors compares hundreds of expressions; on a few numeric sizes it compares none. Each
size of a result is an expression that agrees with all samples: a number, a size of an argument, or a linear combination
of symbols. A stride is a number, a stride of an argument, or a product of sizes. Where nothing fits, fake tensors are
needed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import sympy
import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from .meta_kernels import has_meta_value, meta_value, shared_meta_tensor

_WIDEST = 97
"""Above its least size no symbol is tried higher than by this."""

Sizes: TypeAlias = "dict[Any, int]"
"""A number for each symbol."""

Ranges: TypeAlias = "Mapping[Any, tuple[int, int]]"
"""Least and greatest size of each symbol."""


def sample_sizes(ranges: Ranges, *, alone: bool = False) -> list[Sizes]:
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


def all_sizes(ranges: Ranges, *, most: int) -> list[Sizes]:
    """Return all combinations of sizes, or those of `sample_sizes` if there are more than `most`."""
    sizes = [range(low, high + 1) for low, high in ranges.values()]
    if math.prod(map(len, sizes)) > most:
        return sample_sizes(ranges, alone=True)
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


def with_sizes(arguments: Any, point: Sizes) -> Any:
    """Return arguments with numbers for symbolic ones, and tensors without memory for values of nodes."""
    key = tuple(point.items())

    def place(argument: Any) -> Any:
        value = argument.meta.get("val") if isinstance(argument, Node) else argument
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            sizes, strides = (tuple(_number(one, key) for one in each) for each in (value.shape, value.stride()))
            return shared_meta_tensor(value.dtype, sizes, strides, _number(value.storage_offset(), key))
        return _number(value, key) if isinstance(value, torch.SymInt) else value

    return map_aggregate(arguments, place)


def evaluated(expression: Any, point: Sizes) -> int:
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


class NoFitError(Exception):
    """A size of the result is none of the expressions that are tried."""


def sampled_value(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], ranges: Ranges) -> Any:
    """Return the dtype, sizes, strides and offset of a result, or lists of them.

    Args:
        target: An operator.
        args: Arguments as in a graph; nodes have recorded values.
        kwargs: Keyword arguments as in a graph.
        ranges: Of the symbols in the arguments; at least one.

    Returns:
        For each tensor a tuple of its dtype, sizes, strides and storage offset; numbers and expressions of sympy.

    Raises:
        NoFitError: Fake tensors are needed.
    """
    if not has_meta_value(target):
        raise NoFitError
    if any(low == high for low, high in ranges.values()):
        # Such a symbol cannot be distinguished from a number.
        raise NoFitError
    points = sample_sizes(ranges, alone=True)
    results = []
    for point in points:
        at = with_sizes((args, kwargs), point)
        found = meta_value(target, at[0], at[1])
        if found is None:
            raise NoFitError
        results.append(found)
    known: tuple[list[Any], list[Any]] = ([], [])
    for value in _values((args, kwargs)):
        if isinstance(value, torch.Tensor):
            known[0].extend(_symbolic(value.shape))
            known[1].extend(_symbolic(value.stride()))
        else:
            known[0].extend(_symbolic([value]))
    return _fitted(results, _Fit(points, ranges, *(list(dict.fromkeys(one)) for one in known)))


def _values(arguments: Any) -> Iterator[Any]:
    found: list[Any] = []
    map_aggregate(arguments, found.append)
    for one in found:
        yield one.meta.get("val") if isinstance(one, Node) else one


def _symbolic(sizes: Sequence[Any]) -> list[Any]:
    return [one.node.expr for one in sizes if isinstance(one, torch.SymInt)]


class _Fit:
    """Finds expressions.

    Args:
        points: Sizes that were tried.
        ranges: Of the symbols.
        sizes: Symbolic sizes of the arguments.
        strides: Symbolic strides of the arguments.
    """

    def __init__(self, points: list[Sizes], ranges: Ranges, sizes: list[Any], strides: list[Any]) -> None:
        self.points = points
        self.symbols = list(ranges)
        self.sizes = sizes
        self.strides = strides

    def size(self, values: list[int]) -> Any:
        """Return a number or expression that has these values at the points."""
        return self._among(self.sizes, values) if len(set(values)) > 1 else values[0]

    def stride(self, values: list[int], product: Any) -> Any:
        """Return a number or expression that has these values at the points; `product` is tried as well."""
        if len(set(values)) == 1:
            return values[0]
        if not isinstance(product, int) and self._has(product, values):
            return product
        return self._among(self.strides, values)

    def _among(self, candidates: list[Any], values: list[int]) -> Any:
        for one in candidates:
            if self._has(one, values):
                return one
        return self._linear(values)

    def _has(self, expression: Any, values: list[int]) -> bool:
        pairs = zip(self.points, values, strict=True)
        return all(evaluated(expression, point) == value for point, value in pairs)

    def _linear(self, values: list[int]) -> Any:
        """Return a linear combination of the symbols, from how each of them alone changes the value."""
        expression: Any = sympy.Integer(0)
        first = self.points[0]
        rest = values[0]
        for symbol in self.symbols:
            alone = [
                (point[symbol] - first[symbol], value - values[0])
                for point, value in zip(self.points, values, strict=True)
                if point[symbol] != first[symbol] and all(point[one] == first[one] for one in first if one != symbol)
            ]
            if len({step for step, _ in alone}) < 2:
                # Two values of a symbol lie on a line whatever the truth is.
                raise NoFitError
            step, change = alone[0]
            if change % step:
                raise NoFitError
            expression += (change // step) * symbol
            rest -= (change // step) * first[symbol]
        expression += rest
        if not self._has(expression, values):
            raise NoFitError
        return expression


def _fitted(results: list[Any], fit: _Fit) -> Any:
    first = results[0]
    if isinstance(first, list | tuple):
        if len({len(one) for one in results}) != 1:
            raise NoFitError
        return [_fitted(list(one), fit) for one in zip(*results, strict=True)]
    if not isinstance(first, torch.Tensor):
        raise NoFitError
    sizes = [fit.size(list(one)) for one in zip(*(one.shape for one in results), strict=True)]
    steps = first.stride()
    order = sorted(range(len(steps)), key=lambda dim: (steps[dim], -dim))
    strides = [
        fit.stride([one.stride(dim) for one in results], _product(sizes, order, dim)) for dim in range(len(steps))
    ]
    offset = fit.size([one.storage_offset() for one in results])
    return first.dtype, tuple(sizes), tuple(strides), offset


def _product(sizes: list[Any], order: list[int], dim: int) -> Any:
    """Return the product of the sizes that are closer in memory than a dim."""
    found: Any = 1
    for inner in order[: order.index(dim)]:
        found = found * sizes[inner]
    return found
