"""Calls of operators that combine elements along dims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from exirkit.fuzz.generation.method.extents import Extent, Extents, high_of, is_static, low_of
from exirkit.fuzz.generation.method.guards import calm, dense, tamed, widened, within
from exirkit.fuzz.generation.method.scope import Scope, preferred
from exirkit.fuzz.generation.method.values import Fact, Value, fits, is_float

from .catalogue import Operator
from .registry import proposes


@proposes("reduce")
def reduce(scope: Scope, operator: Operator) -> None:
    """Propose a reduction with one result."""
    least = operator.option("least", 1)
    over = operator.option("over")
    value = _operand(scope, operator, least, ranks=(0, 5) if over == "all" else (1, 5))
    if operator.option("rule") in ("var", "var_dim", "std") and operator.name.endswith("correction"):
        _with_correction(scope, operator, value)
        return
    dims = tuple(range(value.rank)) if over == "all" else _dims(scope, value, 1 if over == "dim" else 3, least)
    keep = scope.choices.chance(0.4)
    extra: tuple[Any, ...] = ()
    if over == "all":
        keep = False
    elif over == "dim":
        extra = (_written(scope, value, dims)[0], keep) if keep else (_written(scope, value, dims)[0],)
    elif over == "norm":
        extra = (2, list(dims), keep)
    elif operator.option("rule") == "var_dim":
        extra = (list(dims), True, keep)
    else:
        extra = (list(_written(scope, value, dims)), keep) if keep else (list(_written(scope, value, dims)),)
    value, fact = _reduced(scope, operator.option("rule"), value, dims)
    sizes = reduced_sizes(value.sizes, dims, keep)
    scope.call(operator.name, (value, *extra), fact._replace(sizes=sizes, is_dense=value.fact.is_dense))


def _operand(scope: Scope, operator: Operator, least: int, ranks: tuple[int, int]) -> Value:
    """Return a tensor in which some dim has enough elements."""
    is_wanted = preferred(scope, operator.family == "place")

    def is_enough(value: Value) -> bool:
        if is_wanted is not None and not is_wanted(value):
            return False
        if not value.rank:
            return least <= 1
        return all(low_of(size) >= min(least, 1) for size in value.sizes) and (
            least < 2 or max(low_of(size) for size in value.sizes) >= least
        )

    value = scope.pick(operator.dtypes, ranks, is_enough, nonempty=least > 0)
    if is_enough(value):
        return value
    return scope.fresh(
        value.dtype, (3, *value.sizes[1:]) if is_static(value.sizes[1:]) and 0 not in value.sizes else (3, 2)
    )


def _dims(scope: Scope, value: Value, most: int, least: int) -> tuple[int, ...]:
    """Return some dims that have enough elements together, in order."""
    order = scope.choices.shuffled(range(value.rank))
    chosen = order[: scope.choices.integer(1, min(most, value.rank))]
    if math.prod(low_of(value.sizes[dim]) for dim in chosen) < least:
        chosen = [max(range(value.rank), key=lambda dim: low_of(value.sizes[dim]))]
    return tuple(sorted(chosen))


def _written(scope: Scope, value: Value, dims: Sequence[int]) -> tuple[int, ...]:
    """Return dims as arguments: counted from the end at times."""
    is_from_end = scope.choices.chance(0.4)
    return tuple(dim - value.rank if is_from_end else dim for dim in dims)


def reduced_sizes(sizes: Extents, dims: Sequence[int], keep: bool) -> Extents:
    """Return the sizes after a reduction."""
    made: list[Extent] = []
    for dim, size in enumerate(sizes):
        if dim not in dims:
            made.append(size)
        elif keep:
            made.append(1)
    return tuple(made)


def _counts(value: Value, dims: Sequence[int]) -> tuple[int, int]:
    least = math.prod(low_of(value.sizes[dim]) for dim in dims)
    return least, math.prod(high_of(value.sizes[dim]) for dim in dims)


def _reduced(scope: Scope, rule: str, value: Value, dims: Sequence[int]) -> tuple[Value, Fact]:
    """Return the operand, guarded, and what the results are but for their sizes."""
    least, most = _counts(value, dims)
    if rule == "any":
        # Torch keeps uint8 here, for compatibility with times that had no bool.
        return value, Fact(torch.uint8 if value.dtype == torch.uint8 else torch.bool, (), 0, 1, 0)
    if rule == "extreme":
        return value, value.fact
    if rule == "sum":
        return _sum(scope, value, least, most)
    if rule == "mean":
        return _mean(scope, value, least, most)
    if rule == "prod":
        return _prod(scope, value, most)
    value = calm(scope, value, 16)
    fact = value.fact._replace(bits=None)
    if rule == "norm":
        return value, fact._replace(low=0, high=widened(0, math.sqrt(most) * value.magnitude)[1])
    if rule == "logsumexp":
        low, high = widened(fact.low, fact.high + math.log(max(most, 1)))
        return value, fact._replace(low=low, high=high)
    return value, fact._replace(low=0, high=_variance_bound(value, least, most, 1))


def _variance_bound(value: Value, least: int, most: int, correction: int) -> float:
    spread = (value.fact.high - value.fact.low) ** 2
    return spread * max(least / max(least - correction, 1), most / max(most - correction, 1)) + 0.1


def _sum(scope: Scope, value: Value, least: int, most: int) -> tuple[Value, Fact]:
    if is_float(value.dtype) and value.is_exact and scope.choices.chance(scope.building.plan.policy.exact):
        value = _summable(scope, value, most)
    value = calm(scope, value)
    dtype = value.dtype if is_float(value.dtype) else torch.int64
    low = value.fact.low * (most if value.fact.low < 0 else least)
    high = value.fact.high * (most if value.fact.high > 0 else least)
    bits = value.fact.bits
    if bits is None or value.magnitude * most > 2.0 ** (24 - bits):
        low, high = widened(low, high)
    if not fits(dtype, low, high):
        value = within(scope, value, -8, 8)
        low, high = widened(-8.0 * most, 8.0 * most)
    if not value.is_exact or not _is_sum_exact(value, most):
        bits = None if is_float(dtype) else 0
    return value, value.fact._replace(dtype=dtype, low=low, high=high, bits=bits)


def _is_sum_exact(value: Value, most: int) -> bool:
    from exirkit.fuzz.generation.method.values import is_on_grid

    return is_on_grid(value.dtype, value.magnitude * max(most, 1), value.fact.bits)


def _summable(scope: Scope, value: Value, most: int) -> Value:
    """Return a value whose sums stay on the grid."""
    return value if _is_sum_exact(value, most) else tamed(scope, value, 2, 0)


def _mean(scope: Scope, value: Value, least: int, most: int) -> tuple[Value, Fact]:
    value = calm(scope, value)
    low, high, bits = value.fact.low, value.fact.high, value.fact.bits
    is_power = least == most and most & (most - 1) == 0
    if bits is not None and is_power and _is_sum_exact(value, most):
        return value, value.fact._replace(bits=bits + most.bit_length() - 1)
    low, high = widened(low, high)
    return value, value.fact._replace(low=low, high=high, bits=None)


def _prod(scope: Scope, value: Value, most: int) -> tuple[Value, Fact]:
    dtype = value.dtype if is_float(value.dtype) else torch.int64
    bound = max(value.magnitude, 1.0)
    if most * math.log2(bound) > 12:
        value = within(scope, value, -1, 1)
        bound = 1.0
    low, high = (-(bound**most) if value.fact.low < 0 else 0.0), bound**most
    bits = None if value.fact.bits is None else value.fact.bits * most
    if bits is None:
        low, high = widened(low, high)
    return value, value.fact._replace(dtype=dtype, low=min(low, 1.0), high=max(high, 1.0), bits=bits)


def _with_correction(scope: Scope, operator: Operator, value: Value) -> None:
    dims = _dims(scope, value, 2, 2)
    value = calm(scope, value, 16)
    least, most = _counts(value, dims)
    correction = scope.choices.pick([each for each in (1, 0, 2) if each < least] or [0])
    keep = scope.choices.chance(0.4)
    high = _variance_bound(value, least, most, correction)
    if operator.option("rule") == "std":
        high = math.sqrt(high) + 0.1
    keywords: list[tuple[str, Any]] = [("correction", correction)]
    if keep:
        keywords.insert(scope.choices.integer(0, 1), ("keepdim", True))
    sizes = reduced_sizes(value.sizes, dims, keep)
    fact = value.fact._replace(sizes=sizes, low=0, high=high, bits=None)
    scope.call(operator.name, (value, list(_written(scope, value, dims))), fact, keywords)


@proposes("place")
def place(scope: Scope, operator: Operator) -> None:
    """Propose the place of the greatest or least element."""
    value = _operand(scope, operator, 1, ranks=(1, 5))
    if scope.choices.chance(0.2):
        count = math.prod(high_of(size) for size in value.sizes)
        # Places count elements row by row, whatever the strides are.
        scope.call(operator.name, (dense(scope, value),), Fact(torch.int64, (), 0, count - 1, 0))
        return
    dim = scope.choices.integer(0, value.rank - 1)
    keep = scope.choices.chance(0.4)
    fact = Fact(torch.int64, reduced_sizes(value.sizes, (dim,), keep), 0, high_of(value.sizes[dim]) - 1, 0, False)
    scope.call(operator.name, (value, _written(scope, value, (dim,))[0], *((True,) if keep else ())), fact)


@proposes("several")
def several(scope: Scope, operator: Operator) -> None:
    """Propose a reduction with two results."""
    value = _operand(scope, operator, 1, ranks=(1, 5))
    if operator.option("rule") == "var_mean":
        _var_mean(scope, operator, value)
        return
    dim = scope.choices.integer(0, value.rank - 1)
    size = value.sizes[dim]
    written = _written(scope, value, (dim,))[0]
    if operator.option("rule") == "extreme":
        keep = scope.choices.chance(0.4)
        sizes = reduced_sizes(value.sizes, (dim,), keep)
        fact = value.fact._replace(sizes=sizes, is_dense=False)
        places = Fact(torch.int64, sizes, 0, high_of(size) - 1, 0, False)
        scope.call_several(operator.name, (value, written, *((True,) if keep else ())), (fact, places))
        return
    # Equal elements may come in any order.
    places = Fact(torch.int64, value.sizes, 0, high_of(size) - 1, 0, False, True)
    if operator.option("rule") == "topk":
        count = scope.choices.integer(1, max(1, min(low_of(size), 4)))
        sizes = (*value.sizes[:dim], count, *value.sizes[dim + 1 :])
        facts = (value.fact._replace(sizes=sizes, is_dense=False), places._replace(sizes=sizes))
        options = scope.choices.pick(((), (False,), (True, True)))
        args = (
            (value, count, written, *options)
            if options or dim != value.rank - 1 or scope.choices.chance(0.5)
            else (value, count)
        )
        scope.call_several(operator.name, args, facts)
        return
    is_down = scope.choices.chance(0.5)
    facts = (value.fact._replace(is_dense=False), places)
    if operator.name.endswith("stable"):
        facts = (facts[0], places._replace(is_undecided=False))
        keywords = (("stable", True), ("dim", written), ("descending", is_down))
        scope.call_several(operator.name, (value,), facts, keywords)
        return
    scope.call_several(operator.name, (value, written, is_down), facts)


def _var_mean(scope: Scope, operator: Operator, value: Value) -> None:
    dims = _dims(scope, value, 2, 1)
    value = calm(scope, value, 16)
    least, most = _counts(value, dims)
    correction = scope.choices.pick([each for each in (1, 0, 2) if each < least])
    keep = scope.choices.chance(0.4)
    sizes = reduced_sizes(value.sizes, dims, keep)
    low, high = widened(value.fact.low, value.fact.high)
    variance = value.fact._replace(sizes=sizes, low=0, high=_variance_bound(value, least, most, correction), bits=None)
    mean = variance._replace(low=low, high=high)
    keywords = (("correction", correction), *((("keepdim", True),) if keep else ()))
    scope.call_several(operator.name, (value, list(_written(scope, value, dims))), (variance, mean), keywords)
