"""Stored tensors and lists that are nearly the same: an element, a sign, an order, a dtype or a layout differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Value
from exirkit.fuzz.programs import Contents

from .loose import hide, loose_call, returned

# The longest is stored in more bytes than the emitter compares at first.
_SHAPES = ((9, 9), (40,), (3, 4), (2, 3, 5), (64,), (5,), (16, 4), (1, 7), (200,))
_LAYOUTS: Sequence[Literal["dense", "transposed"]] = ("dense", "dense", "dense", "transposed")
_KINDS = ("constant", "constant", "parameter", "buffer")
_COMBINING = ("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor", "aten.maximum.default")


def nearly_equal_stored(scope: Scope) -> None:
    """Store a tensor, and others that are it but for little, and combine each with the same input."""
    ops = [one for one in _COMBINING if scope.building.plan.policy.allows(one)]
    if not ops:
        return
    sizes = scope.choices.pick(_SHAPES)
    count = int(torch.Size(sizes).numel())
    first = _numbers(scope, count)
    tensors: list[tuple[Sequence[float], torch.dtype, tuple[int, ...]]] = [(first, torch.float32, sizes)]
    for _ in range(scope.choices.integer(1, 2)):
        shape = tuple(reversed(sizes)) if scope.choices.chance(0.15) else sizes
        if scope.choices.chance(0.1):
            tensors.append((first, scope.choices.pick((torch.float64, torch.int32)), shape))
        else:
            tensors.append((scope.choices.pick(_CHANGES)(scope, first), torch.float32, shape))
    op, kind = scope.choices.pick(ops), scope.choices.pick(_KINDS)
    inputs: dict[tuple[int, ...], Value] = {}
    for numbers, dtype, shape in scope.choices.shuffled(tensors):
        if shape not in inputs:
            inputs[shape] = scope.new_input(torch.float32, shape, scope.building.contents(torch.float32))
            hide(scope, inputs[shape])
        whole = dtype == torch.int32
        listed = tuple(int(one) if whole else one for one in numbers)
        contents = Contents("numbers", numbers=listed, layout=scope.choices.pick(_LAYOUTS))
        other = scope.building.store(kind, dtype, shape, contents)
        made = torch.promote_types(torch.float32, dtype)
        # The sign of a zero is seen in what it is divided by.
        returned(scope, loose_call(scope, op, (inputs[shape], other), made, shape, is_exact=True))
        if scope.choices.chance(0.3) and scope.building.plan.policy.allows("aten.reciprocal.default"):
            floats = torch.float32 if whole else dtype
            returned(scope, loose_call(scope, "aten.reciprocal.default", (other,), floats, shape))


def equal_lists(scope: Scope) -> None:
    """Give one list of tensors to operators for which lists have different types, and its elements in another order."""
    choices = scope.choices
    count = choices.integer(1, 3)
    places = [tuple(choices.integer(-3, 2) for _ in range(count)) for _ in range(2)]
    indices = [scope.new_input(torch.int64, (count,), Contents("numbers", numbers=one)) for one in places]
    table = scope.new_input(torch.float32, (3, 3), scope.building.contents(torch.float32))
    added = scope.new_input(torch.float32, (count,), scope.building.contents(torch.float32))
    for one in (table, added, *indices):
        hide(scope, one)
    calls: dict[str, tuple[tuple[Any, ...], torch.dtype, tuple[int, ...]]] = {
        "aten.cat.default": ((indices,), torch.int64, (2 * count,)),
        "aten.stack.default": ((indices,), torch.int64, (2, count)),
        "aten.index.Tensor": ((table, indices), torch.float32, (count,)),
        "aten.index_put.default": ((table, indices, added, True), torch.float32, (3, 3)),
    }
    for op in choices.shuffled(tuple(calls))[: choices.integer(2, 4)]:
        args, dtype, sizes = calls[op]
        if choices.chance(0.3):
            args = tuple(one[::-1] if one is indices else one for one in args)
        returned(scope, loose_call(scope, op, args, dtype, sizes, is_exact=True))


def _numbers(scope: Scope, count: int) -> list[float]:
    """Return numbers of a tensor: all alike, two in turn, or any."""
    way = scope.choices.integer(0, 2)
    if way == 0:
        return [scope.choices.pick((0.0, 1.0, 0.5))] * count
    if way == 1:
        return [(1.0, -2.0)[at % 2] for at in range(count)]
    return [scope.choices.integer(-8, 8) / 4 for _ in range(count)]


def _one_element(scope: Scope, numbers: Sequence[float]) -> list[float]:
    at = scope.choices.integer(0, len(numbers) - 1)
    return [one + 1 if place == at else one for place, one in enumerate(numbers)]


def _in_the_middle(scope: Scope, numbers: Sequence[float]) -> list[float]:
    at = len(numbers) // 2 + scope.choices.integer(-1, 1)
    return [one - 0.5 if place == at else one for place, one in enumerate(numbers)]


def _signs_of_zeros(scope: Scope, numbers: Sequence[float]) -> list[float]:
    del scope
    return [one or -0.0 for one in numbers]


def _exchanged(scope: Scope, numbers: Sequence[float]) -> list[float]:
    found = list(numbers)
    one, other = (scope.choices.integer(0, len(found) - 1) for _ in range(2))
    found[one], found[other] = found[other], found[one]
    return found


def _backwards(scope: Scope, numbers: Sequence[float]) -> list[float]:
    del scope
    return list(reversed(numbers))


def _same(scope: Scope, numbers: Sequence[float]) -> list[float]:
    del scope
    return list(numbers)


_CHANGES: Sequence[Callable[[Scope, Sequence[float]], list[float]]] = (
    _in_the_middle,
    _one_element,
    _signs_of_zeros,
    _exchanged,
    _backwards,
    _same,
)
