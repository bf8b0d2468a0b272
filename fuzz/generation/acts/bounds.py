"""Values whose limits follow from the calls before, and calls that act beyond limits: does one ever act?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Value
from exirkit.fuzz.programs import Contents

from .loose import hide, loose_call, returned

_ELEMENTS = (-5.0, -2.0, -1.0, 0.0, 0.5, 1.0, 3.0, 5.0)
_LIMITS = (-4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0)


def bounded_arithmetic(scope: Scope) -> None:
    """Bound values, combine them, and apply what acts only on what lies beyond some limits."""
    if not all(map(scope.building.plan.policy.allows, _USED)):
        return
    for _ in range(scope.choices.integer(1, 3)):
        values = []
        for _ in range(2):
            # Both limits are reached, and by the two values in all ways together.
            numbers = tuple(scope.choices.shuffled(_ELEMENTS))
            source = scope.new_input(torch.float32, (len(_ELEMENTS),), Contents("numbers", numbers=numbers))
            values.append(_called(scope, scope.choices.pick(_BOUNDING), source))
            hide(scope, source)
        made = _combined(scope, values)
        if scope.choices.chance(0.4):
            made = _combined(scope, [made, values[0]])
        returned(scope, _called(scope, scope.choices.pick(_ACTING), made))


def _called(scope: Scope, op: str, value: Value) -> Value:
    """Call an operator of one value, whose limits are any numbers."""
    args: tuple[Any, ...] = ()
    if op in (_CLAMP, _HARDTANH):
        args = tuple(sorted((scope.choices.pick(_LIMITS), scope.choices.pick(_LIMITS))))
        if op == _CLAMP:
            args = scope.choices.pick((args, args, (args[0],), (None, args[1])))
    elif op in _COMPARING:
        args = (scope.choices.pick(_LIMITS),)
    return _exact(scope, op, (value, *args), torch.bool if op in _COMPARING else value.dtype, value)


def _combined(scope: Scope, values: Sequence[Value]) -> Value:
    op = scope.choices.pick(_COMBINING)
    one, other = scope.choices.shuffled(values)
    if op in _OF_ONE:
        return _exact(scope, op, (one,), one.dtype, one)
    if op == "aten.pow.Tensor_Scalar":
        return _exact(scope, op, (one, scope.choices.pick((2, 3))), one.dtype, one)
    if op.endswith(".Scalar"):
        numbers = [number for number in _LIMITS if number] if "mul" in op else _LIMITS
        return _exact(scope, op, (one, scope.choices.pick(numbers)), one.dtype, one)
    return _exact(scope, op, (one, one if scope.choices.chance(0.1) else other), one.dtype, one)


def _exact(scope: Scope, op: str, args: tuple[Any, ...], dtype: torch.dtype, like: Value) -> Value:
    """Call an operator; halves and their products are exact, and functions such as `tanh` are not."""
    return loose_call(scope, op, args, dtype, like.sizes, is_exact=op not in _ROUGH)


_CLAMP, _HARDTANH = "aten.clamp.default", "aten.hardtanh.default"
_ROUGH = frozenset({"aten.sigmoid.default", "aten.tanh.default"})
_BOUNDING = (*(_CLAMP, _HARDTANH) * 4, "aten.relu.default", "aten.abs.default", *sorted(_ROUGH))
_COMPARING = ("aten.gt.Scalar", "aten.le.Scalar")
_ACTING = ("aten.relu.default", _CLAMP, "aten.abs.default", _HARDTANH, "aten.relu.default", *_COMPARING)
_OF_ONE = frozenset({"aten.neg.default", "aten.abs.default"})
_COMBINING = (
    "aten.mul.Tensor",
    "aten.mul.Tensor",
    "aten.add.Tensor",
    "aten.sub.Tensor",
    "aten.maximum.default",
    "aten.minimum.default",
    "aten.mul.Scalar",
    "aten.add.Scalar",
    "aten.sub.Scalar",
    "aten.pow.Tensor_Scalar",
    *sorted(_OF_ONE),
)
_USED = frozenset({*_BOUNDING, *_ACTING, *_COMBINING})
