"""Calls of operators of one tensor, element by element."""

from __future__ import annotations

import math

import torch

from exirkit.fuzz.generation.method.extents import high_of, low_of
from exirkit.fuzz.generation.method.guards import bits_of_bounds, calm, number_for, tamed, widened, within
from exirkit.fuzz.generation.method.scope import Scope, preferred
from exirkit.fuzz.generation.method.values import Fact, Value, is_float

from .catalogue import Operator
from .intervals import INTERVALS
from .registry import proposes


@proposes("unary")
def unary(scope: Scope, operator: Operator) -> None:
    """Propose one of many operators, described by options of the catalogue."""
    value = scope.pick(
        operator.dtypes, accept=preferred(scope, bool(operator.option("decides") or operator.option("gives")))
    )
    domain = operator.option("domain")
    if domain is not None and value.dtype != torch.bool:
        value = within(scope, value, *domain)
    if not is_float(value.dtype) and operator.option("grid", "same") == "same":
        value = calm(scope, value)
    positional, bits_added = _arguments(scope, operator, value)
    keywords = operator.option("keywords", [{}])
    keyword = tuple(scope.choices.pick(keywords).items()) if keywords != [{}] else ()
    scope.call(
        operator.name,
        (value, *positional),
        _unary_fact(operator, value, bits_added),
        keyword,
        root=value if operator.option("views") else None,
    )


def _arguments(scope: Scope, operator: Operator, value: Value) -> tuple[list[float], int]:
    options = operator.option("positional")
    if options is None:
        return [], 0
    chosen = scope.choices.pick(options)
    if value.fact.bits is None:
        return chosen, 0
    bits = bits_of_bounds(*chosen) if chosen else 0
    return [number_for(value.dtype, each) if isinstance(each, int) else each for each in chosen], bits


def _unary_fact(operator: Operator, value: Value, bits_added: int) -> Fact:
    fact = value.fact
    low, high = INTERVALS[operator.option("interval", "same")](fact.low, fact.high)
    if value.dtype == torch.bool:
        low, high = 0, 1
    dtype = fact.dtype
    grid = operator.option("grid", "same")
    if operator.option("gives") == "bool":
        dtype = torch.bool
    elif operator.option("floats") and not is_float(dtype):
        dtype = torch.float32
    if grid == "none":
        low, high = widened(low, high)
        return fact._replace(dtype=dtype, low=low, high=high, bits=None)
    if fact.bits is None and grid == "same" and is_float(dtype):
        low, high = widened(low, high)
    bits = fact.bits
    if bits is not None and grid != "same":
        bits = 0 if grid == "whole" else 2 * bits
    elif bits is not None:
        bits = bits + operator.option("finer", 0) if operator.option("finer") else max(bits, bits_added)
    decided = fact.is_undecided or (bool(operator.option("decides")) and fact.bits is None)
    return fact._replace(dtype=dtype, low=low, high=high, bits=bits, is_undecided=decided)


@proposes("clamp")
def clamp(scope: Scope, operator: Operator) -> None:
    """Propose `clamp` with one bound or two."""
    value = scope.pick(operator.dtypes)
    low, high = scope.choices.pick(((-1, 1), (0, 1.5), (-0.5, 2), (0, 3), (1, 1)))
    if not is_float(value.dtype):
        low, high = int(low), math.ceil(high)
        low = max(low, 0) if value.dtype == torch.uint8 else low
    kind = operator.name.split(".")[1] if operator.name != "aten.clamp.default" else "clamp"
    has_low = kind != "clamp_max" and (kind == "clamp_min" or scope.choices.chance(0.7))
    has_high = kind != "clamp_min" and (kind == "clamp_max" or not has_low or scope.choices.chance(0.7))
    fact = value.fact
    least, most = fact.low, fact.high
    if has_low:
        least, most = max(least, low), max(most, low)
    if has_high:
        least, most = min(least, high), min(most, high)
    bits = None if fact.bits is None else max(fact.bits, bits_of_bounds(low, high))
    bounds = {
        "clamp": (low if has_low else None, high if has_high else None),
        "clamp_min": (low,),
        "clamp_max": (high,),
    }
    args = bounds[kind]
    if kind == "clamp" and not has_high:
        args = args[:1]
    scope.call(operator.name, (value, *args), fact._replace(low=least, high=most, bits=bits))


@proposes("softmax")
def softmax(scope: Scope, operator: Operator) -> None:
    """Propose a softmax or its logarithm."""
    value = scope.pick(operator.dtypes, (1, 5), lambda each: all(low_of(size) for size in each.sizes), nonempty=True)
    value = calm(scope, value, 64)
    dim = scope.choices.integer(0, value.rank - 1)
    is_log = "log" in operator.name
    count = high_of(value.sizes[dim])
    low, high = (value.fact.low - value.fact.high - math.log(max(count, 1)) - 1, 0.0) if is_log else (0.0, 1.0)
    args = (value, dim - value.rank if scope.choices.chance(0.3) else dim)
    whole = (*args, False) if operator.name.split(".")[1].startswith("_") else args
    scope.call(operator.name, whole, value.fact._replace(low=low, high=high, bits=None))


@proposes("running")
def running(scope: Scope, operator: Operator) -> None:
    """Propose a running sum."""
    value = scope.pick(operator.dtypes, (1, 5))
    dim = scope.choices.integer(0, value.rank - 1)
    count = high_of(value.sizes[dim])
    if scope.choices.chance(scope.building.plan.policy.exact):
        value = tamed(scope, value, 2, 2)
    value = calm(scope, value)
    dtype = value.dtype if is_float(value.dtype) else torch.int64
    most = count * value.magnitude
    bits = value.fact.bits
    low, high = -most if value.fact.low < 0 else 0, most
    if bits is None:
        low, high = widened(low, high)
    scope.call(operator.name, (value, dim), value.fact._replace(dtype=dtype, low=low, high=high))
