"""Inference for the editor: remembers what it has computed, and says clearly what went wrong."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from torch._subclasses import FakeTensorMode
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import _ShapeEnvGuardError, compute_unbacked_bindings
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from exirkit.ir.diagnostics import Diagnostic, DiagnosticError, ModelError
from exirkit.ir.provenance import locate, show_call, show_value, target_name

from .cache import ValueCache, call_key
from .fake import infer_static_value, infer_value

# torch logs failures before it raises them; whoever catches them decides whether anybody should read of it.
_TORCH_LOGS = tuple(
    logging.getLogger(name) for name in ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")
)

Bindings = dict[Any, pytree.KeyPath]
"""Unbacked symbols that a call introduces, with the way to each through the value."""


class Inference:
    """Computes what calls return, for one graph.

    Args:
        mode: Mode of the graph's fake tensors.
        asks_kernels: Ask kernels without data first where sizes do not vary; fake tensors say the same later.

    Attributes:
        mode: Mode of the graph's fake tensors.
    """

    def __init__(self, mode: FakeTensorMode, *, asks_kernels: bool = True) -> None:
        self.mode = mode
        self._asks_kernels = asks_kernels
        self._cache = ValueCache(mode)

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
        key = call_key(target, args, kwargs)
        known = None if key is None else self._cache.get(key)
        if known is not None:
            return known, {}
        try:
            value, bindings = self._run(target, args, kwargs)
        except DiagnosticError:
            raise
        except Exception as error:
            raise ModelError(_refusal(target, args, kwargs, at, error)) from error
        if key is not None:
            self._cache.put(key, value)
        return value, bindings

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
                # What follows in the graph, and the ranges of the program, speak of the old symbol.
                env: Any = self.mode.shape_env
                # Torch renames to a symbol of a narrower range only.
                env.var_to_range[symbol] = env.var_to_range[symbol] & env.var_to_range[new]
                env._rename_unbacked_to(new, symbol)
            if new is not None or _symbol_at(value, path) == symbol:
                bindings[symbol] = path
        return value, bindings | {symbol: path for path, symbol in new_symbols.items()}

    def _run(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Bindings]:
        if self._asks_kernels:
            value = infer_static_value(self.mode, target, args, kwargs)
            if value is not None:
                return value, {}
        env = self.mode.shape_env
        if env is None:
            return infer_value(self.mode, target, args, kwargs), {}
        # torch hands new symbols over in this list, which is empty unless somebody else is in the middle of something.
        others = list(env.pending_fresh_unbacked_symbols)
        env.pending_fresh_unbacked_symbols.clear()
        try:
            with no_torch_logs():
                value = infer_value(self.mode, target, args, kwargs)
                return value, compute_unbacked_bindings(env, value) or {}
        finally:
            env.pending_fresh_unbacked_symbols[:] = others


@contextmanager
def no_torch_logs() -> Iterator[None]:
    """Keep torch from logging what is raised and caught here."""
    were_disabled = [log.disabled for log in _TORCH_LOGS]
    for log in _TORCH_LOGS:
        log.disabled = True
    try:
        yield
    finally:
        for log, was_disabled in zip(_TORCH_LOGS, were_disabled, strict=True):
            log.disabled = was_disabled


@contextmanager
def no_new_guards(mode: FakeTensorMode) -> Iterator[None]:
    """Let torch raise a `RuntimeError` where a size that varies would become a number."""
    env = mode.shape_env
    with no_torch_logs(), nullcontext() if env is None else env.error_on_new_guards():
        yield


def _symbol_at(value: Any, path: pytree.KeyPath) -> Any:
    try:
        return pytree.key_get(value, path).node.expr
    except (AttributeError, IndexError, KeyError, TypeError):
        return None


def _refusal(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], at: Node, error: Exception) -> Diagnostic:
    inputs: dict[Node, None] = {}
    map_arg((tuple(args), dict(kwargs)), lambda node: inputs.setdefault(node))
    if isinstance(error, _ShapeEnvGuardError):
        reason = f"it would hold for some sizes only: {str(error).partition(': ')[2]}"
    else:
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return Diagnostic(
        code="EK111",
        message=f"{target_name(target)} does not take these arguments: {reason}",
        location=locate(at).model_copy(update={"text": show_call(target, args, kwargs)}),
        notes=tuple(f"%{node.name}: {show_value(node.meta.get('val'))}" for node in inputs),
    )
