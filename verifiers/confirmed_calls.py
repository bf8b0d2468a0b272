"""Remembering which calls are in order, so that checking a program after every pass looks at what the pass changed.

A call is known by its operator, its arguments and the very objects that are recorded as values of it and of its
arguments. They are remembered by weak references, because a recorded value keeps all sizes of its program alive.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_MOST = 50_000

# What is known of calls, with references to the tensors whose identities are part of what they are known by.
_CONFIRMED: dict[Any, tuple[weakref.ref[Any], ...]] = {}


class UnknownFormError(Exception):
    """An argument or value is of a kind that has no key."""


def is_confirmed(key: Any) -> bool:
    """Tell whether a call was found in order before, and all its values are the same objects still."""
    known = _CONFIRMED.get(key)
    # A reference that is dead may have lent its identity to another object.
    return known is not None and all(reference() is not None for reference in known)


def confirm(key: Any, tensors: list[torch.Tensor]) -> None:
    """Remember a call that is in order."""
    if len(_CONFIRMED) >= _MOST:
        _CONFIRMED.clear()
    _CONFIRMED[key] = tuple(map(weakref.ref, tensors))


def key_of(node: Node, *facts: Any) -> tuple[Any, list[torch.Tensor]]:
    """Return what a call is known by, and the tensors of which that speaks.

    Args:
        node: The call.
        facts: What else decides whether it is in order.

    Raises:
        UnknownFormError: There is no telling.
    """
    tensors: list[torch.Tensor] = []

    def value(given: Any) -> Any:
        if isinstance(given, torch.Tensor):
            tensors.append(given)
            return id(given)
        return _described(given, value)

    def argument(given: Any) -> Any:
        if isinstance(given, Node):
            return value(given.meta["val"]) if "val" in given.meta else _refuse(given)
        return _described(given, argument)

    kwargs = tuple((name, argument(given)) for name, given in node.kwargs.items())
    return (node.target, argument(node.args), kwargs, value(node.meta["val"]), *facts), tensors


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
    raise UnknownFormError(type(given).__name__)
