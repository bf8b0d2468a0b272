"""Calls that make a value fit what the next call needs: inside an interval, on a grid, of a dtype, of sizes."""

from __future__ import annotations

import math

import torch

from .extents import Extent, Extents, low_of, plus, product
from .scope import Scope
from .values import Fact, Value, bits_of, calm_magnitude, fits, is_float, is_on_grid, range_of


def within(scope: Scope, value: Value, low: float, high: float) -> Value:
    """Return a value inside an interval: itself, or clamped.

    Args:
        scope: The method.
        value: Of any dtype but bool.
        low: Least; a multiple of 1/4 (of 1 for integers).
        high: Greatest; likewise.
    """
    if value.dtype == torch.bool or (low <= value.fact.low and value.fact.high <= high):
        return value
    is_whole = not is_float(value.dtype)
    if is_whole:
        low, high = math.ceil(max(low, range_of(value.dtype)[0])), math.floor(min(high, range_of(value.dtype)[1]))
    fact = value.fact
    finer = bits_of_bounds(low, high)
    bits = None if fact.bits is None else max(fact.bits, finer)
    made = fact._replace(
        low=min(max(fact.low, low), high), high=max(min(fact.high, high), low), bits=0 if is_whole else bits
    )
    return scope.call("aten.clamp.default", (value, number_for(value.dtype, low), number_for(value.dtype, high)), made)


def bits_of_bounds(*bounds: float) -> int:
    """Return how many binary places numbers need that need few."""
    return max(bits_of(bound) or 0 for bound in bounds)


def number_for(dtype: torch.dtype, number: float) -> float | int:
    """Return a number as an argument for tensors of a dtype."""
    return float(number) if is_float(dtype) else int(number)


def calm(scope: Scope, value: Value, magnitude: float | None = None) -> Value:
    """Return a value that is not large, so that arithmetic with it stays in range."""
    most = calm_magnitude(value.dtype) if magnitude is None else magnitude
    return within(scope, value, -most, most)


def tamed(scope: Scope, value: Value, magnitude: float, bits: int) -> Value:
    """Return a value with few bits, so that sums of products of it are exact; itself if it is on no grid."""
    value = within(scope, value, -magnitude, magnitude)
    if value.fact.bits is None or value.fact.bits <= bits or not is_float(value.dtype):
        return value
    fact = value.fact._replace(low=math.floor(value.fact.low), high=math.ceil(value.fact.high), bits=0)
    return scope.call("aten.round.default", (value,), fact)


def away_from_zero(scope: Scope, value: Value) -> Value:
    """Return a value of at least 1/4, or 1 for integers, made from one that may be anything."""
    if value.fact.low >= 0.25:
        return value
    most = calm_magnitude(value.dtype)
    if value.dtype == torch.uint8 or scope.choices.chance(0.5):
        return within(scope, value, 1 if not is_float(value.dtype) else 0.25, most)
    value = calm(scope, value, most / 2)
    fact = value.fact._replace(low=0, high=value.magnitude)
    made = scope.call("aten.abs.default", (value,), fact)
    fact = made.fact._replace(low=1, high=made.fact.high + 1)
    return scope.call("aten.add.Scalar", (made, number_for(value.dtype, 1)), fact)


def cast(scope: Scope, value: Value, dtype: torch.dtype) -> Value:
    """Return a value in another dtype."""
    if value.dtype == dtype:
        return value
    low, high = range_of(dtype)
    if dtype != torch.bool and not fits(dtype, value.fact.low, value.fact.high):
        value = within(scope, value, max(low, -1024), min(high, 1024))
    return scope.call("aten._to_copy.default", (value,), cast_fact(value.fact, dtype), (("dtype", dtype),))


def cast_fact(fact: Fact, dtype: torch.dtype) -> Fact:
    """Return what a value is in another dtype, which holds its interval."""
    if dtype == torch.bool:
        return fact._replace(dtype=dtype, low=0, high=1, bits=0)
    if not is_float(dtype):
        return fact._replace(dtype=dtype, low=math.trunc(fact.low), high=math.trunc(fact.high), bits=0)
    magnitude = max(abs(fact.low), abs(fact.high))
    bits = fact.bits if is_on_grid(dtype, magnitude, fact.bits) else None
    low, high = (fact.low, fact.high) if bits is not None else widened(fact.low, fact.high)
    return fact._replace(dtype=dtype, bits=bits, low=low, high=high)


def widened(low: float, high: float) -> tuple[float, float]:
    """Return an interval that rounding in any dtype does not leave; what has no sign gets none."""
    slack = 0.02 * max(abs(low), abs(high)) + 1e-3
    return (low - slack if low else 0), (high + slack if high else 0)


def dense(scope: Scope, value: Value) -> Value:
    """Return a value that lies row by row, without gaps: itself, or a copy."""
    if value.fact.is_dense:
        return value
    made = value.fact._replace(is_dense=True)
    keyword = (("memory_format", torch.contiguous_format),)
    return scope.call("aten.clone.default", (value,), made, keyword)


def flat(scope: Scope, value: Value) -> Value:
    """Return the elements of a value that has at most one size with symbols, in one dim."""
    count = product(value.sizes)
    assert count is not None
    if value.rank == 1:
        return value
    value = dense(scope, value)
    fact = value.fact._replace(sizes=(count,))
    return scope.call("aten.view.default", (value, (count,)), fact, root=value)


def sized(scope: Scope, value: Value, sizes: Extents) -> Value | None:
    """Return a value with other sizes, made by slicing, padding and expanding dim by dim; None if ranks are too far."""
    value = _ranked(scope, value, len(sizes))
    for dim, (have, want) in enumerate(zip(value.sizes, sizes, strict=True)):
        if have == want:
            continue
        if have == 1:
            continue
        made = _with_size(scope, value, dim, want)
        if made is None:
            return None
        value = made
    if value.sizes != sizes:
        # Whether a size of one is expanded must not depend on what symbols are.
        if any(
            have == 1 and low_of(want) < 2
            for have, want in zip(value.sizes, sizes, strict=True)
            if not isinstance(want, int)
        ):
            return None
        fact = value.fact._replace(sizes=sizes, is_dense=False)
        value = scope.call("aten.expand.default", (value, sizes), fact, root=value)
    return value


def _ranked(scope: Scope, value: Value, rank: int) -> Value:
    while value.rank > rank:
        dim = value.rank - 1 - next((at for at, size in enumerate(reversed(value.sizes)) if size == 1), 0)
        sizes = (*value.sizes[:dim], *value.sizes[dim + 1 :])
        if low_of(value.sizes[dim]) < 1:
            fact = value.fact._replace(sizes=sizes, low=0, high=0, bits=0)
            return _ranked(scope, scope.call("aten.full.default", (sizes, 0), fact, (("dtype", value.dtype),)), rank)
        fact = value.fact._replace(sizes=sizes, is_dense=False)
        value = scope.call("aten.select.int", (value, dim, 0), fact, root=value)
    while value.rank < rank:
        fact = value.fact._replace(sizes=(1, *value.sizes), is_dense=False)
        value = scope.call("aten.unsqueeze.default", (value, 0), fact, root=value)
    return value


def _with_size(scope: Scope, value: Value, dim: int, want: Extent) -> Value | None:
    have = value.sizes[dim]
    if low_of(have) < 1:
        return None
    # Whether something is sliced away must not depend on what symbols are.
    spare = 0 if isinstance(have, int) else 1
    if isinstance(want, int) and low_of(have) >= want + spare:
        sizes = (*value.sizes[:dim], want, *value.sizes[dim + 1 :])
        fact = value.fact._replace(sizes=sizes, is_dense=False)
        return scope.call("aten.slice.Tensor", (value, dim, 0, want), fact, root=value)
    more = missing(have, want)
    if more is not None and isinstance(more, int) and value.dtype != torch.bool:
        sizes = (*value.sizes[:dim], plus(have, more), *value.sizes[dim + 1 :])
        pad = (0, 0) * (value.rank - 1 - dim) + (0, more)
        fact = value.fact._replace(
            sizes=sizes, low=min(0, value.fact.low), high=max(0, value.fact.high), is_dense=value.fact.is_dense
        )
        return scope.call("aten.constant_pad_nd.default", (value, pad, number_for(value.dtype, 0)), fact)
    fact = value.fact._replace(sizes=(*value.sizes[:dim], *value.sizes[dim + 1 :]), is_dense=False)
    value = scope.call("aten.select.int", (value, dim, low_of(have) - 1), fact, root=value)
    fact = value.fact._replace(sizes=(*value.sizes[:dim], 1, *value.sizes[dim:]), is_dense=False)
    return scope.call("aten.unsqueeze.default", (value, dim), fact, root=value)


def missing(have: Extent, want: Extent) -> int | None:
    """Return how much a size must grow, if that is a number that is not negative."""
    if isinstance(have, int) and isinstance(want, int):
        return want - have if want >= have else None
    if isinstance(have, int) or isinstance(want, int) or have.terms != want.terms:
        return None
    return want.constant - have.constant if want.constant >= have.constant else None


def fitting(scope: Scope, value: Value, dtype: torch.dtype, sizes: Extents) -> Value:
    """Return a value of a dtype and sizes, made from one of any: cast, cut, padded, expanded."""
    value = cast(scope, value, dtype)
    made = sized(scope, value, sizes)
    if made is not None:
        return made
    fact = Fact(dtype, sizes, 0, 0, 0)
    return scope.call("aten.full.default", (sizes, number_for(dtype, 0)), fact, (("dtype", dtype),))
