"""Calls that are made a second time, the same or nearly: what compilers take for equal, and what they must not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from exirkit.fuzz.generation.method.guards import calm, cast
from exirkit.fuzz.generation.method.scope import Scope, preferred
from exirkit.fuzz.generation.method.values import Fact, Value
from exirkit.fuzz.programs import Argument, Call, Ref, mapped, names_in

from .binary_rules import RULES, Operand, number_operand
from .catalogue import Operator, shipped_operators

_INTEGERS = (torch.int64, torch.int32)
_SUM = "aten.add.Tensor"
_BOUND = "aten.clamp.default"
_SUMS = {"aten.rsub.Scalar": "rsub", "aten.add.Tensor": "add", "aten.mul.Tensor": "mul"}


def similar_call(scope: Scope) -> None:
    """Make a call once more: as it is, in another dtype, with a number or a factor written in another way."""
    ways: list[Callable[[Scope], bool]] = scope.choices.shuffled(
        [_again, _in_doubles, _with_a_float, _with_another_sign, _with_another_factor]
    )
    # Where one way is not to be had, another is.
    any(way(scope) for way in ways)


def _again(scope: Scope) -> bool:
    """Repeat a call."""
    values = {value.name: value for value in scope.values}
    found = [step for step in scope.steps if _is_known(step, values)]
    if not found:
        return False
    step = scope.choices.pick(found)
    results = [values[str(name)] for name in step.results]
    root = next((values[one.root] for one in results if one.root in values), None)
    _call(scope, step, lambda given: values[given.name], [one.fact for one in results], root)
    return True


def _in_doubles(scope: Scope) -> bool:
    """Repeat a call of floats with the same numbers as doubles."""
    values = {value.name: value for value in scope.values}
    found = [step for step in scope.steps if _is_known(step, values) and _takes_doubles(step, values)]
    if not found or torch.float64 not in scope.building.plan.policy.dtypes:
        return False
    step = scope.choices.pick(found)
    doubles = {name: cast(scope, values[name], torch.float64) for name in _operands(step)}
    facts = [values[str(name)].fact._replace(dtype=torch.float64) for name in step.results]
    _call(scope, step, lambda given: doubles[given.name], facts, None)
    return True


def _with_a_float(scope: Scope) -> bool:
    """Combine integers with a number, written as an integer and as a float."""
    policy = scope.building.plan.policy
    dtypes = [dtype for dtype in _INTEGERS if dtype in policy.dtypes]
    operators = [operator for operator in _SUMS if policy.allows(operator)]
    if not dtypes or not operators:
        return False
    value = calm(scope, scope.pick(dtypes))
    op, number = scope.choices.pick(operators), scope.choices.pick((1, 2, -1))
    outcome = RULES[_SUMS[op]](Operand(value.fact.low, value.fact.high, 0), number_operand(number))
    fact = value.fact._replace(low=outcome.low, high=outcome.high, bits=0)
    for written, dtype in ((number, value.dtype), (float(number), torch.float32)):
        scope.must_use.append(scope.call(op, (value, written), fact._replace(dtype=dtype)))
    return True


def _with_another_sign(scope: Scope) -> bool:
    """Bound floats from below by a number and by the same with the other sign."""
    if not scope.building.plan.policy.allows(_BOUND):
        return False
    value = scope.pick((torch.float32, torch.float64))
    number = scope.choices.pick((0.5, 1.0, 0.25))
    bits = None if value.fact.bits is None else max(value.fact.bits, 2)
    for bound in (-number, number):
        fact = value.fact._replace(low=max(value.fact.low, bound), high=max(value.fact.high, bound), bits=bits)
        scope.must_use.append(scope.call(_BOUND, (value, bound), fact))
    return True


def _with_another_factor(scope: Scope) -> bool:
    """Add a value to itself, once and more often: what differs is an argument given by name."""
    if not scope.building.plan.policy.allows(_SUM):
        return False
    dtypes = (torch.float32, torch.int64, torch.float64, torch.int32)
    value = calm(scope, scope.pick(dtypes, accept=preferred(scope, True)))
    if not value.is_exact:
        return False
    for factor in scope.choices.shuffled([1, 2]):
        low, high = (end * (1 + factor) for end in (value.fact.low, value.fact.high))
        keywords = () if factor == 1 else (("alpha", factor),)
        fact = value.fact._replace(low=low, high=high)
        scope.must_use.append(scope.call(_SUM, (value, value), fact, keywords))
    return True


def _call(scope: Scope, step: Call, take: Callable[[Ref], Value], facts: list[Fact], root: Value | None) -> None:
    def given(argument: Argument) -> Any:
        return mapped(argument, lambda one: take(one) if isinstance(one, Ref) else one)

    named = [(name, given(one)) for name, one in step.kwargs]
    scope.must_use.append(scope.call_several(step.op, [given(one) for one in step.args], facts, named, root=root)[0])


def _is_known(step: Call, values: Mapping[str, Value]) -> bool:
    """Return whether a call is one of an operator, of which all operands and results are known."""
    names = (*_operands(step), *step.results)
    return not step.bodies and bool(step.results) and all(name in values for name in names)


def _takes_doubles(step: Call, values: Mapping[str, Value]) -> bool:
    """Return whether a call of floats means the same for doubles."""
    names = [*_operands(step), *map(str, step.results)]
    is_plain = not any(isinstance(one, torch.dtype) for _, one in step.kwargs)
    is_of_floats = all(values[name].dtype == torch.float32 and not values[name].root for name in names)
    operator = _catalogue().get(step.op)
    return is_plain and is_of_floats and operator is not None and torch.float64 in operator.dtypes


def _operands(step: Call) -> list[str]:
    return list(dict.fromkeys(names_in(step.arguments)))


@cache
def _catalogue() -> Mapping[str, Operator]:
    return {operator.name: operator for operator in shipped_operators()}
