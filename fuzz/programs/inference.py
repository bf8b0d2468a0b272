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

from exirkit.ir import bare_tensor, infer_value, quick_value, sorted_symbols, symbols_within

from .sampled_inference import NoFitError, sampled_value

_MOST = 20_000
"""Calls whose results are remembered; a campaign meets the same small calls again and again."""

_MOST_OF_TORCH = 2_000
"""Calls that torch may remember."""


class _Single(Exception):  # noqa: N818
    """A call or a result belongs to one program: a size depends on data."""


class Inference:
    """Computes the recorded values of one program.

    Symbols of one name are the same in all programs, so results are remembered by the sizes of the arguments and the
    ranges of the symbols in them.

    Args:
        mode: Fake tensor mode of the program, with a shape environment.
        quick: Ask fake tensors only where nothing faster gives the same answer.

    Attributes:
        bindings: Where in the last result each symbol is that only data decides, as torch records it at nodes.
    """

    _results: dict[Hashable, Any] = {}  # noqa: RUF012

    def __init__(self, mode: FakeTensorMode, *, quick: bool = True) -> None:
        assert mode.shape_env is not None
        if len(FakeTensorMode.cache) > _MOST_OF_TORCH:
            # Its entries keep the shape environments of programs that are long gone.
            FakeTensorMode.cache_clear()
        self.mode = mode
        self._quick = quick
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
            key = (
                self._quick,
                target,
                self._key(args),
                tuple((name, self._key(value)) for name, value in kwargs.items()),
            )
        except _Single:
            return self._inferred(target, args, kwargs)
        known = self._results.get(key)
        if known is None:
            known = self._quickly(target, args, kwargs) if self._quick else None
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

    def _quickly(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return how to make the result, without fake tensors; None where they have to be asked."""
        symbols = list(dict.fromkeys(symbols_within((args, kwargs))))
        if not symbols:
            value = quick_value(target, args, kwargs)
            return None if value is None else self._recipe(value)
        ranges = {one: self._env.var_to_range[one] for one in symbols}
        try:
            limits = {one: (int(range_.lower), int(range_.upper)) for one, range_ in ranges.items()}
            return sampled_value(target, args, kwargs, limits)
        except (NoFitError, OverflowError):
            return None

    def _inferred(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = infer_value(self.mode, target, args, kwargs)
        if self._env.pending_fresh_unbacked_symbols:
            self.bindings = compute_unbacked_bindings(self._env, value) or {}
        return value

    def tensor(self, dtype: torch.dtype, sizes: Sequence[Any], strides: Sequence[Any], offset: int = 0) -> torch.Tensor:
        """Return a new fake tensor; sizes and strides may be symbolic."""
        # By hand this takes a tenth of the time of running an operator under the mode.
        return FakeTensor(self.mode, bare_tensor(dtype, sizes, strides, offset), torch.device("cpu"))

    def like(self, value: torch.Tensor) -> torch.Tensor:
        """Return a new fake tensor of the same dtype, sizes and strides."""
        return self.tensor(value.dtype, value.shape, value.stride())

    def _key(self, argument: Any) -> Hashable:
        if isinstance(argument, Node):
            argument = argument.meta.get("val")
        if isinstance(argument, torch.Tensor):
            return argument.dtype, *map(self._key, (argument.shape, argument.stride(), argument.storage_offset()))
        if isinstance(argument, list | tuple):
            return tuple(map(self._key, argument))
        if isinstance(argument, torch.SymInt):
            expression = _known(argument)
            return expression, tuple((one, self._env.var_to_range[one]) for one in sorted_symbols(expression))
        if isinstance(argument, torch.SymFloat | torch.SymBool):
            raise _Single
        # One, 1.0 and True are equal, and mean different things to an operator.
        return type(argument), argument

    def _recipe(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            facts = (tuple(map(_known, value.shape)), tuple(map(_known, value.stride())))
            return value.dtype, *facts, _known(value.storage_offset())
        if isinstance(value, list | tuple):
            return list(map(self._recipe, value))
        raise _Single

    def _made(self, recipe: Any) -> Any:
        if isinstance(recipe, list):
            return tuple(map(self._made, recipe))
        dtype, sizes, strides, offset = recipe
        return self.tensor(
            dtype, list(map(self._number, sizes)), list(map(self._number, strides)), self._number(offset)
        )

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
def operator_named(name: str) -> Any:
    """Return the operator with a printed name, or None if nothing has registered it."""
    if name.startswith("quantized_decomposed."):
        # Its import registers them.
        importlib.import_module("torch.ao.quantization.fx._decomposed")
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, torch._ops.OpOverload) else None
