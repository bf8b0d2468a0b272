"""Comparisons, also of what is not a number, and logic over them.

For integers "not greater" is "less or equal", and a tensor equals itself; for floats neither holds.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Value, is_float
from exirkit.fuzz.programs import Contents

from .loose import hide, loose_call, returned

_COUNT = 8
_NUMBERS = (math.nan, math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 2.0, 0.5)
_WHOLE = (0, 0, 1, -1, 2, 127, -128, 5)
_DTYPES = (torch.float32, torch.float32, torch.float32, torch.float64, torch.int64, torch.int32)
_RELATIONS = ("eq", "ne", "lt", "le", "gt", "ge")
_NOT = "aten.logical_not.default"
_JOINTS = ("aten.logical_and.default", "aten.logical_or.default", "aten.logical_xor.default")
_CHOOSING = ("aten.maximum.default", "aten.minimum.default")
_WHERE = "aten.where.self"
_USED = (
    *(f"aten.{one}.{form}" for one in _RELATIONS for form in ("Tensor", "Scalar")),
    _NOT,
    *_JOINTS,
    *_CHOOSING,
    _WHERE,
)


def comparisons(scope: Scope) -> None:
    """Compare two tensors that have many elements in common, and negate, join and choose by what that gives."""
    choices = scope.choices
    policy = scope.building.plan.policy
    if not all(map(policy.allows, _USED)):
        return
    dtype = choices.pick([one for one in _DTYPES if one in policy.dtypes] or [torch.float32])
    numbers = _NUMBERS if is_float(dtype) else _WHOLE
    drawn = [choices.pick(numbers) for _ in range(_COUNT)]
    # Element by element equal, or any of the others.
    beside = [one if choices.chance(0.4) else choices.pick(numbers) for one in drawn]
    pair = (_input(scope, dtype, drawn), _input(scope, dtype, beside))
    for _ in range(choices.integer(5, 8)):
        returned(scope, _concluded(scope, pair))


def _input(scope: Scope, dtype: torch.dtype, numbers: list[Any]) -> Value:
    value = scope.new_input(dtype, (_COUNT,), Contents("numbers", numbers=tuple(numbers)))
    # All executors agree about comparing given numbers, on whatever grid these are.
    value.fact = value.fact._replace(low=-1, high=1, bits=0)
    hide(scope, value)
    return value


def _compared(scope: Scope, pair: tuple[Value, Value]) -> Value:
    relation = scope.choices.pick(_RELATIONS)
    if scope.choices.chance(0.25):
        number = scope.choices.pick((0, 1, -1, 2))
        return _truth(scope, f"aten.{relation}.Scalar", (scope.choices.pick(pair), number))
    # A tensor is compared with itself, too.
    one = scope.choices.pick(pair)
    other = one if scope.choices.chance(0.15) else pair[1] if one is pair[0] else pair[0]
    return _truth(scope, f"aten.{relation}.Tensor", (one, other))


def _truth(scope: Scope, op: str, args: tuple[Any, ...]) -> Value:
    return loose_call(scope, op, args, torch.bool, (_COUNT,))


def _concluded(scope: Scope, pair: tuple[Value, Value]) -> Value:
    choices = scope.choices
    made = _compared(scope, pair)
    for _ in range(choices.integer(1, 2)):
        kind = choices.integer(0, 4)
        if kind < 3:
            made = _truth(scope, _NOT, (made,))
        elif kind == 3:
            made = _truth(scope, choices.pick(_JOINTS), (made, _compared(scope, pair)))
        else:
            chosen = loose_call(scope, _WHERE, (made, *choices.shuffled(pair)), pair[0].dtype, (_COUNT,), is_exact=True)
            return _bounded(scope, chosen, pair) if choices.chance(0.3) else chosen
    return made


def _bounded(scope: Scope, value: Value, pair: tuple[Value, Value]) -> Value:
    op = scope.choices.pick(_CHOOSING)
    return loose_call(scope, op, (value, scope.choices.pick(pair)), value.dtype, (_COUNT,), is_exact=True)
