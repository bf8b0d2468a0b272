"""Calls of whose results nothing is known: they are returned, and no other call uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Fact, Value
from exirkit.fuzz.programs import Body


def loose_call(
    scope: Scope,
    op: str,
    args: tuple[Any, ...],
    dtype: torch.dtype,
    sizes: Any,
    kwargs: tuple[tuple[str, Any], ...] = (),
    *,
    is_exact: bool = False,
) -> Value:
    """Add a call of whose result nothing is known, so that no other call finds it.

    Args:
        scope: The method.
        op: Name of the operator.
        args: Its arguments.
        dtype: Of the result.
        sizes: Of the result.
        kwargs: Arguments by name.
        is_exact: All executors agree about floats to the bit, if they do about the arguments.
    """
    return loose_calls(scope, op, args, ((dtype, sizes),), kwargs, is_exact=is_exact)[0]


def loose_calls(
    scope: Scope,
    op: str,
    args: tuple[Any, ...],
    results: Sequence[tuple[torch.dtype, Any]],
    kwargs: tuple[tuple[str, Any], ...] = (),
    *,
    is_exact: bool = False,
    is_decided: bool = True,
    bodies: tuple[Body, ...] = (),
) -> list[Value]:
    """Add a call, which may call functions, of whose results nothing is known but their dtypes and sizes.

    `is_decided` says that integers do not depend on the last bits of floats that are computed on the way to them.
    """
    facts = [
        Fact(
            dtype,
            sizes,
            0,
            1 if dtype == torch.bool else 0,
            0 if is_exact or not dtype.is_floating_point else None,
            False,
            not is_decided and not dtype.is_floating_point,
        )
        for dtype, sizes in results
    ]
    made = scope.call_several(op, args, facts, kwargs, bodies=bodies)
    for one in made:
        hide(scope, one)
    return made


def hide(scope: Scope, value: Value) -> None:
    """Keep a value from other calls."""
    scope.values[:] = [one for one in scope.values if one is not value]


def returned(scope: Scope, value: Value) -> None:
    """Return a value, as it is."""
    scope.outputs_of_unknown_size.append(value)
