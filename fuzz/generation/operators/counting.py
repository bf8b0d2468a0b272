"""Calls whose results have a size that only data decide: what is found, and what is selected."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from exirkit.fuzz.generation.method.extents import greatest_count, high_of, low_of
from exirkit.fuzz.generation.method.guards import number_for
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import DTYPES, FLOATS, Fact, Value, is_on_grid

_COUNTED = (torch.float32, torch.int64, torch.float64, torch.int32)
_MOST_ELEMENTS = 200


def data_sized(scope: Scope) -> None:
    """Find or select elements, go on with what was found, and return it or its sum.

    Nothing else can use a value of unknown size, so that the method does not list it.
    """
    policy = scope.building.plan.policy
    makers = [make for name, make in _MAKERS.items() if policy.allows(name)]
    if not makers or not all(map(policy.allows, _FOLLOWING)):
        return
    made = scope.choices.pick(makers)(scope)
    for _ in range(scope.choices.integer(0, 2)):
        made = _next(scope, made)
    dtype = made.dtype if made.dtype in FLOATS else torch.int64
    most = made.magnitude * greatest_count(made.sizes)
    is_summed = made.dtype in _COUNTED and is_on_grid(dtype, most, made.fact.bits) and scope.choices.chance(0.5)
    if is_summed:
        scope.call("aten.sum.default", (made,), made.fact._replace(dtype=dtype, sizes=(), low=-most, high=most))
    else:
        scope.outputs_of_unknown_size.append(made)


def _source(scope: Scope, dtypes: tuple[torch.dtype, ...]) -> Value:
    """Return something exact: whether an element is counted must not be a matter of its last bit."""

    def is_fine(value: Value) -> bool:
        return value.is_exact and greatest_count(value.sizes) <= _MOST_ELEMENTS

    value = scope.pick(dtypes, (1, 3), is_fine)
    return value if is_fine(value) else scope.fresh(value.dtype, (2, 3))


def _nonzero(scope: Scope) -> Value:
    value = _source(scope, DTYPES)
    largest = max(high_of(size) for size in value.sizes)
    sizes = (greatest_count(value.sizes), value.rank)
    return _hidden(scope, "aten.nonzero.default", (value,), Fact(torch.int64, sizes, 0, max(largest - 1, 0), 0))


def _masked(scope: Scope) -> Value:
    value, mask, fact = _selected(scope)
    if value.sizes and scope.choices.chance(0.4):
        # One of the two is repeated along a dim, or has fewer dims.
        dim = scope.choices.integer(0, value.rank - 1)
        is_cut = low_of(value.sizes[dim]) > 0
        if scope.choices.chance(0.7):
            mask = _repeated(scope, mask, dim) if is_cut else mask
        else:
            value = _repeated(scope, value, dim) if is_cut else value
    return _hidden(scope, "aten.masked_select.default", (value, mask), fact)


def _repeated(scope: Scope, value: Value, dim: int) -> Value:
    """Return the first part of a value along a dim: with one element there, or, of the first dim, without the dim."""
    sizes = value.sizes
    if dim == 0 and scope.choices.chance(0.4):
        fact = value.fact._replace(sizes=sizes[1:], is_dense=False)
        return scope.call("aten.select.int", (value, 0, 0), fact, root=value)
    fact = value.fact._replace(sizes=(*sizes[:dim], 1, *sizes[dim + 1 :]), is_dense=False)
    return scope.call("aten.slice.Tensor", (value, dim, 0, 1), fact, root=value)


def _indexed(scope: Scope) -> Value:
    value, mask, fact = _selected(scope)
    return _hidden(scope, "aten.index.Tensor", (value, [mask]), fact)


def _selected(scope: Scope) -> tuple[Value, Value, Fact]:
    """Return a value, conditions for its elements, and what is known of those for which they hold."""
    value = _source(scope, _COUNTED)
    masks = [one for one in scope.values if one.dtype == torch.bool and one.is_exact and one.sizes == value.sizes]
    if masks and scope.choices.chance(0.5):
        mask = scope.choices.pick(masks)
    else:
        fact = value.fact._replace(dtype=torch.bool, low=0, high=1, bits=0)
        mask = scope.call("aten.gt.Scalar", (value, number_for(value.dtype, 0)), fact)
    return value, mask, value.fact._replace(sizes=(greatest_count(value.sizes),), is_dense=True)


_MAKERS: Mapping[str, Callable[[Scope], Value]] = {
    "aten.nonzero.default": _nonzero,
    "aten.masked_select.default": _masked,
    "aten.index.Tensor": _indexed,
}
_FOLLOWING = ("aten.gt.Scalar", "aten.neg.default", "aten.abs.default", "aten.mul.Scalar", "aten.sum.default")


def _next(scope: Scope, value: Value) -> Value:
    """Return what an elementwise operator makes of a value."""
    if value.dtype not in _COUNTED or value.magnitude > 2.0**20:
        return value
    low, high = value.fact.low, value.fact.high
    kind = scope.choices.integer(0, 2)
    if kind == 0:
        return _hidden(scope, "aten.neg.default", (value,), value.fact._replace(low=-high, high=-low))
    if kind == 1:
        return _hidden(scope, "aten.abs.default", (value,), value.fact._replace(low=0, high=value.magnitude))
    fact = value.fact._replace(low=low * 2, high=high * 2)
    return _hidden(scope, "aten.mul.Scalar", (value, number_for(value.dtype, 2)), fact)


def _hidden(scope: Scope, op: str, args: tuple[object, ...], fact: Fact) -> Value:
    """Add a call whose result other calls cannot find; the sizes in its fact are the greatest."""
    made = scope.call(op, args, fact)
    scope.values.remove(made)
    return made
