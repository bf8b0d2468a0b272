"""Remembering what operators compute: models repeat their layers, so most inferences have been made before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import Node

from exirkit.ir.graph.metadata import is_static

_PLAIN = (bool, int, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))


@dataclass(frozen=True, slots=True)
class _Layout:
    """What is remembered of a tensor; a fake tensor would keep the mode of its program alive."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


# For all programs of the process: what static sizes lead to belongs to none of them.
_LAYOUTS: dict[Any, _Layout | tuple[type, tuple[_Layout, ...]]] = {}
_MOST = 20_000


class ValueCache:
    """Values by operator and by what its arguments are: sizes, strides, dtype, device and plain numbers.

    Calls with dynamic sizes are not remembered: a symbol stands for one size of one program.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode

    def get(self, key: Any) -> Any:
        """Return the remembered value, or None.

        The tensors are new: torch notes on a fake tensor how many elements of it are not zero, and two nodes may differ
        in that though they agree in all else.
        """
        known = _LAYOUTS.get(self._in_context(key))
        if known is None:
            return None
        if isinstance(known, _Layout):
            return self._made(known)
        kind, layouts = known
        return kind(self._made(one) for one in layouts)

    def put(self, key: Any, value: Any) -> None:
        """Remember a value, unless it has dynamic sizes or begins inside another tensor."""
        values = value if type(value) in (list, tuple) else (value,)
        if not all(_is_plain(one) for one in values):
            return
        if len(_LAYOUTS) >= _MOST:
            _LAYOUTS.clear()
        layouts = tuple(_Layout(tuple(one.shape), one.stride(), one.dtype, one.device) for one in values)
        _LAYOUTS[self._in_context(key)] = layouts[0] if values is not value else (type(value), layouts)

    def _made(self, layout: _Layout) -> torch.Tensor:
        with torch._C._DisableTorchDispatch():
            memory = torch.empty_strided(layout.shape, layout.strides, dtype=layout.dtype, device="meta")
        return FakeTensor(self._mode, memory, layout.device)

    def _in_context(self, key: Any) -> Any:
        # What operators make of plain numbers depends on it.
        return torch.get_default_dtype(), key


def call_key(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return a key that is equal for calls that compute the same value, or None where there is no telling."""
    if not _returns_new_tensors(target):
        return None
    try:
        return (target, _described(args), tuple((name, _described(value)) for name, value in kwargs.items()))
    except _IndescribableError:
        return None


class _IndescribableError(Exception):
    """An argument is of a kind that has no key."""


def _described(argument: Any) -> Any:
    if isinstance(argument, Node):
        value = argument.meta.get("val")
        if not is_static(value):
            raise _IndescribableError
        return (value.dtype, tuple(value.shape), value.stride(), value.storage_offset(), value.device)
    if isinstance(argument, list | tuple):
        return tuple(_described(one) for one in argument)
    if isinstance(argument, float):
        # NaN would never be found again, and -0.0 would be taken for 0.0.
        return (float, argument.hex())
    if isinstance(argument, _PLAIN):
        # The type belongs to it: 1 and True are equal, and mean different things to an operator.
        return (type(argument), argument)
    raise _IndescribableError


def _returns_new_tensors(target: Any) -> bool:
    """Tell whether results are no views of arguments; the memory that they share belongs to their value."""
    schema = getattr(target, "_schema", None)
    return schema is not None and all(result.alias_info is None for result in schema.returns)


def _is_plain(value: Any) -> bool:
    return is_static(value) and value.storage_offset() == 0
