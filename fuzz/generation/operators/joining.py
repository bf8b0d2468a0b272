"""Calls of operators that join several tensors, cut one into several, or pad one with itself."""

from __future__ import annotations

import math
from collections.abc import Sequence

from exirkit.fuzz.generation.method.extents import (
    MOST_ELEMENTS,
    Extent,
    Extents,
    divided,
    greatest_count,
    is_static,
    low_of,
    plus,
)
from exirkit.fuzz.generation.method.guards import fitting
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Fact, Value, is_float

from .catalogue import Operator
from .registry import proposes
from .viewing import from_end, replaced


@proposes("join")
def join(scope: Scope, operator: Operator) -> None:
    """Propose `cat` or `stack`."""
    is_stack = "stack" in operator.name
    first = scope.pick(operator.dtypes, (0 if is_stack else 1, 4), lambda each: greatest_count(each.sizes) < 1000)
    dim = scope.choices.integer(0, first.rank if is_stack else first.rank - 1)
    rank = first.rank + 1 if is_stack else first.rank
    others = [_companion(scope, first, dim, is_stack) for _ in range(scope.choices.integer(1, 2))]
    parts = scope.choices.shuffled([first, *others])
    size: Extent = len(parts) if is_stack else 0
    if not is_stack:
        for part in parts:
            size = plus(size, part.sizes[dim])
    sizes = (*first.sizes[:dim], size, *first.sizes[dim:]) if is_stack else replaced(first.sizes, dim, size)
    args = (parts, from_end(scope, dim, rank)) if dim or scope.choices.chance(0.5) else (parts,)
    scope.call(operator.name, args, _union(parts)._replace(sizes=sizes))


def _union(parts: Sequence[Value]) -> Fact:
    """Return what holds for the elements of several values of one dtype."""
    grids = [part.fact.bits for part in parts]
    return Fact(
        parts[0].dtype,
        (),
        min(part.fact.low for part in parts),
        max(part.fact.high for part in parts),
        None if None in grids else max(bits for bits in grids if bits is not None),
        all(part.fact.is_dense for part in parts),
    )


def _companion(scope: Scope, first: Value, dim: int, is_stack: bool) -> Value:
    """Return a value that can be joined with another."""

    def goes(value: Value) -> bool:
        if value.dtype != first.dtype or value.rank != first.rank:
            return False
        pairs = enumerate(zip(value.sizes, first.sizes, strict=True))
        return all(one == other or (at == dim and not is_stack) for at, (one, other) in pairs)

    found = [value for value in scope.values if goes(value) and greatest_count(value.sizes) < 1000]
    if found and scope.choices.chance(0.6):
        return found[scope.choices.integer(0, len(found) - 1)]
    sizes: Extents = first.sizes
    if not is_stack:
        sizes = replaced(sizes, dim, scope.choices.pick((1, 2, 3)))
    if scope.choices.chance(0.5):
        same = [value for value in scope.values if value.dtype == first.dtype]
        return fitting(scope, scope.choices.pick(same), first.dtype, sizes)
    return scope.fresh(first.dtype, sizes)


@proposes("cut")
def cut(scope: Scope, operator: Operator) -> None:
    """Propose an operator that cuts a tensor along a dim."""
    rule = operator.option("rule")

    def has_dim(value: Value) -> bool:
        return any(isinstance(size, int) and 2 <= size <= 12 for size in value.sizes)

    value = scope.pick(operator.dtypes, (1, 5), has_dim)
    if not has_dim(value):
        value = scope.fresh(value.dtype, (5, 3))
    dim = scope.choices.pick([dim for dim, size in enumerate(value.sizes) if isinstance(size, int) and 2 <= size <= 12])
    size = low_of(value.sizes[dim])
    if rule == "unbind":
        pieces = [replaced(value.sizes, dim)] * size
        argument: tuple[object, ...] = ()
    else:
        lengths, argument = _lengths(scope, rule, size)
        pieces = [replaced(value.sizes, dim, length) for length in lengths]
    written = (from_end(scope, dim, value.rank),) if dim or scope.choices.chance(0.5) else ()
    facts = [value.fact._replace(sizes=sizes, is_dense=False) for sizes in pieces]
    copy = operator.option("copy")
    is_copy = copy is not None and scope.choices.chance(0.1)
    name = copy if is_copy else operator.name
    scope.call_several(name, (value, *argument, *written), facts, root=None if is_copy else value)


def _lengths(scope: Scope, rule: str, size: int) -> tuple[list[int], tuple[object, ...]]:
    if rule == "split_with_sizes":
        first = scope.choices.integer(1, size - 1)
        lengths = [first, size - first]
        if lengths[1] > 1 and scope.choices.chance(0.4):
            lengths = [first, 1, size - first - 1]
        return lengths, (lengths,)
    if rule == "chunk":
        count = scope.choices.integer(2, 3)
        length = math.ceil(size / count)
        return [min(length, size - start) for start in range(0, size, length)], (count,)
    length = scope.choices.integer(1, max(1, size - 1))
    return [min(length, size - start) for start in range(0, size, length)], (length,)


@proposes("pad")
def pad(scope: Scope, operator: Operator) -> None:
    """Propose to pad the last dims with elements of the tensor."""
    count = operator.option("dims")
    reflects = bool(operator.option("reflects"))
    ranks = (count + 1, count + 2)

    def is_enough(value: Value) -> bool:
        is_small = greatest_count(value.sizes) < 500
        return is_small and all(low_of(size) > 1 for size in value.sizes[-count:]) and 0 not in value.sizes

    value = scope.pick(operator.dtypes, ranks, is_enough, nonempty=True)
    if not is_enough(value) or any(low_of(size) < 1 for size in value.sizes):
        value = scope.fresh(value.dtype, (2, 3, 5, 2)[: count + 1])
    sizes = list(value.sizes)
    written: list[int] = []
    for dim in range(value.rank - 1, value.rank - 1 - count, -1):
        most = min(low_of(sizes[dim]) - 1, 2) if reflects else 2
        pair = (scope.choices.integer(0, most), scope.choices.integer(0, most))
        written += pair
        sizes[dim] = plus(sizes[dim], sum(pair))
    scope.call(operator.name, (value, written), value.fact._replace(sizes=tuple(sizes), is_dense=False))


@proposes("gate")
def gate(scope: Scope, operator: Operator) -> None:
    """Propose `glu`, which halves a dim."""
    value = scope.pick(operator.dtypes, (1, 4))
    halves = [(dim, half) for dim, size in enumerate(value.sizes) if (half := divided(size, 2)) is not None]
    if not halves:
        if greatest_count(value.sizes) > MOST_ELEMENTS // 2 or not is_static(value.sizes):
            value = scope.fresh(value.dtype, (3, 4))
        else:
            sizes = replaced(value.sizes, 0, plus(value.sizes[0], value.sizes[0]))
            value = scope.call("aten.cat.default", ((value, value),), value.fact._replace(sizes=sizes))
        halves = [(dim, half) for dim, size in enumerate(value.sizes) if (half := divided(size, 2)) is not None]
    dim, half = scope.choices.pick(halves)
    most = value.magnitude
    assert is_float(value.dtype)
    fact = value.fact._replace(sizes=replaced(value.sizes, dim, half), low=-most, high=most, bits=None, is_dense=False)
    scope.call(operator.name, (value, dim), fact)
