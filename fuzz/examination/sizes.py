"""What sizes that vary are in one run: learned from the shapes of values, and asked for in expressions."""

from __future__ import annotations

from typing import Any

import sympy
import torch


class Sizes:
    """Symbols of a graph and the numbers that they stand for in one run."""

    def __init__(self) -> None:
        self._known: dict[Any, Any] = {}

    def learn(self, recorded: Any, value: Any) -> None:
        """Take note of the sizes that are symbols, from what is recorded of a value and what it is."""
        if isinstance(recorded, torch.Tensor):
            if isinstance(value, torch.Tensor) and value.dim() == recorded.dim():
                for size, number in zip(recorded.shape, value.shape, strict=True):
                    self._learn(size, number)
        elif isinstance(recorded, list | tuple):
            if isinstance(value, list | tuple):
                for one, other in zip(recorded, value, strict=False):
                    self.learn(one, other)
        elif isinstance(value, int):
            self._learn(recorded, value)

    def number(self, size: Any) -> int | None:
        """Return the number that a size is in this run, or None if that is not known."""
        if not isinstance(size, torch.SymInt):
            return size if isinstance(size, int) else None
        number = size.node.expr.xreplace(self._known)
        return int(number) if number.is_number else None

    def _learn(self, size: Any, number: int) -> None:
        if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol):
            self._known.setdefault(size.node.expr, sympy.Integer(number))
