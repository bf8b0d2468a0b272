"""Second operands: values whose sizes go with those of the first."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from exirkit.fuzz.generation.method.extents import Extent, Extents
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Value


def broadcast(one: Extents, other: Extents) -> Extents | None:
    """Return the sizes of an operation on both, or None if they do not go together whatever the symbols are."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    sizes: list[Extent] = list(longer)
    start = len(longer) - len(shorter)
    for dim, size in enumerate(shorter, start):
        if sizes[dim] == 1:
            sizes[dim] = size
        elif size not in (1, sizes[dim]):
            return None
    return tuple(sizes)


def partner(scope: Scope, value: Value, dtypes: Sequence[torch.dtype], *, into: bool = False) -> Value:
    """Return an operand that is broadcast with another: one that is there, or a fresh one.

    Args:
        scope: The method.
        value: The other operand.
        dtypes: One of these.
        into: The result must have the sizes of the other operand.
    """
    found = [
        each
        for each in scope.values
        if each.dtype in dtypes
        and (sizes := broadcast(value.sizes, each.sizes)) is not None
        and (sizes == value.sizes if into else len(sizes) <= 5)
    ]
    if len(found) > 1 and value in found and not scope.choices.chance(0.1):
        found.remove(value)
    must_use = [each for each in scope.must_use if each in found]
    if must_use:
        scope.must_use.remove(must_use[0])
        return must_use[0]
    is_other = bool(found) and (found[0] is not value or len(found) > 1 or scope.choices.chance(0.2))
    if is_other and not scope.choices.chance(scope.building.plan.fresh):
        last = len(found) - 1
        return found[last - min(scope.choices.integer(0, last), scope.choices.integer(0, last))]
    return scope.fresh(scope.dtype_of(dtypes), _fresh_sizes(scope, value.sizes))


def _fresh_sizes(scope: Scope, sizes: Extents) -> Extents:
    """Return sizes that are broadcast to others: the same, fewer, or with ones."""
    kind = scope.choices.integer(0, 3)
    if kind == 0 or not sizes:
        return sizes
    if kind == 1:
        return sizes[scope.choices.integer(0, len(sizes)) :]
    if kind == 2:
        return tuple(1 if scope.choices.chance(0.4) else size for size in sizes)
    # Sizes with symbols need inputs of their own; those without can be stored.
    return tuple(size if isinstance(size, int) else 1 for size in sizes)
