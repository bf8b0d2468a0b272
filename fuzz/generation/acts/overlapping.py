"""Calls that read one tensor by several operands, of which what writes in place overwrites one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from exirkit.fuzz.generation.method.extents import Extents, greatest_count, low_of
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Value
from exirkit.fuzz.programs import Contents

# Above and below the size from which the chain lets kernels write in place, 4096 bytes.
_SHAPES = ((2, 512), (4, 256), (8, 3, 43), (3, 2), (2, 3, 2))
_DTYPES = (torch.float32, torch.float32, torch.int64, torch.int32)


def overlapping_operands(scope: Scope) -> None:
    """Write a part of a tensor that was just computed with what may lie in its own memory: itself, views, copies.

    Afterwards the tensor may be dead, or read again, directly or through a view that was taken before.
    """
    choices = scope.choices
    dtype = choices.pick([one for one in _DTYPES if one in scope.building.plan.policy.dtypes] or [torch.float32])
    sizes = choices.pick(_SHAPES)
    value = _computed(scope, _hidden(scope, scope.new_input(dtype, sizes, scope.building.contents(dtype))))
    seen = [value]
    for _ in range(choices.integer(1, 3)):
        base = seen[-1]
        source = choices.pick(_SOURCES)(scope, base)
        made = choices.pick(_WRITES)(scope, base, source)
        if choices.chance(0.25):
            # What was read is read again: nothing may have overwritten it.
            scope.outputs_of_unknown_size.append(_computed(scope, choices.pick((base, source))))
        seen.append(made)
    scope.outputs_of_unknown_size.append(seen[-1] if choices.chance(0.5) else _computed(scope, seen[-1]))


def _call(
    scope: Scope, op: str, args: tuple[Any, ...], like: Value, sizes: Extents | None = None, root: Value | None = None
) -> Value:
    """Add a call that moves elements, whose result no other call finds."""
    fact = like.fact._replace(sizes=like.sizes if sizes is None else sizes, is_dense=False)
    return _hidden(scope, scope.call(op, args, fact, root=root))


def _hidden(scope: Scope, value: Value) -> Value:
    scope.values.remove(value)
    return value


def _computed(scope: Scope, value: Value) -> Value:
    fact = value.fact._replace(low=-value.magnitude, high=value.magnitude)
    return _hidden(scope, scope.call("aten.neg.default", (value,), fact))


# What is written.


def _itself(scope: Scope, base: Value) -> Value:
    return base


def _seen_otherwise(scope: Scope, base: Value) -> Value:
    """Return a view in the same sizes, by way of one with another number of dims."""
    if scope.choices.chance(0.5):
        raised = _call(scope, "aten.unsqueeze.default", (base, 0), base, (1, *base.sizes), base)
        return _call(scope, "aten.squeeze.dim", (raised, 0), base, base.sizes, base)
    count = greatest_count(base.sizes)
    flat = _call(scope, "aten.view.default", (base, [count]), base, (count,), base)
    return _call(scope, "aten.view.default", (flat, list(base.sizes)), base, base.sizes, base)


def _turned(scope: Scope, base: Value) -> Value:
    return _call(scope, "aten.flip.default", (base, [0]), base)


def _one_row(scope: Scope, base: Value) -> Value:
    row = scope.choices.integer(0, _rows(base) - 1)
    return _call(scope, "aten.select.int", (base, 0, row), base, base.sizes[1:], base)


def _another(scope: Scope, base: Value) -> Value:
    return _computed(scope, base)


_SOURCES: tuple[Callable[[Scope, Value], Value], ...] = (
    _itself,
    _itself,
    _seen_otherwise,
    _seen_otherwise,
    _turned,
    _one_row,
    _another,
)


# How it is written.


def _rows(base: Value) -> int:
    return low_of(base.sizes[0])


def _places(scope: Scope, base: Value) -> Value:
    """Return all rows in another order, some counted from the end."""
    rows = _rows(base)
    order = [row - rows if scope.choices.chance(0.2) else row for row in scope.choices.shuffled(range(rows))]
    contents = Contents(kind="numbers", numbers=tuple(order))
    return scope.building.store("constant", torch.int64, (rows,), contents)


def _merged(base: Value, source: Value) -> Value:
    """Return a value that stands for elements of both, to take facts from."""
    low, high = min(base.fact.low, source.fact.low), max(base.fact.high, source.fact.high)
    return Value(base.name, base.fact._replace(low=low, high=high), "result")


def _put(scope: Scope, base: Value, source: Value) -> Value:
    return _call(scope, "aten.index_put.default", (base, [_places(scope, base)], source), _merged(base, source))


def _scatter_rows(scope: Scope, base: Value, source: Value) -> Value:
    """Write one row, or some that are cut out of the source."""
    if source.rank < base.rank:
        row = scope.choices.integer(0, _rows(base) - 1)
        return _call(scope, "aten.select_scatter.default", (base, source, 0, row), _merged(base, source))
    start = scope.choices.integer(0, _rows(base) - 1)
    part_sizes = (_rows(base) - start, *base.sizes[1:])
    part = _call(scope, "aten.slice.Tensor", (source, 0, 0, part_sizes[0]), source, part_sizes, source)
    args = (base, part, 0, start, _rows(base))
    return _call(scope, "aten.slice_scatter.default", args, _merged(base, part))


def _chosen(scope: Scope, base: Value, source: Value) -> Value:
    mask = scope.new_input(torch.bool, base.sizes, scope.building.contents(torch.bool))
    return _call(scope, "aten.where.self", (_hidden(scope, mask), base, source), _merged(base, source))


_WRITES: tuple[Callable[[Scope, Value, Value], Value], ...] = (_put, _put, _put, _scatter_rows, _chosen)
