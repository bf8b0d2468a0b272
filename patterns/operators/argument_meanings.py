"""What an argument means where it can be written in several ways: defaults that stand for something, dims in any order.

A stride of `[]` is the size of the kernel, a dtype of none is that of the input, an end past the last element is the
end. Literals of patterns, and defaults that patterns leave out, are compared by what they mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch.fx import Node

from exirkit.patterns.syntax.terms import Operator
from exirkit.patterns.syntax.undecided import compare

from .argument_view import Arguments
from .facts import traits_of

Meaning = Callable[[Any, Arguments], Any]
"""From a value and all arguments of its call to what the value means; equal meanings are equal values."""

_END = "the end"
_PAST_EVERY_END = 1 << 62
_SLICES = frozenset({"aten.slice.Tensor", "aten.slice_copy.Tensor"})


@cache
def meaning_of(op: Operator, name: str) -> Meaning | None:
    """Return the meaning of an argument of an operator, or None if it can be written in one way only."""
    schema = getattr(op, "_schema", None)
    if schema is None:
        return None
    said = traits_of(op).defaults.get(name)
    if said in _SAID:
        return _SAID[said]
    if said is not None:
        return _like(said)
    full = f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"
    if full in _SLICES and name in ("start", "end"):
        return _start if name == "start" else _stop
    kind = next((str(one.real_type) for one in schema.arguments if one.name == name), "")
    return _OF_TYPE.get((name, kind))


def _like(other: str) -> Meaning:
    def meaning(value: Any, arguments: Arguments) -> Any:
        return arguments.get(other) if value in ([], None) else value

    return meaning


def _recorded(value: Any) -> torch.Tensor | None:
    found = value.meta.get("val") if isinstance(value, Node) else value
    return found if isinstance(found, torch.Tensor) else None


def _first(arguments: Arguments) -> torch.Tensor | None:
    return next((one for one in map(_recorded, arguments.values()) if one is not None), None)


def _dtype_of_input(value: Any, arguments: Arguments) -> Any:
    first = _first(arguments)
    return first.dtype if value is None and first is not None else value


def _dtype_of_sum(value: Any, arguments: Arguments) -> Any:
    first = _first(arguments)
    if value is not None or first is None:
        return value
    return first.dtype if first.dtype.is_floating_point or first.dtype.is_complex else torch.int64


def _dtype_of_number(value: Any, arguments: Arguments) -> Any:
    if value is not None:
        return value
    number = arguments.get("fill_value")
    return {bool: torch.bool, int: torch.int64, float: torch.get_default_dtype()}.get(type(number))


def _default_dtype(value: Any, arguments: Arguments) -> Any:
    return torch.get_default_dtype() if value is None else value


def _all_dims(value: Any, arguments: Arguments) -> Any:
    first = _first(arguments)
    if first is None:
        return value
    if value is None or value == []:
        return list(range(first.dim()))
    # The order in which dims are summed up has no meaning.
    return sorted(value) if isinstance(value, list) and all(type(one) is int for one in value) else value


def _scale(value: Any, arguments: Arguments) -> Any:
    first = _first(arguments)
    size = first.shape[-1] if first is not None and first.dim() else None
    return 1.0 / math.sqrt(size) if value is None and type(size) is int and size else value


def _correction(value: Any, arguments: Arguments) -> Any:
    return 1 if value is None else value


def _nothing(value: Any, arguments: Arguments) -> Any:
    return None


def _device(value: Any, arguments: Arguments) -> Any:
    return torch.device("cpu") if value is None else torch.device(value)


def _pinned(value: Any, arguments: Arguments) -> Any:
    return bool(value)


def _layout(value: Any, arguments: Arguments) -> Any:
    return torch.strided if value is None else value


def _memory_format(value: Any, arguments: Arguments) -> Any:
    first = _first(arguments)
    if value is None:
        return torch.preserve_format
    is_static = first is not None and all(type(size) is int for size in first.shape)
    is_kept = value is torch.contiguous_format and first is not None and is_static and first.is_contiguous()
    return torch.preserve_format if is_kept else value


def _size_of_dim(arguments: Arguments) -> Any:
    first, dim = _first(arguments), arguments.get("dim")
    if first is None or type(dim) is not int or not -first.dim() <= dim < first.dim():
        return None
    return first.shape[dim]


def _start(value: Any, arguments: Arguments) -> Any:
    size = _size_of_dim(arguments)
    if value is None:
        return 0
    return max(0, value + size) if type(value) is int and value < 0 and type(size) is int else value


def _stop(value: Any, arguments: Arguments) -> Any:
    size = _size_of_dim(arguments)
    if value is None or (type(value) is int and value >= _PAST_EVERY_END):
        return _END
    if type(value) is int and value < 0 and type(size) is int:
        value = max(0, value + size)
    is_size = isinstance(value, int | torch.SymInt) and size is not None
    return _END if is_size and compare(">=", value, size) is True else value


_SAID: dict[str, Meaning] = {
    "dtype of input": _dtype_of_input,
    "dtype of sum": _dtype_of_sum,
    "dtype of number": _dtype_of_number,
    "default dtype": _default_dtype,
    "all dims": _all_dims,
    "root of last size": _scale,
    "one": _correction,
    "nothing": _nothing,
}
_OF_TYPE: dict[tuple[str, str], Meaning] = {
    ("device", "Optional[Device]"): _device,
    ("pin_memory", "Optional[bool]"): _pinned,
    ("layout", "Optional[Layout]"): _layout,
    ("memory_format", "Optional[MemoryFormat]"): _memory_format,
}
