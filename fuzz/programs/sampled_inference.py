"""What operators give for symbolic sizes, fitted to what they give for a few numbers.

An operator on symbolic fake tensors asks hundreds of questions about expressions; one on a few numeric sizes asks none.
Each size of the result is then an expression that agrees with all of them: a number, a size of an argument, or a linear
combination of symbols. A stride is a number, a stride of an argument, or a product of sizes. Where nothing fits, fake
tensors have to be asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from exirkit.ir import Point, Ranges, at_point, evaluated, has_quick_values, points_within, quick_value


class NoFitError(Exception):
    """A result that is none of the expressions that are tried."""


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
        NoFitError: Fake tensors have to be asked.
    """
    if not has_quick_values(target):
        raise NoFitError
    if any(low == high for low, high in ranges.values()):
        # Nothing tells such a symbol from a number.
        raise NoFitError
    points = points_within(ranges, alone=True)
    results = []
    for point in points:
        at = at_point((args, kwargs), point)
        found = quick_value(target, at[0], at[1])
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

    def __init__(self, points: list[Point], ranges: Ranges, sizes: list[Any], strides: list[Any]) -> None:
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
