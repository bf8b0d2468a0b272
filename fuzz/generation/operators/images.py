"""Calls of pooling, normalization and resampling."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from exirkit.fuzz.generation.method.extents import (
    Extent,
    Extents,
    greatest_count,
    high_of,
    is_static,
    least_count,
    low_of,
    times,
)
from exirkit.fuzz.generation.method.guards import calm, dense, widened, within
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Fact, Value, is_on_grid

from .catalogue import Operator
from .layers import image, side_after, widest
from .registry import proposes


@proposes("pool")
def pool(scope: Scope, operator: Operator) -> None:
    """Propose pooling over two dims."""
    value = image(scope, operator, 2)
    if not is_static(value.sizes):
        # torch compares strides to find the memory format, and export rejects what makes it compare sizes that vary.
        value = dense(scope, value)
    if operator.option("rule") == "adaptive":
        _adaptive(scope, operator, value)
        return
    window = [widest(scope.choices.pick((2, 1, 3)), side) for side in value.sizes[2:]]
    stride = [scope.choices.pick((1, 2)) if isinstance(side, int) else 1 for side in value.sizes[2:]]
    padding = [scope.choices.integer(0, size // 2) if scope.choices.chance(0.3) else 0 for size in window]
    is_ceiled = is_static(value.sizes) and scope.choices.chance(0.35)
    windows = list(zip(value.sizes[2:], window, stride, padding, strict=True))
    sides = tuple(pooled_side(side, size, step, pad, is_ceiled=is_ceiled) for side, size, step, pad in windows)
    sizes = (*value.sizes[:2], *sides)
    if operator.option("rule") == "average":
        _average(scope, operator, value, (window, stride, padding), sizes, is_ceiled=is_ceiled)
        return
    places = Fact(torch.int64, sizes, 0, high_of(value.sizes[2]) * high_of(value.sizes[3]) - 1, 0, value.fact.is_dense)
    facts = (
        (value.fact._replace(sizes=sizes),) if operator.option("single") else (value.fact._replace(sizes=sizes), places)
    )
    args: tuple[Any, ...] = (value, window, stride, padding)
    if not any(padding) and scope.choices.chance(0.5):
        args = (value, window, stride)
    if is_ceiled:
        args = (value, window, stride, padding, [1, 1], True)
    scope.call_several(operator.name, args, facts)


def pooled_side(side: Extent, window: int, step: int, padding: int, *, is_ceiled: bool) -> Extent:
    """Return how many windows lie along a dim; with `ceil_mode` the last one may end behind the padding."""
    if not is_ceiled or not isinstance(side, int):
        return side_after(side, window, step, padding)
    count = -(-(side + 2 * padding - window) // step) + 1
    # None begins behind the elements and the padding in front.
    return count - 1 if (count - 1) * step >= side + padding else count


def _average(
    scope: Scope,
    operator: Operator,
    value: Value,
    windows: tuple[list[int], ...],
    sizes: Extents,
    *,
    is_ceiled: bool,
) -> None:
    window, stride, padding = windows
    count = window[0] * window[1]
    includes_pad = not (any(padding) or is_ceiled) or scope.choices.chance(0.5)
    is_power = count & (count - 1) == 0 and not is_ceiled and (includes_pad or not any(padding))
    value = calm(scope, value)
    bits = value.fact.bits
    low, high = min(value.fact.low, 0), max(value.fact.high, 0)
    is_exact = bits is not None and is_power and is_on_grid(value.dtype, value.magnitude * count, bits)
    grid = bits + count.bit_length() - 1 if is_exact and bits is not None else None
    if grid is None:
        low, high = widened(low, high)
    fact = value.fact._replace(sizes=sizes, low=low, high=high, bits=grid)
    args: tuple[Any, ...] = (value, window, stride, padding, is_ceiled, includes_pad)
    if not is_exact and scope.choices.chance(0.3):
        # Another divisor than the number of elements, which makes greater numbers.
        args = (*args, scope.choices.pick((1, 3, count + 1)))
        low, high = widened(min(value.fact.low, 0) * count, max(value.fact.high, 0) * count)
        fact = fact._replace(low=low, high=high)
    scope.call(operator.name, args, fact)


def _adaptive(scope: Scope, operator: Operator, value: Value) -> None:
    made = [scope.choices.pick([each for each in (1, 2, 3) if each <= low_of(side)]) for side in value.sizes[2:]]
    if not is_static(value.sizes[2:]):
        made = [1, 1]
    value = calm(scope, value)
    low, high = widened(value.fact.low, value.fact.high)
    fact = value.fact._replace(sizes=(*value.sizes[:2], *made), low=low, high=high, bits=None)
    scope.call(operator.name, (value, made), fact)


def _vector(scope: Scope, value: Value, count: int, low: float = -1, high: float = 1) -> Value:
    """Return a number for each channel."""
    found = [
        each
        for each in scope.values
        if each.dtype == value.dtype and each.sizes == (count,) and each.fact.low >= low and each.fact.high <= high
    ]
    if found and scope.choices.chance(0.5):
        return scope.choices.pick(found)
    return scope.fresh(value.dtype, (count,), low, high, 2, stored=True)


@proposes("normalize")
def normalize(scope: Scope, operator: Operator) -> None:
    """Propose a normalization."""
    _NORMS[operator.option("rule")](scope, operator)


def _bound(count: int, weight: Value | None, bias: Value | None) -> float:
    """Return how far normalized elements are from 0: none of n is farther than the root of n deviations."""
    most = math.sqrt(count) * 1.05 + 0.1
    return most * (weight.magnitude if weight is not None else 1.0) + (bias.magnitude if bias is not None else 0.0)


def _epsilon(scope: Scope) -> float:
    """Return what is added to variances: a whole number means the same as a float."""
    return 1 if scope.building.requests("whole_number_for_float") else 0.0625


WITH_EPSILON = (
    "aten.native_layer_norm.default",
    "aten.native_group_norm.default",
    "aten._native_batch_norm_legit_no_training.default",
)
"""Operators that are called with `_epsilon`."""


def _layer(scope: Scope, operator: Operator) -> None:
    def is_fine(value: Value) -> bool:
        return isinstance(value.sizes[-1], int) and least_count(value.sizes) > 0 and value.sizes[-1] <= 64

    value = scope.pick(operator.dtypes, (1, 4), is_fine, nonempty=True)
    if not is_fine(value):
        value = scope.fresh(value.dtype, (2, 5))
    value = calm(scope, value, 64)
    count = low_of(value.sizes[-1])
    weight = _vector(scope, value, count) if scope.choices.chance(0.6) else None
    bias = _vector(scope, value, count) if weight is not None and scope.choices.chance(0.6) else None
    most = _bound(count, weight, bias)
    fact = value.fact._replace(low=-most, high=most, bits=None)
    args = (value, [count], weight, bias, _epsilon(scope))
    if operator.option("single"):
        scope.call(operator.name, args, fact)
        return
    scope.call_several(operator.name, args, (fact, *_moments(value, (*value.sizes[:-1], 1))))


def _moments(value: Value, sizes: Extents) -> tuple[Fact, Fact]:
    """Return what mean and reciprocal deviation are."""
    low, high = widened(value.fact.low, value.fact.high)
    mean = value.fact._replace(sizes=sizes, low=low, high=high, bits=None, is_dense=False)
    return mean, mean._replace(low=0, high=4.1)


def _group(scope: Scope, operator: Operator) -> None:
    value = image(scope, operator, scope.choices.integer(1, 2))
    if not is_static(value.sizes):
        value = scope.fresh(value.dtype, (2, 4, 3))
    value = dense(scope, calm(scope, value, 64))
    channels = low_of(value.sizes[1])
    groups = scope.choices.pick([each for each in (1, 2, 3, channels) if channels % each == 0])
    weight = _vector(scope, value, channels) if scope.choices.chance(0.6) else None
    bias = _vector(scope, value, channels) if weight is not None and scope.choices.chance(0.6) else None
    batch, inner = low_of(value.sizes[0]), greatest_count(value.sizes[2:])
    most = _bound(inner * channels // groups, weight, bias)
    fact = value.fact._replace(low=-most, high=most, bits=None)
    if operator.option("single"):
        scope.call(operator.name, (value, groups, weight, bias, _epsilon(scope)), fact)
        return
    args = (value, weight, bias, batch, channels, inner, groups, _epsilon(scope))
    scope.call_several(operator.name, args, (fact, *_moments(value, (batch, groups))))


def _batch(scope: Scope, operator: Operator) -> None:
    value = calm(scope, image(scope, operator, scope.choices.pick((2, 1))), 64)
    channels = low_of(value.sizes[1])
    weight, bias, mean = (_vector(scope, value, channels) for _ in range(3))
    variance = _vector(scope, value, channels, 0.5, 2)
    most = (value.magnitude + 1) * 1.5 * weight.magnitude + bias.magnitude
    low, high = widened(-most, most)
    fact = value.fact._replace(low=low, high=high, bits=None)
    empty = Fact(value.dtype, (0,), 0, 0, 0)
    args = (value, weight, bias, mean, variance, 0.125, _epsilon(scope))
    scope.call_several(operator.name, args, (fact, empty, empty))


def _batch_own(scope: Scope, operator: Operator) -> None:
    value = calm(scope, image(scope, operator, scope.choices.pick((2, 1))), 64)
    if greatest_count(value.sizes) // high_of(value.sizes[1]) < 2 or not is_static(value.sizes):
        value = scope.fresh(value.dtype, (2, 3, 5))
    channels = low_of(value.sizes[1])
    weight, bias = _vector(scope, value, channels), _vector(scope, value, channels)
    most = _bound(greatest_count(value.sizes) // channels, weight, bias)
    fact = value.fact._replace(low=-most, high=most, bits=None)
    args = (value, weight, bias, True, 0.125, _epsilon(scope))
    scope.call_several(operator.name, args, (fact, *_moments(value, (channels,))))


_NORMS: Mapping[str, Callable[[Scope, Operator], None]] = {
    "layer": _layer,
    "group": _group,
    "batch": _batch,
    "batch_own": _batch_own,
}


@proposes("resample")
def resample(scope: Scope, operator: Operator) -> None:
    """Propose a change of resolution, sampling at places, or distances."""
    _RESAMPLING[operator.option("rule")](scope, operator)


def _nearest(scope: Scope, operator: Operator) -> None:
    value = _small_image(scope, operator)
    sizes = (*value.sizes[:2], *(times(side, 2) for side in value.sizes[2:]))
    scope.call(operator.name, (value, None, [2.0, 2.0]), value.fact._replace(sizes=sizes, is_dense=False))


def _bilinear(scope: Scope, operator: Operator) -> None:
    value = _small_image(scope, operator)
    low, high = widened(value.fact.low, value.fact.high)
    fact = value.fact._replace(low=low, high=high, bits=None, is_dense=False)
    corners = scope.choices.chance(0.5)
    if scope.choices.chance(0.5):
        made = [scope.choices.integer(2, 6), scope.choices.integer(2, 6)]
        scope.call(operator.name, (value, made, corners, None), fact._replace(sizes=(*value.sizes[:2], *made)))
        return
    sizes = (*value.sizes[:2], *(times(side, 2) for side in value.sizes[2:]))
    scope.call(operator.name, (value, None, corners, [2.0, 2.0]), fact._replace(sizes=sizes))


def _small_image(scope: Scope, operator: Operator) -> Value:
    value = image(scope, operator, 2)
    if greatest_count(value.sizes) > 1000 or not is_static(value.sizes):
        value = scope.fresh(value.dtype, (1, 2, 3, 5))
    return calm(scope, value)


def _grid(scope: Scope, operator: Operator) -> None:
    value = _small_image(scope, operator)
    if not is_static(value.sizes):
        value = scope.fresh(value.dtype, (1, 2, 3, 5))
    places = scope.fresh(value.dtype, (value.sizes[0], 3, 2, 2), -1, 1)
    low, high = widened(min(value.fact.low, 0), max(value.fact.high, 0))
    sizes = (*value.sizes[:2], 3, 2)
    fact = value.fact._replace(sizes=sizes, low=low, high=high, bits=None, is_dense=False)
    scope.call(operator.name, (value, places, 0, 0, scope.choices.chance(0.5)), fact)


def _cdist(scope: Scope, operator: Operator) -> None:
    one = scope.pick(operator.dtypes, (2, 2), lambda value: greatest_count(value.sizes) < 500, nonempty=True)
    one = within(scope, one, -16, 16)
    other = scope.fresh(one.dtype, (3, one.sizes[1]))
    most = (one.magnitude + other.magnitude) * high_of(one.sizes[1])
    fact = Fact(one.dtype, (one.sizes[0], 3), 0, widened(0, most)[1], None)
    scope.call(operator.name, (one, other, scope.choices.pick((1.0, 2.0, 2)), None), fact)


_RESAMPLING: Mapping[str, Callable[[Scope, Operator], None]] = {
    "nearest": _nearest,
    "bilinear": _bilinear,
    "grid": _grid,
    "cdist": _cdist,
}
