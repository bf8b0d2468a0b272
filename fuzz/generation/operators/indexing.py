"""Calls of operators that read or write at places which tensors tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from exirkit.fuzz.generation.method.extents import (
    MOST_ELEMENTS,
    Extents,
    greatest_count,
    is_static,
    least_count,
    low_of,
    times,
)
from exirkit.fuzz.generation.method.guards import calm, fitting, number_for, tamed, widened, within
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Fact, Value, fits, is_on_grid
from exirkit.fuzz.programs import Contents

from .catalogue import Operator
from .registry import proposes
from .viewing import from_end, replaced


@proposes("index")
def index(scope: Scope, operator: Operator) -> None:
    """Propose one of many operators, by the rule that the catalogue names."""
    _INDEXING[operator.option("rule")](scope, operator)


def places(scope: Scope, sizes: Extents, count: int, dtypes: tuple[torch.dtype, ...] = (torch.int64,)) -> Value:
    """Return places below a number: some that are there and fit, or fresh ones."""
    found = [
        value
        for value in scope.values
        if value.dtype in dtypes and value.sizes == sizes and value.fact.low >= 0 and value.fact.high < count
    ]
    if found and scope.choices.chance(0.5):
        return scope.choices.pick(found)
    near = [
        value for value in scope.values if value.dtype in dtypes and value.sizes == sizes and value.dtype != torch.bool
    ]
    if near and count > 1 and scope.choices.chance(0.3):
        return within(scope, scope.choices.pick(near), 0, count - 1)
    return scope.fresh(dtypes[0], sizes, 0, count - 1)


def _different_places(scope: Scope, shape: tuple[int, ...], dim: int, count: int) -> Value:
    """Return stored places below a number that differ along a dim."""
    order = scope.choices.shuffled(range(count))[: shape[dim]]
    inner = 1
    for size in shape[dim + 1 :]:
        inner *= size
    total = inner * shape[dim]
    for size in shape[:dim]:
        total *= size
    numbers = tuple(order[at // inner % shape[dim]] for at in range(total))
    value = scope.building.store("constant", torch.int64, shape, Contents(kind="numbers", numbers=numbers))
    scope.values.append(value)
    return value


def _nonempty(value: Value) -> bool:
    return least_count(value.sizes) > 0 and greatest_count(value.sizes) <= MOST_ELEMENTS


def _operand(scope: Scope, operator: Operator, ranks: tuple[int, int], *, static: bool = False) -> Value:
    return scope.pick(operator.dtypes, ranks, _nonempty, nonempty=True, static=static)


def _index(scope: Scope, operator: Operator) -> None:
    value = _operand(scope, operator, (1, 4))
    dim = scope.choices.integer(0, value.rank - 1)
    count = scope.choices.pick((3, 2, 4))
    at = places(scope, (count,), low_of(value.sizes[dim]))
    if value.rank > dim + 1 and scope.choices.chance(0.3):
        also = places(scope, (count,), low_of(value.sizes[dim + 1]))
        sizes = (*value.sizes[:dim], count, *value.sizes[dim + 2 :])
        args = [*([None] * dim), at, also]
    else:
        sizes = replaced(value.sizes, dim, count)
        args = [*([None] * dim), at]
    scope.call(operator.name, (value, args), value.fact._replace(sizes=sizes, is_dense=False))


def _index_select(scope: Scope, operator: Operator) -> None:
    value = _operand(scope, operator, (1, 4))
    dim = scope.choices.integer(0, value.rank - 1)
    count = scope.choices.pick((3, 2, 5))
    at = places(scope, (count,), low_of(value.sizes[dim]), (torch.int64, torch.int32))
    sizes = replaced(value.sizes, dim, count)
    scope.call(
        operator.name, (value, from_end(scope, dim, value.rank), at), value.fact._replace(sizes=sizes, is_dense=False)
    )


def _gather(scope: Scope, operator: Operator) -> None:
    value = _operand(scope, operator, (1, 4))
    dim = scope.choices.integer(0, value.rank - 1)
    sizes = _inner_sizes(scope, value, dim)
    at = places(scope, sizes, low_of(value.sizes[dim]))
    args = (value, from_end(scope, dim, value.rank), at)
    scope.call(operator.name, args, value.fact._replace(sizes=sizes, is_dense=False))


def _inner_sizes(scope: Scope, value: Value, dim: int) -> tuple[int, ...]:
    """Return sizes of places: no dim but one is longer than that of the tensor."""
    sizes = [scope.choices.integer(1, min(low_of(size), 4)) for size in value.sizes]
    if scope.choices.chance(0.5):
        sizes = [min(low_of(size), 8) for size in value.sizes]
        sizes[dim] = scope.choices.integer(1, 4)
    return tuple(sizes)


def _embedding(scope: Scope, operator: Operator) -> None:
    table = scope.pick(
        operator.dtypes, (2, 2), lambda value: is_static(value.sizes) and _nonempty(value), nonempty=True, static=True
    )
    sizes = scope.building.draw_sizes((0, 2), nonempty=True)
    at = places(scope, sizes, low_of(table.sizes[0]), (torch.int64, torch.int32))
    scope.call(operator.name, (table, at), table.fact._replace(sizes=(*sizes, table.sizes[1]), is_dense=True))


def _merged(one: Value, other: Value) -> Fact:
    """Return what holds for elements that come from either."""
    low, high = min(one.fact.low, other.fact.low), max(one.fact.high, other.fact.high)
    bits = None if one.fact.bits is None or other.fact.bits is None else max(one.fact.bits, other.fact.bits)
    return one.fact._replace(low=low, high=high, bits=bits, is_dense=False)


def _source(scope: Scope, value: Value, sizes: Extents) -> Value:
    """Return a tensor of the dtype of another and of given sizes."""
    found = [each for each in scope.values if each.dtype == value.dtype and each.sizes == sizes]
    if found and scope.choices.chance(0.6):
        return scope.choices.pick(found)
    same = [each for each in scope.values if each.dtype == value.dtype]
    if scope.choices.chance(0.4):
        return fitting(scope, scope.choices.pick(same), value.dtype, sizes)
    return scope.fresh(value.dtype, sizes)


def _sum_of(scope: Scope, value: Value, source: Value, times_added: int) -> tuple[Value, Value, Fact]:
    """Return operands and results of adding some elements of one tensor to another, each so often at most."""
    if scope.choices.chance(scope.building.plan.policy.exact):
        value, source = tamed(scope, value, 2, 2), tamed(scope, source, 2, 2)
    value, source = calm(scope, value, 16), calm(scope, source, 4)
    most = value.magnitude + times_added * source.magnitude
    if not fits(value.dtype, -most, most) or value.dtype == torch.uint8:
        source = within(scope, source, 0, 0)
        most = value.magnitude
    fact = _merged(value, source)
    bits = fact.bits if is_on_grid(value.dtype, most, fact.bits) else None
    low, high = (0.0 if min(fact.low, 0) == 0 else -most), most
    if bits is None:
        low, high = widened(low, high)
    return value, source, fact._replace(low=low, high=high, bits=bits)


def _index_put(scope: Scope, operator: Operator) -> None:
    value = _operand(scope, operator, (1, 4))
    count = scope.choices.integer(1, min(low_of(value.sizes[0]), 4))
    sizes = (count, *value.sizes[1:])
    source = _source(scope, value, sizes)
    if value.dtype != torch.bool and scope.choices.chance(0.4):
        at = places(scope, (count,), low_of(value.sizes[0]))
        value, source, fact = _sum_of(scope, value, source, count)
        scope.call(operator.name, (value, [at], source, True), fact._replace(sizes=value.sizes))
        return
    at = _different_places(scope, (count,), 0, low_of(value.sizes[0]))
    scope.call(operator.name, (value, [at], source), _merged(value, source))


def _scatter(scope: Scope, operator: Operator) -> None:
    value = _operand(scope, operator, (1, 3))
    dim = scope.choices.integer(0, value.rank - 1)
    sizes = tuple(scope.choices.integer(1, min(low_of(size), 4)) for size in value.sizes)
    at = _different_places(scope, sizes, dim, low_of(value.sizes[dim]))
    source = _source(scope, value, sizes)
    scope.call(operator.name, (value, dim, at, source), _merged(value, source))


def _scatter_value(scope: Scope, operator: Operator) -> None:
    value = _operand(scope, operator, (1, 3))
    dim = scope.choices.integer(0, value.rank - 1)
    sizes = tuple(scope.choices.integer(1, min(low_of(size), 4)) for size in value.sizes)
    at = places(scope, sizes, low_of(value.sizes[dim]))
    number = number_for(value.dtype, scope.choices.pick((1, 0, 2)))
    fact = value.fact._replace(low=min(value.fact.low, number), high=max(value.fact.high, number), is_dense=False)
    scope.call(operator.name, (value, dim, at, number), fact)


def _scatter_add(scope: Scope, operator: Operator) -> None:
    value = _operand(scope, operator, (1, 3))
    dim = scope.choices.integer(0, value.rank - 1)
    sizes = tuple(scope.choices.integer(1, min(low_of(size), 4)) for size in value.sizes)
    at = places(scope, sizes, low_of(value.sizes[dim]))
    source = _source(scope, value, sizes)
    value, source, fact = _sum_of(scope, value, source, sizes[dim])
    scope.call(operator.name, (value, dim, at, source), fact._replace(sizes=value.sizes))


def _select_scatter(scope: Scope, operator: Operator) -> None:
    value = _operand(scope, operator, (1, 4))
    dim = scope.choices.integer(0, value.rank - 1)
    source = _source(scope, value, replaced(value.sizes, dim))
    at = scope.choices.integer(0, low_of(value.sizes[dim]) - 1)
    scope.call(operator.name, (value, source, dim, at), _merged(value, source))


def _slice_scatter(scope: Scope, operator: Operator) -> None:
    value = _operand(scope, operator, (1, 4))
    dim = scope.choices.integer(0, value.rank - 1)
    length = low_of(value.sizes[dim])
    start = scope.choices.integer(0, length - 1)
    end = scope.choices.integer(start + 1, length)
    step = scope.choices.pick((1, 1, 2))
    source = _source(scope, value, replaced(value.sizes, dim, -(-(end - start) // step)))
    args = (value, source, dim, start, end, step) if step > 1 else (value, source, dim, start, end)
    scope.call(operator.name, args, _merged(value, source))


def _masked_scatter(scope: Scope, operator: Operator) -> None:
    value = _operand(scope, operator, (1, 3), static=True)
    if not is_static(value.sizes):
        value = scope.fresh(value.dtype, (3, 2))
    mask = scope.fresh(torch.bool, value.sizes)
    source = _source(scope, value, value.sizes)
    scope.call(operator.name, (value, mask, source), _merged(value, source))


def _repeat_interleave(scope: Scope, operator: Operator) -> None:
    value = _operand(scope, operator, (1, 3))
    dim = scope.choices.integer(0, value.rank - 1)
    sizes = replaced(value.sizes, dim, times(value.sizes[dim], 2))
    scope.call(operator.name, (value, 2, dim), value.fact._replace(sizes=sizes, is_dense=False))


_INDEXING: Mapping[str, Callable[[Scope, Operator], None]] = {
    "index": _index,
    "index_select": _index_select,
    "gather": _gather,
    "embedding": _embedding,
    "index_put": _index_put,
    "scatter": _scatter,
    "scatter_value": _scatter_value,
    "scatter_add": _scatter_add,
    "select_scatter": _select_scatter,
    "slice_scatter": _slice_scatter,
    "masked_scatter": _masked_scatter,
    "repeat_interleave": _repeat_interleave,
}
