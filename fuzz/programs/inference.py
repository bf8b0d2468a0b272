"""What operators give for values that are known by dtype, sizes and strides only."""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any

import sympy
import torch
import torch._higher_order_ops
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv, compute_unbacked_bindings

from exirkit.ir import infer_value

_MOST = 20_000
"""Calls whose results are remembered; a campaign meets the same small calls again and again."""


class _Single(Exception):  # noqa: N818
    """A call or a result belongs to one program: a size depends on data."""


class Inference:
    """Computes the recorded values of one program.

    Symbols of one name are the same in all programs, so results are remembered by the sizes of the arguments and the
    ranges of the symbols in them.

    Args:
        mode: Fake tensor mode of the program, with a shape environment.

    Attributes:
        bindings: Where in the last result each symbol is that only data decides, as torch records it at nodes.
    """

    _results: dict[Hashable, Any] = {}  # noqa: RUF012

    def __init__(self, mode: FakeTensorMode) -> None:
        assert mode.shape_env is not None
        self.mode = mode
        self._env: ShapeEnv = mode.shape_env
        self._numbers: dict[Any, Any] = {}
        self.bindings: dict[Any, Any] = {}

    def call(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the recorded value of a call; arguments are those of a node.

        Raises:
            Exception: Whatever the operator raises if it does not take the arguments.
        """
        self.bindings = {}
        try:
            key = (target, self._key(args), tuple((name, self._key(value)) for name, value in kwargs.items()))
        except _Single:
            return self._inferred(target, args, kwargs)
        known = self._results.get(key)
        if known is None:
            value = self._inferred(target, args, kwargs)
            try:
                known = self._recipe(value)
            except _Single:
                return value
            if len(self._results) >= _MOST:
                self._results.clear()
            self._results[key] = known
        return self._made(known)

    def _inferred(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = infer_value(self.mode, target, args, kwargs)
        if self._env.pending_fresh_unbacked_symbols:
            self.bindings = compute_unbacked_bindings(self._env, value) or {}
        return value

    def tensor(self, dtype: torch.dtype, sizes: Sequence[Any], strides: Sequence[Any]) -> torch.Tensor:
        """Return a new fake tensor; sizes and strides may be symbolic."""
        # By hand this takes a tenth of the time of running an operator under the mode.
        with torch._C._DisableTorchDispatch():
            memory = torch.empty_strided(tuple(sizes), tuple(strides), dtype=dtype, device="meta")
        return FakeTensor(self.mode, memory, torch.device("cpu"))

    def like(self, value: torch.Tensor) -> torch.Tensor:
        """Return a new fake tensor of the same dtype, sizes and strides."""
        return self.tensor(value.dtype, value.shape, value.stride())

    def _key(self, argument: Any) -> Hashable:
        if isinstance(argument, Node):
            argument = argument.meta.get("val")
        if isinstance(argument, torch.Tensor):
            return argument.dtype, self._key(argument.shape), self._key(argument.stride())
        if isinstance(argument, list | tuple):
            return tuple(map(self._key, argument))
        if isinstance(argument, torch.SymInt):
            expression = _known(argument)
            return expression, tuple((one, self._env.var_to_range[one]) for one in _sorted(expression))
        if isinstance(argument, torch.SymFloat | torch.SymBool):
            raise _Single
        # One, 1.0 and True are equal, and mean different things to an operator.
        return type(argument), argument

    def _recipe(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            facts = (tuple(map(_known, value.shape)), tuple(map(_known, value.stride())))
            if value.storage_offset() != 0:
                raise _Single
            return value.dtype, *facts
        if isinstance(value, list | tuple):
            return list(map(self._recipe, value))
        raise _Single

    def _made(self, recipe: Any) -> Any:
        if isinstance(recipe, list):
            return tuple(map(self._made, recipe))
        dtype, sizes, strides = recipe
        return self.tensor(dtype, list(map(self._number, sizes)), list(map(self._number, strides)))

    def _number(self, size: Any) -> Any:
        if type(size) is int:
            return size
        if size not in self._numbers:
            self._numbers[size] = self._env.create_symintnode(size, hint=None)
        return self._numbers[size]


def _known(size: int | torch.SymInt) -> Any:
    """Return a size as a number, or as an expression over sizes that callers choose."""
    if not isinstance(size, torch.SymInt):
        return size
    expression = size.node.expr
    if isinstance(expression, sympy.Integer):
        return int(expression)
    if not expression.free_symbols <= size.node.shape_env.backed_var_to_val.keys():
        raise _Single
    return expression


@lru_cache(maxsize=4096)
def _sorted(expression: Any) -> tuple[Any, ...]:
    return tuple(sorted(expression.free_symbols, key=str))


@lru_cache(maxsize=4096)
def operator_named(name: str) -> Any:
    """Return the operator with a printed name, or None if nothing has registered it."""
    if name.startswith("quantized_decomposed."):
        # Its import registers them.
        importlib.import_module("torch.ao.quantization.fx._decomposed")
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, torch._ops.OpOverload) else None
