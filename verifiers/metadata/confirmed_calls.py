"""Remembering which calls are in order, so that checking a program after every pass looks at what the pass changed.

A call is known by its operator, its arguments and the very objects that are recorded as values of it and of its
arguments. They are remembered by weak references, because a recorded value keeps all sizes of its program alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_MOST = 50_000

# What is known of calls: whether layouts were found in order as well, and references to the tensors whose identities
# are part of what a call is known by.
_CONFIRMED: dict[Any, tuple[bool, tuple[weakref.ref[Any], ...]]] = {}


class _UnknownFormError(Exception):
    """An argument or value is of a kind that cannot be known again."""


class Recorded:
    """A call and what is recorded of it.

    Args:
        target: The operator.
        args: Arguments as in the graph, nodes included, each with a recorded value.
        kwargs: Keyword arguments as in the graph.
        value: What is recorded of the call.
    """

    def __init__(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], value: Any) -> None:
        self._tensors: list[torch.Tensor] = []
        try:
            named = tuple((name, self._argument(given)) for name, given in kwargs.items())
            given = (self._argument(tuple(args)), named, self._value(value))
            self._key: Any = (target, *given, torch.get_default_dtype())
        except _UnknownFormError:
            self._key = None

    def is_confirmed(self, layouts: bool) -> bool:
        """Tell whether the call was found in order before, and all values are the same objects still."""
        known = None if self._key is None else _CONFIRMED.get(self._key)
        # A reference that is dead may have lent its identity to another object.
        return known is not None and known[0] >= layouts and all(one() is not None for one in known[1])

    def confirm(self, layouts: bool) -> None:
        """Remember that the call is in order.

        Args:
            layouts: The layout of its result, too.
        """
        if self._key is None:
            return
        if len(_CONFIRMED) >= _MOST:
            _CONFIRMED.clear()
        _CONFIRMED[self._key] = (layouts, tuple(map(weakref.ref, self._tensors)))

    def _value(self, given: Any) -> Any:
        if isinstance(given, torch.Tensor):
            self._tensors.append(given)
            return id(given)
        return _described(given, self._value)

    def _argument(self, given: Any) -> Any:
        if isinstance(given, Node):
            return self._value(given.meta["val"]) if "val" in given.meta else _refuse(given)
        return _described(given, self._argument)


def _described(given: Any, part: Callable[[Any], Any]) -> Any:
    if isinstance(given, list | tuple):
        return (type(given), *map(part, given))
    if isinstance(given, _SYMBOLIC):
        return type(given), given.node.expr, id(given.node.shape_env)
    if isinstance(given, float):
        return float, given.hex()
    if given is None or isinstance(given, bool | int | str | torch.dtype | torch.device | torch.layout):
        return type(given), given
    return _memory_format(given)


def _memory_format(given: Any) -> Any:
    return given if isinstance(given, torch.memory_format) else _refuse(given)


def _refuse(given: Any) -> Any:
    raise _UnknownFormError(type(given).__name__)
