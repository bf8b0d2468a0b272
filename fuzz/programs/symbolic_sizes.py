"""Symbols of a program as symbols of torch, with their ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
import torch
from torch.fx.graph import Graph

from exirkit.ir import (
    DimDynamic,
    FakeTensorMode,
    ShapeEnv,
    StrictMinMaxConstraint,
    ValueRanges,
    bound_sympy,
    free_symbols,
    shape_source,
)

from .model import Symbol


class SymbolTable:
    """The symbols of one program in one shape environment.

    Attributes:
        mode: Fake tensor mode with the environment.
        values: A symbolic number for each symbol of the program; a plain one where the range has only one.
    """

    def __init__(self, symbols: tuple[Symbol, ...]) -> None:
        self._env = ShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
        self.mode = FakeTensorMode(shape_env=self._env, allow_non_fake_inputs=True)
        self.values: dict[str, Any] = {one.name: self._value(one) for one in symbols}
        self._symbols = {one.name: one for one in symbols}

    def _value(self, symbol: Symbol) -> Any:
        if symbol.low == symbol.high:
            return symbol.low
        source = shape_source(symbol.name)
        hint = max(2, (symbol.low + symbol.high) // 2)
        constraint: Any = StrictMinMaxConstraint(warn_only=False, vr=ValueRanges(symbol.low, symbol.high))
        made = self._env.create_symbol(hint, source, DimDynamic.DYNAMIC, constraint)
        return self._env.create_symintnode(made, hint=hint, source=source)

    def ranges(self, graph: Graph) -> dict[Any, ValueRanges[Any]]:
        """Return the ranges that a graph promises: of its symbols, and of the sizes of its inputs."""
        found: dict[Any, ValueRanges[Any]] = {}
        own = {
            value.node.expr: self._symbols[name] for name, value in self.values.items() if not isinstance(value, int)
        }
        for node in graph.nodes:
            for one in sorted(free_symbols_in(node.meta.get("val")), key=str):
                if one in own:
                    found.setdefault(one, ValueRanges(own[one].low, own[one].high))
                elif one in self._env.var_to_range:
                    found.setdefault(one, self._env.var_to_range[one])
        for node in graph.find_nodes(op="placeholder"):
            for size in node.meta["val"].shape:
                if isinstance(size, torch.SymInt) and size.node.expr not in found:
                    found[size.node.expr] = _bounds(size.node.expr, found)
        return found


def _bounds(expression: Any, ranges: Mapping[Any, ValueRanges[Any]]) -> ValueRanges[Any]:
    return bound_sympy(expression, dict(ranges))


def free_symbols_in(value: Any) -> set[sympy.Symbol]:
    """Return the symbols in a recorded value."""
    if isinstance(value, list | tuple):
        return set().union(*map(free_symbols_in, value))
    if isinstance(value, torch.Tensor):
        return set().union(*(free_symbols(one) for one in value.shape if isinstance(one, torch.SymInt)))
    return set(free_symbols(value)) if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) else set()


def inverse(expression: Any, symbol: Any) -> tuple[int, int] | None:
    """Return factor and summand if an expression is `factor * symbol + summand`, else None."""
    if expression.free_symbols != {symbol}:
        return None
    summand = expression.xreplace({symbol: sympy.Integer(0)})
    factor = expression.xreplace({symbol: sympy.Integer(1)}) - summand
    if not (summand.is_Integer and factor.is_Integer) or factor == 0:
        return None
    if sympy.expand(factor * symbol + summand - expression) != 0:
        return None
    return int(factor), int(summand)
