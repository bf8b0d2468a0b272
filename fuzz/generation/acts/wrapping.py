"""Arithmetic of integers at the ends of their range: what does not fit wraps around, as it does in torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import INTEGERS, Value
from exirkit.fuzz.programs import Contents

from .loose import hide, loose_call, returned

_COUNT = 6
_POWERS = ("aten.pow.Tensor_Tensor", "aten.pow.Scalar", "aten.pow.Tensor_Scalar")
_SUMS = ("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor")
_QUOTIENTS = ("aten.remainder.Tensor", "aten.fmod.Tensor", "aten.floor_divide.default", "aten.div.Tensor_mode")
_OF_ONE = ("aten.neg.default", "aten.abs.default")
_OPERATORS = (*_POWERS * 3, *_SUMS, *_QUOTIENTS, *_OF_ONE)

# Numbers of bits, and with each of their own bits set.
_EXPONENTS = (
    *(0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 63, 64, 100, 127, 128, 129, 200, 255, 32_767, 2**31 - 1, 2**40 + 5),
    *(-1, -2, -3, -128, -301),
)
_FACTORS = (0, 1, 2, 3, 5, 16, 181, 255, 32_767, 46_341, -1, -2, -3, -7)
# No -1: the least number has no quotient by it.
_DIVISORS = (2, 3, 5, 7, 16, 100, -2, -3, -7, -100)


def wrapping_integers(scope: Scope) -> None:
    """Compute with integers of all sizes, whose results, powers above all, are often out of range."""
    choices = scope.choices
    allowed = [op for op in _OPERATORS if scope.building.plan.policy.allows(op)]
    dtypes = [one for one in INTEGERS if one in scope.building.plan.policy.dtypes]
    if not allowed or not dtypes:
        return
    dtype = choices.pick(dtypes)
    value = _input(scope, dtype, _ends(dtype))
    for _ in range(choices.integer(2, 4)):
        op = choices.pick(allowed)
        # Half of the time numbers of which a power still shows something.
        needs_tensor = op != "aten.pow.Scalar"
        operand = value if not needs_tensor or choices.chance(0.5) else _input(scope, dtype, _FACTORS)
        named = (("rounding_mode", choices.pick(("trunc", "floor"))),) if op == "aten.div.Tensor_mode" else ()
        made = loose_call(scope, op, _arguments(scope, op, operand), dtype, (_COUNT,), named)
        returned(scope, made)
        value = made if choices.chance(0.3) else value


def _arguments(scope: Scope, op: str, operand: Value) -> tuple[Any, ...]:
    dtype = operand.dtype
    if op == "aten.pow.Tensor_Scalar":
        return operand, scope.choices.pick([one for one in _held(dtype, _EXPONENTS) if one >= 0])
    if op == "aten.pow.Scalar":
        return scope.choices.pick(_held(dtype, (2, 3, 7, -1, -2, -3))), _input(scope, dtype, _EXPONENTS)
    if op in _OF_ONE:
        return (operand,)
    others = _EXPONENTS if op in _POWERS else _DIVISORS if op in _QUOTIENTS else (*_ends(dtype), *_FACTORS)
    if op in _POWERS and scope.choices.chance(0.4):
        return operand, _few_exponents(scope, dtype)
    return operand, _input(scope, dtype, others)


def _few_exponents(scope: Scope, dtype: torch.dtype) -> Value:
    """Return stored exponents, none of which is greater than a small number: how many bits they have is known."""
    most = scope.choices.pick((4, 1, 2, 3, 5, 7, 8, 16))
    numbers = (most, *(scope.choices.integer(0, most) for _ in range(_COUNT - 1)))
    return scope.building.store("constant", dtype, (_COUNT,), Contents("numbers", numbers=numbers))


def _ends(dtype: torch.dtype) -> tuple[int, ...]:
    limits = torch.iinfo(dtype)
    return (limits.max, limits.min, limits.max - 1, limits.min + 1, limits.max // 2 + 1, 3, 1, 0)


def _held(dtype: torch.dtype, numbers: Sequence[int]) -> list[int]:
    limits = torch.iinfo(dtype)
    return [one for one in numbers if limits.min <= one <= limits.max]


def _input(scope: Scope, dtype: torch.dtype, numbers: Sequence[int]) -> Value:
    """Return an input that no other call finds, with some of the numbers that the dtype holds."""
    held = _held(dtype, numbers)
    contents = Contents("numbers", numbers=tuple(scope.choices.pick(held) for _ in range(_COUNT)))
    value = scope.new_input(dtype, (_COUNT,), contents)
    hide(scope, value)
    return value
