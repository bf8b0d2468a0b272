"""Calls that make tensors out of numbers, and change dtypes or layouts."""

from __future__ import annotations

import torch

from exirkit.fuzz.generation.method.extents import Extent, Extents, low_of
from exirkit.fuzz.generation.method.guards import cast_fact, number_for, within
from exirkit.fuzz.generation.method.scope import Scope, preferred
from exirkit.fuzz.generation.method.values import DTYPES, Fact, fits, range_of

from .catalogue import Operator
from .registry import proposes

_FILLED = {"full": None, "zeros": 0, "ones": 1, "new_zeros": 0, "new_full": None}


@proposes("create")
def create(scope: Scope, operator: Operator) -> None:
    """Propose a tensor that depends on sizes and numbers only."""
    rule = operator.option("rule")
    dtype = scope.dtype_of(operator.dtypes)
    if rule.startswith("arange"):
        _arange(scope, operator, dtype)
        return
    if rule == "scalar":
        single = number_for(dtype, scope.choices.pick((2, 1, 0)))
        scope.call(operator.name, (single,), Fact(dtype, (), single, single, 0), (("dtype", dtype),))
        return
    sizes = _sizes(scope)
    number: float | None = _FILLED[rule]
    is_given = number is None
    if number is None:
        number = scope.choices.pick((1, 2, 0, 3))
    args: tuple[object, ...] = (list(sizes), number_for(dtype, number)) if is_given else (list(sizes),)
    if rule.startswith("new"):
        args = (scope.pick(DTYPES), *args)
    scope.call(operator.name, args, Fact(dtype, sizes, number, number, 0), (("dtype", dtype),))


def _sizes(scope: Scope) -> Extents:
    """Return sizes of something that is there, so that both can be combined, or others."""
    if scope.values and scope.choices.chance(0.7):
        sizes = scope.choices.pick(scope.values).sizes
        return sizes[scope.choices.integer(0, len(sizes)) :] if scope.choices.chance(0.4) else sizes
    return scope.building.draw_sizes((0, 3), is_static=True)


def _arange(scope: Scope, operator: Operator, dtype: torch.dtype) -> None:
    ends: list[Extent] = [size for value in scope.values[-6:] for size in value.sizes[-1:] if low_of(size) > 0]
    end = scope.choices.pick(ends) if ends and scope.choices.chance(0.7) else scope.choices.pick((5, 3, 7))
    high = end if isinstance(end, int) else end.high
    if operator.option("rule") == "arange" or not isinstance(end, int):
        name = "aten.arange.default"
        scope.call(name, (end,), Fact(dtype, (end,), 0, high - 1, 0), (("dtype", dtype),))
        return
    start, step = scope.choices.pick(((1, 1), (0, 2), (2, 3), (-1, 1)))
    if start >= end:
        start = 0
    count = -(-(end - start) // step)
    fact = Fact(dtype, (count,), start, start + step * (count - 1), 0)
    scope.call(operator.name, (start, end, step), fact, (("dtype", dtype),))


@proposes("cast")
def cast(scope: Scope, operator: Operator) -> None:
    """Propose a change of dtype."""
    value = scope.pick(operator.dtypes, accept=preferred(scope, True))
    dtypes = [dtype for dtype in scope.building.plan.dtypes if dtype != value.dtype]
    dtype = scope.choices.pick(dtypes) if dtypes else scope.choices.pick((torch.float32, torch.int32, torch.float64))
    low, high = range_of(dtype)
    if dtype != torch.bool and not fits(dtype, value.fact.low, value.fact.high):
        value = within(scope, value, max(low, -1024), min(high, 1024))
    fact = cast_fact(value.fact, dtype)
    if operator.option("rule") == "positional":
        scope.call(operator.name, (value, dtype), fact)
        return
    scope.call(operator.name, (value,), fact, (("dtype", dtype),))


@proposes("layout")
def layout(scope: Scope, operator: Operator) -> None:
    """Propose a copy in another layout."""
    value = scope.pick(operator.dtypes)
    is_last = value.rank == 4 and scope.choices.chance(0.7)
    layouts = torch.channels_last if is_last else torch.contiguous_format
    if not is_last and scope.choices.chance(0.3):
        layouts = torch.preserve_format
    is_dense = layouts == torch.contiguous_format or (value.fact.is_dense and not is_last)
    scope.call(operator.name, (value,), value.fact._replace(is_dense=is_dense), (("memory_format", layouts),))
