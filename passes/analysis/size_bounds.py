"""Upper bounds of symbolic sizes, from the ranges of their symbols."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from exirkit.ir import underlying

LARGEST_SIZE = 2**31 - 1
"""Largest size that the file format can hold; a bound above it is none."""

# Up to this many combinations of symbol values are tried one by one.
_MOST_TRIALS = 512


class SizeBounds:
    """Answers what the largest value of a size is.

    Args:
        program: Its range constraints are intersected with those of the shape environment.
        shape_env: Environment of the program's symbols, None if it has none.
    """

    def __init__(self, program: ExportedProgram, shape_env: ShapeEnv | None) -> None:
        self._ranges: dict[sympy.Symbol, ValueRanges[Any]] = {}
        if shape_env is not None:
            self._ranges.update(shape_env.var_to_range)
        for symbol, constraint in program.range_constraints.items():
            known = self._ranges.get(symbol)
            self._ranges[symbol] = constraint if known is None else known & constraint
        self._known: dict[sympy.Expr, int | None] = {}

    def tighten(self, symbol: sympy.Symbol, largest: int) -> None:
        """Record that a symbol is at most `largest`."""
        known = self._ranges.get(symbol, ValueRanges(0, largest))
        self._ranges[symbol] = known & ValueRanges(min(int(known.lower), largest), largest)
        self._known.clear()

    def upper(self, size: int | torch.SymInt) -> int | None:
        """Return the largest value of a size, or None if it has no bound that fits the file format."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression not in self._known:
            self._known[expression] = self._evaluate(expression)
        return self._known[expression]

    def unbounded_symbols(self, expression: sympy.Expr) -> list[sympy.Symbol]:
        """Return the symbols of an expression that have no bound of their own, in order of their names."""
        return [symbol for symbol in sorted(expression.free_symbols, key=str) if self._largest(symbol) is None]

    def _largest(self, expression: sympy.Expr) -> int | None:
        upper = bound_sympy(expression, self._ranges).upper
        return int(upper) if upper <= LARGEST_SIZE else None

    def _evaluate(self, expression: sympy.Expr) -> int | None:
        bound = self._largest(expression)
        # Interval arithmetic is exact if each symbol stands once; `s - s // 2` it takes for two independent things.
        if not _repeats_symbol(expression):
            return bound
        values = [self._values(symbol) for symbol in sorted(expression.free_symbols, key=str)]
        if math.prod(map(len, values)) > _MOST_TRIALS or not all(values):
            return bound
        symbols = sorted(expression.free_symbols, key=str)
        trials = (dict(zip(symbols, choice, strict=True)) for choice in itertools.product(*values))
        results = [expression.xreplace(trial) for trial in trials]
        if not all(result.is_Integer for result in results):
            return bound
        exact = int(max(results))
        return exact if exact <= LARGEST_SIZE else None

    def _values(self, symbol: sympy.Symbol) -> Sequence[sympy.Integer]:
        known = self._ranges.get(symbol)
        if known is None or not (known.upper <= LARGEST_SIZE and known.upper - known.lower < _MOST_TRIALS):
            return range(_MOST_TRIALS + 1)
        return [sympy.Integer(value) for value in range(int(known.lower), int(known.upper) + 1)]


def _repeats_symbol(expression: sympy.Expr) -> bool:
    symbols = [part for part in sympy.preorder_traversal(expression) if part.is_Symbol]
    return len(symbols) != len(set(symbols))


def count_bound(node: Node, shape_of: Callable[[Node], Sequence[int]]) -> int | None:
    """Return the largest size that the data of a node's arguments can lead to, or None if nothing is known.

    Args:
        node: Call whose result has a size that only data decide.
        shape_of: Gives the largest sizes of a node's tensor.
    """
    rule = _COUNT_RULES.get(underlying(node.target))
    return None if rule is None else rule(node, shape_of)


_ShapeOf = Callable[[Node], Sequence[int]]


def _all_elements(node: Node, shape_of: _ShapeOf) -> int | None:
    source = node.args[0]
    return math.prod(shape_of(source)) if isinstance(source, Node) else None


def _all_broadcast_elements(node: Node, shape_of: _ShapeOf) -> int | None:
    shapes = [shape_of(source) for source in node.args if isinstance(source, Node)]
    aligned = itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return math.prod(max(sizes) for sizes in aligned)


def _masked_elements(node: Node, shape_of: _ShapeOf) -> int | None:
    indices: Any = node.args[1]
    masks = [index for index in indices if index is not None and index.meta["val"].dtype in (torch.bool, torch.uint8)]
    return max((math.prod(shape_of(mask)) for mask in masks), default=None)


_COUNT_RULES: dict[Any, Callable[[Node, _ShapeOf], int | None]] = {
    torch.ops.aten.nonzero.default: _all_elements,
    torch.ops.aten.masked_select.default: _all_broadcast_elements,
    torch.ops.aten.index.Tensor: _masked_elements,
    torch.ops.aten._unique2.default: _all_elements,
    torch.ops.aten.unique_consecutive.default: _all_elements,
}
