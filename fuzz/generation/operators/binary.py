"""Calls of operators of two tensors that are broadcast, and of a tensor and a number."""

from __future__ import annotations

import torch

from exirkit.fuzz.generation.method.guards import (
    away_from_zero,
    bits_of_bounds,
    calm,
    cast,
    fitting,
    number_for,
    tamed,
    widened,
    within,
)
from exirkit.fuzz.generation.method.scope import Scope, preferred
from exirkit.fuzz.generation.method.values import (
    Fact,
    Value,
    fits,
    is_float,
    is_on_grid,
    promoted,
    promoted_with_number,
    range_of,
)

from .binary_rules import DECIDING, DOMAINS, NEEDS_DIVISOR, NUMBERS, RULES, Operand, Outcome, number_operand
from .broadcasting import broadcast, partner
from .catalogue import Operator
from .registry import proposes

_ALPHAS = (1, 2, -1, 3, 0.5)
_MIXED = frozenset({"add", "sub", "rsub", "mul", "div", "compare"})
"""Rules of operators that take integers and a float."""
_AS_EXPORTED = {f"aten.{name}.Scalar": f"aten.{name}.Tensor" for name in ("add", "sub", "mul", "div")}
"""What torch.export writes for `x + 0.5`: the overload of two tensors, with a number instead of one."""


@proposes("binary")
def binary(scope: Scope, operator: Operator) -> None:
    """Propose an operator of two tensors."""
    rule = operator.option("rule")
    one = scope.pick(operator.dtypes, accept=preferred(scope, rule in DECIDING))
    other = partner(scope, one, operator.dtypes)
    if scope.choices.chance(0.3) and rule not in NEEDS_DIVISOR and rule not in DOMAINS:
        one, other = other, one
    if rule == "atan2" and not is_float(promoted(one, other)):
        one = cast(scope, one, torch.float32)
    one, other = _in_domain(scope, rule, one, other)
    alpha = _alpha(scope, operator, promoted(one, other))
    dtype = promoted(one, other)
    outcome = _outcome(rule, one, other, alpha)
    if not _is_kept(scope, dtype, outcome, operator):
        one, other = _tamer(scope, rule, one, other)
        outcome = _outcome(rule, one, other, alpha)
    keywords = _modes(scope, operator) + ((("alpha", alpha),) if alpha is not None else ())
    sizes = broadcast(one.sizes, other.sizes)
    assert sizes is not None
    is_dense = all(each.fact.is_dense or not each.rank for each in (one, other))
    inputs = one.fact.bits is None or other.fact.bits is None
    fact = _fact(operator, dtype, outcome, inputs)._replace(sizes=sizes, is_dense=is_dense)
    scope.call(operator.name, (one, other), fact, keywords)


@proposes("scalar")
def scalar(scope: Scope, operator: Operator) -> None:
    """Propose an operator of a tensor and a number."""
    rule = operator.option("rule")
    value = scope.pick(operator.dtypes, accept=preferred(scope, rule in DECIDING))
    domain = DOMAINS.get(rule, (None, None))[0]
    number = _number(scope, rule, value)
    if domain is not None and not (rule == "pow" and number in (2, 3)):
        value = within(scope, value, *domain)
    value = calm(scope, value, 16 if rule == "pow" else None)
    dtype = promoted_with_number(value.dtype, number)
    constant = number_operand(number)
    outcome = RULES[rule](_operand(value), constant)
    if not _is_kept(scope, dtype, outcome, operator):
        is_byte_left = rule == "sub" and value.dtype == torch.uint8
        value = within(scope, value, 8, 16) if is_byte_left else tamed(scope, value, 4, 0)
        outcome = RULES[rule](_operand(value), constant)
    fact = _fact(operator, dtype, outcome, value.fact.bits is None)
    args = (number, value) if operator.option("first") else (value, number)
    name = operator.name
    exported = _AS_EXPORTED.get(name)
    if exported is not None and scope.building.plan.policy.allows(exported) and scope.choices.chance(0.5):
        name = exported
    scope.call(name, args, fact._replace(sizes=value.sizes, is_dense=value.fact.is_dense), _modes(scope, operator))


def _number(scope: Scope, rule: str, value: Value) -> float:
    number = scope.choices.pick(NUMBERS.get(rule, (1, 2)))
    if is_float(value.dtype):
        return number if scope.choices.chance(0.5) else float(number)
    if rule in _MIXED and scope.choices.chance(0.25):
        # Integers beside a float make floats, whatever the integers are.
        return float(number) or 0.5
    number = int(number) or 1
    if value.dtype == torch.uint8:
        number = abs(number)
        if rule == "rsub":
            return 64
    return number


def _operand(value: Value) -> Operand:
    return Operand(value.fact.low, value.fact.high, value.fact.bits)


def _in_domain(scope: Scope, rule: str, one: Value, other: Value) -> tuple[Value, Value]:
    """Return operands for which an operator is defined."""
    first, second = DOMAINS.get(rule, (None, None))
    one = within(scope, one, *first) if first is not None else one
    if second is not None:
        other = within(scope, other, *second)
    elif rule in NEEDS_DIVISOR:
        other = away_from_zero(scope, other)
    dtype = promoted(one, other)
    # Operands are computed with in the combined dtype: numbers of the one have to be numbers of that.
    one, other = _kept_in(scope, one, dtype), _kept_in(scope, other, dtype)
    if rule in ("maximum", "minimum", "compare"):
        return one, other
    return calm(scope, one), calm(scope, other)


def _kept_in(scope: Scope, value: Value, dtype: torch.dtype) -> Value:
    """Return a value whose elements are numbers of a dtype."""
    if dtype == torch.bool or fits(dtype, value.fact.low, value.fact.high):
        return value
    low, high = range_of(dtype)
    return within(scope, value, max(low, -64), min(high, 64))


def _alpha(scope: Scope, operator: Operator, dtype: torch.dtype) -> float | None:
    if not operator.option("alpha") or not scope.choices.chance(0.15):
        return None
    alpha = scope.choices.pick(_ALPHAS)
    if is_float(dtype):
        return alpha
    return max(int(alpha), 1) if dtype == torch.uint8 else int(alpha) or 2


def _outcome(rule: str, one: Value, other: Value, alpha: float | None) -> Outcome:
    second = _operand(other)
    if alpha is not None:
        made = RULES["mul"](second, number_operand(alpha))
        second = Operand(made.low, made.high, made.bits)
    return RULES[rule](_operand(one), second)


def _is_kept(scope: Scope, dtype: torch.dtype, outcome: Outcome, operator: Operator) -> bool:
    """Whether results are in range, and on a grid if the program requests that."""
    if operator.option("gives") == "bool":
        return True
    if operator.option("rule") in ("div", "pow", "pow_of") and not is_float(dtype):
        return fits(torch.float32 if operator.option("rule") == "div" else dtype, outcome.low, outcome.high)
    if not fits(dtype, outcome.low, outcome.high):
        return False
    magnitude = max(abs(outcome.low), abs(outcome.high))
    if outcome.bits is None or is_on_grid(dtype, magnitude, outcome.bits):
        return True
    return not scope.choices.chance(scope.building.plan.policy.exact)


def _tamer(scope: Scope, rule: str, one: Value, other: Value) -> tuple[Value, Value]:
    """Return operands that are small and have few bits."""
    if rule == "sub" and torch.uint8 == promoted(one, other):
        return within(scope, one, 8, 16), within(scope, other, 0, 2)
    if rule in NEEDS_DIVISOR:
        return tamed(scope, one, 4, 1), other
    if rule in DOMAINS:
        return one, other
    return tamed(scope, one, 2, 0), tamed(scope, other, 2, 0)


def _modes(scope: Scope, operator: Operator) -> tuple[tuple[str, str], ...]:
    if not operator.option("modes"):
        return ()
    return (("rounding_mode", scope.choices.pick(("floor", "trunc"))),)


def _fact(operator: Operator, dtype: torch.dtype, outcome: Outcome, is_inexact: bool) -> Fact:
    """Return what is known of the results, but for their sizes."""
    bits = outcome.bits
    low, high = outcome.low, outcome.high
    if operator.option("gives") == "bool":
        return Fact(torch.bool, (), 0, 1, 0)
    if not is_float(dtype) and operator.option("rule") == "div":
        dtype, bits = torch.float32, None
    if bits is None or is_inexact or not is_on_grid(dtype, max(abs(low), abs(high)), bits):
        low, high = widened(low, high)
        bits = None
        if not is_float(dtype):
            low, high, bits = round(low), round(high), 0
    return Fact(dtype, (), low, high, bits, is_undecided=outcome.decides and is_inexact)


@proposes("choose")
def choose(scope: Scope, operator: Operator) -> None:
    """Propose an operator that takes elements of one operand or another."""
    {
        "aten.where.self": _where,
        "aten.masked_fill.Scalar": _masked_fill,
        "aten.masked_fill.Tensor": _masked_fill,
        "aten.copy.default": _copy,
        "aten.clamp.Tensor": _clamp_between,
    }[operator.name](scope, operator)


def _mask(scope: Scope, value: Value, *, into: bool = False) -> Value:
    """Return a condition for a tensor: one that is there, a comparison, or a fresh one."""
    if scope.choices.chance(0.3) and value.dtype != torch.bool and value.is_exact:
        fact = value.fact._replace(dtype=torch.bool, low=0, high=1, bits=0)
        number = number_for(value.dtype, scope.choices.pick((0, 1)))
        return scope.call("aten.gt.Scalar", (value, number), fact)
    return partner(scope, value, (torch.bool,), into=into)


def _where(scope: Scope, operator: Operator) -> None:
    one = scope.pick(operator.dtypes)
    other = partner(scope, one, operator.dtypes)
    if not fits(promoted(one, other), min(one.fact.low, other.fact.low), max(one.fact.high, other.fact.high)):
        dtype = promoted(one, other)
        one, other = _kept_in(scope, one, dtype), _kept_in(scope, other, dtype)
    sizes = broadcast(one.sizes, other.sizes)
    assert sizes is not None
    condition = _mask(scope, one if one.sizes == sizes else other)
    whole = broadcast(sizes, condition.sizes)
    if whole is None:
        condition = scope.fresh(torch.bool, sizes)
        whole = sizes
    dtype = promoted(one, other)
    low, high = min(one.fact.low, other.fact.low), max(one.fact.high, other.fact.high)
    bits = RULES["maximum"](_operand(one), _operand(other)).bits
    is_dense = all(each.fact.is_dense for each in (one, other, condition))
    scope.call(operator.name, (condition, one, other), Fact(dtype, whole, low, high, bits, is_dense))


def _masked_fill(scope: Scope, operator: Operator) -> None:
    value = scope.pick(operator.dtypes)
    mask = _mask(scope, value, into=True)
    if broadcast(value.sizes, mask.sizes) != value.sizes:
        mask = scope.fresh(torch.bool, value.sizes)
    number = scope.choices.pick((0, 1, -1, 0.5))
    if not is_float(value.dtype):
        number = abs(int(number)) if value.dtype == torch.uint8 else int(number)
    low, high = min(value.fact.low, number), max(value.fact.high, number)
    bits = None if value.fact.bits is None else max(value.fact.bits, bits_of_bounds(number))
    fact = value.fact._replace(low=low, high=high, bits=bits, is_dense=value.fact.is_dense and mask.fact.is_dense)
    written: object = number
    if operator.name.endswith("Tensor"):
        made = Fact(value.dtype, (), number, number, bits_of_bounds(number))
        written = scope.call("aten.full.default", ((), number), made, (("dtype", value.dtype),))
    scope.call(operator.name, (value, mask, written), fact)


def _copy(scope: Scope, operator: Operator) -> None:
    value = scope.pick(operator.dtypes)
    source = partner(scope, value, (value.dtype,), into=True)
    if broadcast(value.sizes, source.sizes) != value.sizes:
        source = fitting(scope, source, value.dtype, value.sizes)
    fact = source.fact._replace(sizes=value.sizes, is_dense=value.fact.is_dense)
    scope.call(operator.name, (value, source), fact)


def _clamp_between(scope: Scope, operator: Operator) -> None:
    value = scope.pick(operator.dtypes)
    bounds = [partner(scope, value, (value.dtype,), into=True) for _ in range(2)]
    bounds = [each if broadcast(value.sizes, each.sizes) == value.sizes else value for each in bounds]
    low = min(value.fact.low, *(each.fact.low for each in bounds))
    high = max(value.fact.high, *(each.fact.high for each in bounds))
    grids = [each.fact.bits for each in (value, *bounds)]
    bits = None if None in grids else max(bit for bit in grids if bit is not None)
    fact = value.fact._replace(
        low=low, high=high, bits=bits, is_dense=all(each.fact.is_dense for each in (value, *bounds))
    )
    scope.call(operator.name, (value, *bounds), fact)


def into_sum(scope: Scope, value: Value) -> Value:
    """Add something to a value, or negate a condition: the simplest use of it."""
    if value.dtype == torch.bool:
        return scope.call("aten.logical_not.default", (value,), value.fact)
    value = calm(scope, value, 32)
    number = number_for(value.dtype, 1)
    fact = value.fact._replace(low=value.fact.low + 1, high=value.fact.high + 1)
    return scope.call("aten.add.Scalar", (value, number), fact)


def inexact_product(scope: Scope) -> None:
    """Multiply something by a number that no float of 32 bits is."""
    value = calm(scope, scope.pick((torch.float32, torch.float64)))
    number = scope.choices.pick((0.1, 1e-3, 0.7, 3.3))
    low, high = widened(min(value.fact.low * number, -0.1), value.fact.high * number)
    name = scope.choices.pick(("aten.mul.Scalar", "aten.mul.Tensor"))
    scope.call(name, (value, number), value.fact._replace(low=low, high=max(high, low), bits=None))
