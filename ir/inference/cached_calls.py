"""Inference of the calls of one graph: the fastest strategy that answers, and a cache of results.

Three strategies answer, the fastest first: `kernel` runs meta kernels for static sizes, `sampled` fits expressions to
what these return for a few sizes, `fake` runs operators on fake tensors. Models repeat their layers, so results are
cached by operator and by what the arguments are: dtype, sizes, strides, device and plain numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sympy
import torch
from torch.fx import Node
from torch.fx.node import map_arg

from exirkit.ir.diagnostics import Diagnostic, DiagnosticError, ModelError
from exirkit.ir.provenance import locate, show_call, show_value, target_name
from exirkit.ir.tensor_spec import empty_meta_tensor
from exirkit.ir.torch_internals import (
    FakeTensor,
    FakeTensorMode,
    ShapeEnvGuardError,
    compute_unbacked_bindings,
    make_fake_tensor,
    pytree,
)

from .fake_tensors import infer_value, no_torch_logs
from .meta_kernels import infer_static_value
from .sampled_sizes import NoFitError, sampled_value, sorted_symbols, symbols_within

Strategy = Literal["kernel", "sampled", "fake"]

Bindings = dict[Any, pytree.KeyPath]
"""Unbacked symbols that a call introduces, with the path to each through the value."""

_PLAIN = (bool, int, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))

_MOST = 20_000


class _UncacheableError(Exception):
    """An argument or result belongs to one program, or has no key."""


@dataclass(frozen=True, slots=True)
class _Layout:
    """What is cached of a tensor; a fake tensor would keep the mode of its program alive."""

    dtype: torch.dtype
    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any
    device: torch.device


# Of the whole process: results are layouts, or lists and tuples of them, which belong to no program.
_RESULTS: dict[Any, Any] = {}


class Inference:
    """Infers what calls return, for one graph.

    Args:
        mode: Mode of the graph's fake tensors.
        strategies: Those to try, in this order; `fake` comes last.
        shares_symbols: Symbols of one name and range mean the same in all programs, so that results with symbolic sizes
            are cached too. Needs a shape environment.

    Attributes:
        mode: Mode of the graph's fake tensors.
    """

    def __init__(
        self,
        mode: FakeTensorMode,
        strategies: Sequence[Strategy] = ("kernel", "fake"),
        *,
        shares_symbols: bool = False,
    ) -> None:
        self.mode = mode
        self._strategies = tuple(strategies)
        self._shares_symbols = shares_symbols
        self._numbers: dict[Any, Any] = {}

    def value(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], at: Node) -> tuple[Any, Bindings]:
        """Return what a call computes and the unbacked symbols that it introduces.

        Args:
            target: Any callable graph target.
            args: Arguments as in the graph, nodes included.
            kwargs: Keyword arguments as in the graph.
            at: Node whose place in the program a message names.

        Raises:
            ModelError: EK111, the operator does not take these arguments; EK112, one has no recorded value.
        """
        try:
            return self.call(target, args, kwargs)
        except DiagnosticError:
            raise
        except Exception as error:
            raise ModelError(_rejection(target, args, kwargs, at, error)) from error

    def value_again(self, node: Node) -> tuple[Any, Bindings]:
        """Return what a node computes now; unbacked symbols that it introduced before keep their identity.

        Raises:
            ModelError: As `value`.
        """
        value, fresh = self.value(node.target, node.args, node.kwargs, node)
        known: Bindings = node.meta.get("unbacked_bindings") or {}
        if not known:
            return value, fresh
        new_symbols = {path: symbol for symbol, path in fresh.items()}
        bindings: Bindings = {}
        for symbol, path in known.items():
            new = new_symbols.pop(path, None)
            if new is not None:
                # Later nodes, and the ranges of the program, refer to the old symbol.
                env: Any = self.mode.shape_env
                # torch renames to a symbol of a narrower range only.
                env.var_to_range[symbol] = env.var_to_range[symbol] & env.var_to_range[new]
                env._rename_unbacked_to(new, symbol)
            if new is not None or _symbol_at(value, path) == symbol:
                bindings[symbol] = path
        return value, bindings | {symbol: path for path, symbol in new_symbols.items()}

    def call(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Bindings]:
        """Return what `value` does.

        Raises:
            ModelError: EK112, an argument has no recorded value.
            Exception: Whatever the operator raises if it does not take the arguments.
        """
        key = self._call_key(target, args, kwargs)
        known = None if key is None else _RESULTS.get(key)
        if known is None:
            value, bindings = self._infer(target, args, kwargs)
            if key is None or bindings:
                return value, bindings
            try:
                known = self._recipe(value)
            except _UncacheableError:
                return value, {}
            if len(_RESULTS) >= _MOST:
                _RESULTS.clear()
            _RESULTS[key] = known
            return value, {}
        # The tensors are new: torch notes on a fake tensor how many elements of it are not zero, and two nodes may
        # differ in that though they agree in all else.
        return self._made(known), {}

    def _infer(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Bindings]:
        if "kernel" in self._strategies and (value := infer_static_value(self.mode, target, args, kwargs)) is not None:
            return value, {}
        if "sampled" in self._strategies and (layouts := self._sampled(target, args, kwargs)) is not None:
            return self._made(layouts), {}
        env = self.mode.shape_env
        if env is None:
            return infer_value(self.mode, target, args, kwargs), {}
        # torch returns new symbols in this list, which is empty unless an outer inference is running.
        others = list(env.pending_fresh_unbacked_symbols)
        env.pending_fresh_unbacked_symbols.clear()
        try:
            with no_torch_logs():
                value = infer_value(self.mode, target, args, kwargs)
                return value, compute_unbacked_bindings(env, value) or {}
        finally:
            env.pending_fresh_unbacked_symbols[:] = others

    def _sampled(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        env: Any = self.mode.shape_env
        symbols = dict.fromkeys(symbols_within((tuple(args), dict(kwargs)))) if env is not None else {}
        if not symbols:
            return None
        ranges = {one: env.var_to_range[one] for one in symbols}
        # A bound that is not a number is infinite.
        if not all(isinstance(bound, sympy.Integer) for one in ranges.values() for bound in (one.lower, one.upper)):
            return None
        try:
            limits = {one: (int(range_.lower), int(range_.upper)) for one, range_ in ranges.items()}
            found = sampled_value(target, tuple(args), dict(kwargs), limits)
        except (NoFitError, OverflowError):
            return None
        return _layouts(found)

    # Keys of calls

    def _call_key(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return a key that is equal for calls that compute the same value, or None if there is none."""
        if not self._is_cacheable(target):
            return None
        try:
            named = tuple((name, self._key(value)) for name, value in kwargs.items())
            # What operators make of plain numbers depends on the default dtype.
            return self._strategies, target, self._key(args), named, torch.get_default_dtype()
        except _UncacheableError:
            return None

    def _is_cacheable(self, target: Any) -> bool:
        schema = getattr(target, "_schema", None)
        # Views share memory with their arguments, which belongs to their value.
        return schema is not None and (
            self._shares_symbols or all(result.alias_info is None for result in schema.returns)
        )

    def _key(self, argument: Any) -> Any:
        kind = type(argument)
        if kind is int or kind is bool:
            # Most are, and there are many.
            return kind, argument
        if isinstance(argument, Node):
            argument = argument.meta.get("val")
            if not self._shares_symbols and not isinstance(argument, torch.Tensor):
                raise _UncacheableError
        elif isinstance(argument, torch.Tensor) and not isinstance(argument, FakeTensor):
            raise _UncacheableError
        if isinstance(argument, torch.Tensor):
            return self._tensor_key(argument)
        if isinstance(argument, list | tuple):
            # Sizes, mostly; the type keeps them apart from a number.
            return (list, *argument) if _are_ints(argument) else tuple(map(self._key, argument))
        if isinstance(argument, float):
            # NaN would never be found again, and -0.0 would be taken for 0.0.
            return float, argument.hex()
        if isinstance(argument, torch.SymInt):
            return self._size_key(argument)
        if isinstance(argument, _PLAIN):
            # The type belongs to it: 1 and True are equal, and mean different things to an operator.
            return type(argument), argument
        raise _UncacheableError

    def _tensor_key(self, tensor: torch.Tensor) -> Any:
        if tensor.layout is not torch.strided:
            raise _UncacheableError
        sizes = (*tensor.shape, *tensor.stride(), tensor.storage_offset())
        if not _are_ints(sizes):
            sizes = tuple(map(self._size_key, sizes))
        return tensor.dtype, tensor.dim(), sizes, tensor.device

    def _size_key(self, size: Any) -> Any:
        if type(size) is int:
            return size
        expression = self._known(size)
        if type(expression) is int:
            return expression
        ranges = size.node.shape_env.var_to_range
        return expression, tuple((one, ranges[one]) for one in sorted_symbols(expression))

    # Results in the cache

    def _known(self, size: Any) -> Any:
        """Return a size as a number, or as an expression over sizes that callers choose."""
        if type(size) is int:
            return size
        if not self._shares_symbols or not isinstance(size, torch.SymInt):
            raise _UncacheableError
        expression = size.node.expr
        if isinstance(expression, sympy.Integer):
            return int(expression)
        if not expression.free_symbols <= size.node.shape_env.backed_var_to_val.keys():
            raise _UncacheableError
        return expression

    def _recipe(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            sizes, strides = tuple(map(self._known, value.shape)), tuple(map(self._known, value.stride()))
            return _Layout(value.dtype, sizes, strides, self._known(value.storage_offset()), value.device)
        if type(value) in (list, tuple):
            return type(value)(self._recipe(one) for one in value)
        raise _UncacheableError

    def _made(self, recipe: Any) -> Any:
        if not isinstance(recipe, _Layout):
            return type(recipe)(self._made(one) for one in recipe)
        sizes, strides, offset = recipe.sizes, recipe.strides, recipe.offset
        if not _are_ints((*sizes, *strides, offset)):
            sizes, strides = tuple(map(self._number, sizes)), tuple(map(self._number, strides))
            offset = self._number(offset)
        empty = empty_meta_tensor(recipe.dtype, sizes, strides, offset)
        return make_fake_tensor(self.mode, empty, recipe.device)

    def _number(self, size: Any) -> Any:
        if type(size) is int:
            return size
        if size not in self._numbers:
            self._numbers[size] = self.mode.shape_env.create_symintnode(size, hint=None)  # type: ignore[union-attr]
        return self._numbers[size]


def _are_ints(sizes: Sequence[Any]) -> bool:
    """Whether all are plain numbers, which most are."""
    return {int}.issuperset(map(type, sizes))


def _layouts(found: Any) -> Any:
    if isinstance(found, list):
        return tuple(map(_layouts, found))
    dtype, sizes, strides, offset = found
    return _Layout(dtype, sizes, strides, offset, torch.device("cpu"))


def _symbol_at(value: Any, path: pytree.KeyPath) -> Any:
    try:
        return pytree.key_get(value, path).node.expr
    except (AttributeError, IndexError, KeyError, TypeError):
        return None


def _rejection(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], at: Node, error: Exception) -> Diagnostic:
    inputs: dict[Node, None] = {}
    map_arg((tuple(args), dict(kwargs)), lambda node: inputs.setdefault(node))
    if isinstance(error, ShapeEnvGuardError):
        reason = f"it would hold for some sizes only: {str(error).partition(': ')[2]}"
    else:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return Diagnostic.of(
        "EK111",
        f"{target_name(target)} does not take these arguments: {reason}",
        location=locate(at).model_copy(update={"text": show_call(target, args, kwargs)}),
        notes=tuple(f"%{node.name}: {show_value(node.meta.get('val'))}" for node in inputs),
    )
