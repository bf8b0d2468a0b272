"""Calls of operators that copy the elements of one tensor to other places."""

from __future__ import annotations

from exirkit.fuzz.generation.method.extents import MOST_ELEMENTS, divided, greatest_count, least_count, plus, times
from exirkit.fuzz.generation.method.guards import number_for
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Value

from .catalogue import Operator


def flip(scope: Scope, operator: Operator, value: Value) -> None:
    """Propose the elements in the opposite order along dims."""
    dims = sorted(scope.choices.shuffled(range(value.rank))[: scope.choices.integer(1, 2)])
    scope.call(operator.name, (value, dims), value.fact._replace(is_dense=False))


def roll(scope: Scope, operator: Operator, value: Value) -> None:
    """Propose the elements moved along dims, around the end."""
    dims = sorted(scope.choices.shuffled(range(value.rank))[: scope.choices.integer(1, 2)])
    shifts = [scope.choices.pick((1, -1, 2)) for _ in dims]
    scope.call(operator.name, (value, shifts, dims), value.fact._replace(is_dense=False))


def repeat(scope: Scope, operator: Operator, value: Value) -> None:
    """Propose copies beside each other."""
    counts = [scope.choices.pick((1, 2, 3)) for _ in value.sizes]
    extra = [2] if value.rank < 4 and scope.choices.chance(0.3) else []
    sizes = (*extra, *(times(size, count) for size, count in zip(value.sizes, counts, strict=True)))
    if greatest_count(sizes) > MOST_ELEMENTS:
        counts, extra, sizes = [1] * value.rank, [], value.sizes
    scope.call(operator.name, (value, [*extra, *counts]), value.fact._replace(sizes=sizes, is_dense=True))


def triangle(scope: Scope, operator: Operator, value: Value) -> None:
    """Propose what is above or below a diagonal."""
    offset = scope.choices.pick((0, 1, -1))
    fact = value.fact._replace(low=min(value.fact.low, 0), high=max(value.fact.high, 0), is_dense=False)
    scope.call(operator.name, (value, offset) if offset or scope.choices.chance(0.3) else (value,), fact)


def pixel_shuffle(scope: Scope, operator: Operator, value: Value) -> None:
    """Propose channels that become pixels."""
    channels, height, width = value.sizes[-3:]
    if channels not in (4, 8) or greatest_count(value.sizes) > MOST_ELEMENTS or 0 in value.sizes:
        value = scope.fresh(value.dtype, (*value.sizes[:-3], 4, 3, 2))
        channels, height, width = value.sizes[-3:]
    less = divided(channels, 4)
    assert less is not None
    sizes = (*value.sizes[:-3], less, times(height, 2), times(width, 2))
    scope.call(operator.name, (value, 2), value.fact._replace(sizes=sizes, is_dense=False))


def pixel_unshuffle(scope: Scope, operator: Operator, value: Value) -> None:
    """Propose pixels that become channels."""
    channels, height, width = value.sizes[-3:]
    halves = divided(height, 2), divided(width, 2)
    if None in halves or least_count(value.sizes) == 0:
        # What torch returns for a tensor without elements has another shape than its fake tensors have.
        others = () if least_count(value.sizes[:-3]) == 0 else value.sizes[:-3]
        value = scope.fresh(value.dtype, (*others, 2, 4, 6))
        channels, height, width = value.sizes[-3:]
        halves = divided(height, 2), divided(width, 2)
    assert halves[0] is not None
    assert halves[1] is not None
    sizes = (*value.sizes[:-3], times(channels, 4), halves[0], halves[1])
    scope.call(operator.name, (value, 2), value.fact._replace(sizes=sizes, is_dense=False))


def pad(scope: Scope, operator: Operator, value: Value) -> None:
    """Propose a frame of one number."""
    count = scope.choices.integer(1, min(value.rank, 2))
    pad = [scope.choices.integer(0, 2) for _ in range(2 * count)]
    sizes = list(value.sizes)
    for at in range(count):
        dim = value.rank - 1 - at
        sizes[dim] = plus(sizes[dim], pad[2 * at] + pad[2 * at + 1])
    number = number_for(value.dtype, scope.choices.pick((0, 1)))
    fact = value.fact._replace(
        sizes=tuple(sizes),
        low=min(value.fact.low, number),
        high=max(value.fact.high, number),
        is_dense=value.fact.is_dense,
    )
    scope.call(operator.name, (value, pad, number) if number or scope.choices.chance(0.5) else (value, pad), fact)
