"""Calls that are made a second time, the same or nearly: what compilers take for equal, and what they must not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from exirkit.fuzz.programs import Argument, Call, Ref

from .scope import Scope
from .values import Fact, Value, is_float

_SUMS = frozenset(
    {f"aten.{name}.{overload}" for name in ("add", "sub", "mul") for overload in ("Scalar", "Tensor")}
    | {"aten.rsub.Scalar"}
)
"""Operators of a tensor and a number, with results on the grid of both."""


def similar_call(scope: Scope) -> None:
    """Make a call once more: as it is, or with an integer written as a float, which is another call."""
    values = {value.name: value for value in scope.values}
    found = [step for step in scope.steps if _is_known(step, values)]
    numbered = [step for step in found if step.op in _SUMS and type(step.args[1]) is int]
    if numbered and scope.choices.chance(0.5):
        step = scope.choices.pick(numbered)
        result = values[str(step.results[0])]
        args = [_given(step.args[0], values), float(step.args[1]), *step.args[2:]]  # type: ignore[arg-type]
        scope.urgent.append(scope.call(step.op, args, _beside_float(result.fact), step.kwargs))
    elif found:
        step = scope.choices.pick(found)
        results = [values[str(name)] for name in step.results]
        root = next((values[one.root] for one in results if one.root in values), None)
        named = [(name, _given(given, values)) for name, given in step.kwargs]
        facts = [one.fact for one in results]
        args = [_given(given, values) for given in step.args]
        scope.urgent.append(scope.call_several(step.op, args, facts, named, root=root)[0])


def _is_known(step: Call, values: Mapping[str, Value]) -> bool:
    """Tell whether a call is one of an operator, of which all results are known."""
    return not step.bodies and bool(step.results) and all(name in values for name in step.results)


def _given(argument: Argument, values: Mapping[str, Value]) -> Any:
    if isinstance(argument, tuple):
        return tuple(_given(each, values) for each in argument)
    return values[argument.name] if isinstance(argument, Ref) else argument


def _beside_float(fact: Fact) -> Fact:
    """Return what a call gives whose integer is written as a float."""
    return fact if is_float(fact.dtype) else fact._replace(dtype=torch.float32, bits=0)
