"""Calls of matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from exirkit.fuzz.generation.method.extents import (
    Extent,
    Extents,
    greatest_count,
    high_of,
    is_static,
    least_count,
    low_of,
    plus,
)
from exirkit.fuzz.generation.method.guards import calm, tamed, widened
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Fact, Value, is_on_grid

from .catalogue import Operator
from .registry import proposes


def _weight(scope: Scope, dtype: torch.dtype, sizes: Extents) -> Value:
    """Return the second factor: something that is there, or fresh with small numbers."""
    found = [value for value in scope.values if value.dtype == dtype and value.sizes == sizes]
    if found and scope.choices.chance(0.6):
        return scope.choices.pick(found)
    return scope.fresh(dtype, sizes, -1, 1, 1, stored=scope.choices.chance(0.6))


def _kept(scope: Scope, factors: Sequence[Value], count: int) -> list[Value]:
    """Return factors of products of which so many are added, kept small or on the grid."""
    if scope.choices.chance(scope.building.plan.policy.exact):
        bits = sum(factor.fact.bits or 0 for factor in factors)
        most = count
        for factor in factors:
            most *= max(int(factor.magnitude), 1)
        if not is_on_grid(factors[0].dtype, most, bits):
            return [tamed(scope, factor, 2, 0) for factor in factors]
    return [calm(scope, factor, 32) for factor in factors]


def sum_of_products(one: Value, other: Value, count: int, added: Value | None = None) -> Fact:
    """Return what sums of so many products are, but for their sizes."""
    most = one.magnitude * other.magnitude * count + (added.magnitude if added is not None else 0)
    grids = [value.fact.bits for value in (one, other)]
    bits = None if None in grids else sum(bit for bit in grids if bit is not None)
    if added is not None and bits is not None:
        bits = None if added.fact.bits is None else max(bits, added.fact.bits)
    if not is_on_grid(one.dtype, most, bits):
        bits = None
    low, high = (-most, most) if bits is not None else widened(-most, most)
    return Fact(one.dtype, (), low, high, bits)


@proposes("product")
def product(scope: Scope, operator: Operator) -> None:
    """Propose a matrix product."""
    _PRODUCTS[operator.option("rule")](scope, operator)


def _is_small(value: Value) -> bool:
    return greatest_count(value.sizes) <= 2000


def _columns(scope: Scope) -> Extent:
    return scope.choices.pick((3, 2, 5, 4, 1))


def _mm(scope: Scope, operator: Operator) -> None:
    one = scope.pick(operator.dtypes, (2, 2), _is_small)
    columns = _columns(scope)
    other = _weight(scope, one.dtype, (one.sizes[1], columns))
    one, other = _kept(scope, (one, other), high_of(one.sizes[1]))
    fact = sum_of_products(one, other, high_of(one.sizes[1]))
    scope.call(operator.name, (one, other), fact._replace(sizes=(one.sizes[0], other.sizes[1])))


def _bmm(scope: Scope, operator: Operator) -> None:
    one = scope.pick(operator.dtypes, (3, 3), _is_small)
    columns = _columns(scope)
    other = _weight(scope, one.dtype, (one.sizes[0], one.sizes[2], columns))
    one, other = _kept(scope, (one, other), high_of(one.sizes[2]))
    fact = sum_of_products(one, other, high_of(one.sizes[2]))
    scope.call(operator.name, (one, other), fact._replace(sizes=(*one.sizes[:2], columns)))


def _addmm(scope: Scope, operator: Operator) -> None:
    one = scope.pick(operator.dtypes, (2, 2), _is_small)
    columns = _columns(scope)
    other = _weight(scope, one.dtype, (one.sizes[1], columns))
    added = _weight(scope, one.dtype, scope.choices.pick(((columns,), (one.sizes[0], columns), (1, columns))))
    one, other = _kept(scope, (one, other), high_of(one.sizes[1]))
    added = tamed(scope, added, 4, 2)
    fact = sum_of_products(one, other, 2 * high_of(one.sizes[1]), added)
    keywords: tuple[tuple[str, float], ...] = ()
    if scope.choices.chance(0.3):
        keywords = scope.choices.pick(((("beta", 1), ("alpha", 2)), (("alpha", -1),), (("beta", -1),)))
    scope.call(operator.name, (added, one, other), fact._replace(sizes=(one.sizes[0], columns)), keywords)


def _matmul(scope: Scope, operator: Operator) -> None:
    one = scope.pick(operator.dtypes, (1, 4), _is_small)
    columns = _columns(scope)
    batch = one.sizes[:-2] if one.rank > 2 and scope.choices.chance(0.5) else ()
    is_vector = not batch and scope.choices.chance(0.2)
    inner = one.sizes[-1]
    other = _weight(scope, one.dtype, (inner,) if is_vector else (*batch, inner, columns))
    one, other = _kept(scope, (one, other), high_of(inner))
    sizes = one.sizes[:-1] if is_vector else (*one.sizes[:-1], columns)
    fact = sum_of_products(one, other, high_of(inner))
    scope.call(operator.name, (one, other), fact._replace(sizes=sizes, is_dense=False))


def _linear(scope: Scope, operator: Operator) -> None:
    one = scope.pick(operator.dtypes, (1, 4), _is_small)
    columns = _columns(scope)
    other = _weight(scope, one.dtype, (columns, one.sizes[-1]))
    bias = _weight(scope, one.dtype, (columns,)) if scope.choices.chance(0.6) else None
    one, other = _kept(scope, (one, other), high_of(one.sizes[-1]))
    bias = None if bias is None else tamed(scope, bias, 4, 2)
    fact = sum_of_products(one, other, high_of(one.sizes[-1]), bias)
    args = (one, other) if bias is None else (one, other, bias)
    scope.call(operator.name, args, fact._replace(sizes=(*one.sizes[:-1], columns), is_dense=one.fact.is_dense))


def _baddbmm(scope: Scope, operator: Operator) -> None:
    one = scope.pick(operator.dtypes, (3, 3), _is_small)
    columns = _columns(scope)
    other = _weight(scope, one.dtype, (one.sizes[0], one.sizes[2], columns))
    added = _weight(scope, one.dtype, (*one.sizes[:2], columns))
    one, other = _kept(scope, (one, other), high_of(one.sizes[2]))
    added = tamed(scope, added, 4, 2)
    fact = sum_of_products(one, other, high_of(one.sizes[2]), added)
    scope.call(operator.name, (added, one, other), fact._replace(sizes=(*one.sizes[:2], columns)))


def _dot(scope: Scope, operator: Operator) -> None:
    one = scope.pick(operator.dtypes, (1, 1))
    other = _weight(scope, one.dtype, one.sizes)
    one, other = _kept(scope, (one, other), high_of(one.sizes[0]))
    scope.call(operator.name, (one, other), sum_of_products(one, other, high_of(one.sizes[0])))


def _mv(scope: Scope, operator: Operator) -> None:
    one = scope.pick(operator.dtypes, (2, 2), _is_small)
    other = _weight(scope, one.dtype, (one.sizes[1],))
    one, other = _kept(scope, (one, other), high_of(one.sizes[1]))
    fact = sum_of_products(one, other, high_of(one.sizes[1]))
    scope.call(operator.name, (one, other), fact._replace(sizes=(one.sizes[0],)))


_PRODUCTS: Mapping[str, Callable[[Scope, Operator], None]] = {
    "mm": _mm,
    "bmm": _bmm,
    "addmm": _addmm,
    "matmul": _matmul,
    "linear": _linear,
    "baddbmm": _baddbmm,
    "dot": _dot,
    "mv": _mv,
}


_SMALL_SIDE = 16
"""Torch takes one kernel below and another from here on: a size with symbols must not leave that open."""


@proposes("convolution")
def convolution(scope: Scope, operator: Operator) -> None:
    """Propose a convolution over one dim or two, transposed at times."""
    dims = scope.choices.pick(operator.option("dims"))
    value = image(scope, operator, dims)
    if any(high_of(size) >= _SMALL_SIDE for size in value.sizes if not isinstance(size, int)):
        value = scope.fresh(value.dtype, (1, 2, 5, 3)[: dims + 2])
    channels = low_of(value.sizes[1])
    is_transposed = operator.option("form") == "whole" and scope.choices.chance(0.2)
    # Which kernel torch takes for many groups depends on sizes, which have to be numbers then.
    is_grouped = scope.choices.chance(0.25) and is_static(value.sizes) and not is_transposed
    groups = channels if is_grouped else 1
    made = groups * scope.choices.pick((1, 2, 3)) if groups > 1 else scope.choices.pick((3, 2, 1))
    window = [scope.choices.pick((1, 2, 3)) for _ in range(dims)]
    window = [widest(size, side) for size, side in zip(window, value.sizes[2:], strict=True)]
    stride = [scope.choices.pick((1, 1, 2)) if isinstance(side, int) else 1 for side in value.sizes[2:]]
    padding = [0 if is_transposed else scope.choices.integer(0, min(size - 1, 1)) for size in window]
    shape = (channels, made, *window) if is_transposed else (made, channels // groups, *window)
    weight = _weight(scope, value.dtype, shape)
    bias = _weight(scope, value.dtype, (made,)) if scope.choices.chance(0.5) else None
    count = channels // groups
    for size in window:
        count *= size
    value, weight = _kept(scope, (value, weight), count)
    bias = None if bias is None else tamed(scope, bias, 4, 2)
    fact = sum_of_products(value, weight, count, bias)
    sides = [
        side_after(side, size, step, pad, is_transposed)
        for side, size, step, pad in zip(value.sizes[2:], window, stride, padding, strict=True)
    ]
    is_dense = value.fact.is_dense and weight.fact.is_dense
    fact = fact._replace(sizes=(value.sizes[0], made, *sides), is_dense=is_dense)
    args: tuple[object, ...] = (value, weight, bias, stride, padding, [1] * dims)
    args = (*args, is_transposed, [0] * dims, groups) if operator.option("form") == "whole" else (*args, groups)
    scope.call(operator.name, args, fact)


def widest(window: int, side: Extent) -> int:
    """Return a window that is not wider than a side, and leaves two places in one with symbols."""
    return min(window, side) if isinstance(side, int) else max(1, min(window, side.low - 1))


def side_after(side: Extent, window: int, step: int, pad: int, is_transposed: bool = False) -> Extent:
    """Return a size after a window has gone over it; steps are 1 where sizes have symbols."""
    if isinstance(side, int):
        if is_transposed:
            return (side - 1) * step - 2 * pad + window
        return (side + 2 * pad - window) // step + 1
    return plus(side, window - 1 - 2 * pad if is_transposed else 2 * pad - window + 1)


def image(scope: Scope, operator: Operator, dims: int) -> Value:
    """Return a batch of images with a fixed number of channels: one that is there, or a fresh one."""

    def is_image(value: Value) -> bool:
        sizes = value.sizes
        return isinstance(sizes[1], int) and least_count(sizes) > 0 and sizes[1] <= 11 and greatest_count(sizes) <= 1500

    value = scope.pick(operator.dtypes, (dims + 2, dims + 2), is_image, nonempty=True)
    if is_image(value):
        return value
    sizes = value.sizes if is_static(value.sizes) and 0 not in value.sizes else ()
    return scope.fresh(value.dtype, (1, 2, 5, 3)[: dims + 2] if not sizes or greatest_count(sizes) > 1500 else sizes)


def combine_with_stored(scope: Scope, value: Value) -> None:
    """Combine a float32 input of four dims that lies channels last with something stored that does, or does not.

    Another input, which lies row by row, may be combined with the same stored tensor.
    """
    operator = scope.choices.pick(("aten.mul.Tensor", "aten.sub.Tensor"))
    if not scope.building.plan.policy.allows(operator):
        return
    contents = scope.building.contents(value.dtype)
    if scope.choices.chance(0.5):
        contents = replace(contents, layout="channels_last")
    stored = scope.building.store(scope.choices.pick(("parameter", "constant")), value.dtype, value.sizes, contents)
    scope.values.append(stored)
    readers = [value]
    if scope.choices.chance(0.5):
        # What is laid out for one of its users must lie as before for the others.
        other = scope.new_input(value.dtype, value.sizes, replace(contents, layout="dense"))
        readers.insert(scope.choices.integer(0, 1), other)
    for reader in readers:
        pair = (reader, stored) if scope.choices.chance(0.5) else (stored, reader)
        scope.must_use.append(scope.call(operator, pair, value.fact._replace(low=-4, high=4, bits=4, is_dense=False)))
