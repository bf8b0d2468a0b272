"""Numbers that are known at run time only: nodes that read sizes and compute with them."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.fx import Node

from exirkit.patterns.syntax.expressions import ExpressionError

Make = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Node]
"""Makes a node of a target, its arguments and its keyword arguments."""

# What computes an expression from its parts: those that fold over any number of parts, and those that take all at once.
_FOLDED: dict[str, Any] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Max": torch.sym_max,
    "Min": torch.sym_min,
}
_CALLED: dict[str, Any] = {
    "FloorDiv": operator.floordiv,
    "CleanDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "IntTrueDiv": operator.truediv,
    "FloatTrueDiv": operator.truediv,
    "ToFloat": torch.sym_float,
    "Pow": operator.pow,
    "PowByNatural": operator.pow,
    "FloatPow": operator.pow,
    "FloorToInt": math.floor,
    "CeilToInt": math.ceil,
    "TruncToInt": math.trunc,
    "RoundToInt": builtins.round,
}


class RunTimeNumbers:
    """Makes the nodes of numbers that depend on sizes that vary; equal ones are made once.

    Args:
        make: Makes a node.
        read_size: What reads one size of a tensor, as the dialect calls it.
        sources: Where sizes can be read: nodes of tensors and of numbers.
    """

    def __init__(self, make: Make, read_size: Any, sources: Sequence[Node]) -> None:
        self._make = make
        self._read_size = read_size
        self._sources = tuple(sources)
        self._known: dict[Any, Node] = {}

    def argument(self, number: torch.SymInt | torch.SymFloat) -> Any:
        """Return the number as an argument of a node: a plain one, or a node that computes it.

        Raises:
            ExpressionError: It cannot be computed from the values of the match.
        """
        return self._argument(number.node.expr)

    def _argument(self, expression: sympy.Expr) -> Any:
        if expression.is_Integer:
            return int(expression)
        if expression.is_Float:
            return float(expression)
        known = self._known.get(expression)
        if known is None:
            known = self._read(expression) or self._computed(expression)
            self._known[expression] = known
        return known

    def _read(self, expression: sympy.Expr) -> Node | None:
        for node in self._sources:
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt | torch.SymFloat) and value.node.expr == expression:
                return node
            for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                if isinstance(size, torch.SymInt) and size.node.expr == expression:
                    return self._make(self._read_size, (node, dim), {})
        return None

    def _computed(self, expression: sympy.Expr) -> Node:
        name = type(expression).__name__
        target = _FOLDED.get(name) or _CALLED.get(name)
        if target is None or not expression.args:
            raise ExpressionError(f"the size {expression} cannot be read from any value of the match")
        parts = [self._argument(part) for part in expression.args]
        if name in _CALLED:
            return self._make(target, tuple(parts), {})
        result, *others = parts
        for other in others:
            result = self._make(target, (result, other), {})
        if not isinstance(result, Node):
            raise ExpressionError(f"the size {expression} cannot be computed")
        return result
