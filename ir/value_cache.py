"""Remembering what operators compute: models repeat their layers, so most inferences have been made before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

_PLAIN = (bool, int, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None))


class ValueCache:
    """Values by operator and by what its arguments are: sizes, strides, dtype and plain numbers.

    Calls with dynamic sizes are not remembered: a symbol stands for one size of one program.
    """

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        """Return the remembered value, or None."""
        return self._values.get(key)

    def put(self, key: Any, value: Any) -> None:
        """Remember a value, unless it has dynamic sizes."""
        if all(_is_static(one) for one in (value if isinstance(value, list | tuple) else (value,))):
            self._values[key] = value


class _Unknown(Exception):
    """An argument is of a kind that has no key."""


def call_key(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return a key that is equal for calls that compute the same value, or None where there is no telling."""
    try:
        return (target, _described(args), tuple((name, _described(value)) for name, value in kwargs.items()))
    except _Unknown:
        return None


def _described(argument: Any) -> Any:
    if isinstance(argument, Node):
        value = argument.meta.get("val")
        if not _is_static(value):
            raise _Unknown
        return (value.dtype, tuple(value.shape), value.stride(), value.storage_offset())
    if isinstance(argument, list | tuple):
        return tuple(_described(one) for one in argument)
    if isinstance(argument, float):
        # NaN would never be found again, and -0.0 would be taken for 0.0.
        return (float, argument.hex())
    if isinstance(argument, _PLAIN):
        # The type belongs to it: 1 and True are equal, and mean different things to an operator.
        return (type(argument), argument)
    raise _Unknown


def _is_static(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    return all(type(number) is int for number in (*value.shape, *value.stride(), value.storage_offset()))
