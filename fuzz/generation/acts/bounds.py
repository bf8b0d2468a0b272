"""Values whose limits follow from the calls before, and calls that act beyond limits: does one ever act?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Value
from exirkit.fuzz.programs import Contents

from .bodies import branched, looped
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
        elif scope.choices.chance(0.3):
            made = values[0]
        if scope.choices.chance(0.3) and all(map(scope.building.plan.policy.allows, _IN_BODIES)):
            made = _through_bodies(scope, made)
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


def _through_bodies(scope: Scope, value: Value) -> Value:
    """Return what a branch or some turns of a loop make of a value: what is known of one does not hold of all."""
    if scope.choices.chance(0.4):
        return looped(scope, [value], [], lambda turn: [_step(turn, turn.operands[1])], is_exact=True)[0]
    return branched(scope, [value], lambda branch, _: _step(branch, branch.operands[0]), is_exact=True)


def _step(body: Scope, value: Value) -> Value:
    op = body.choices.pick(_IN_BODIES)
    args: tuple[Any, ...] = (value,) if op.endswith(".default") else (value, body.choices.pick((1.0, 0.5, 2.0)))
    return loose_call(body, op, args, value.dtype, value.sizes, is_exact=True)


def _exact(scope: Scope, op: str, args: tuple[Any, ...], dtype: torch.dtype, like: Value) -> Value:
    """Call an operator; halves and their products are exact, and functions such as `tanh` are not."""
    return loose_call(scope, op, args, dtype, like.sizes, is_exact=op not in _ROUGH)


_CLAMP, _HARDTANH = "aten.clamp.default", "aten.hardtanh.default"
_ROUGH = frozenset({"aten.sigmoid.default", "aten.tanh.default"})
_BOUNDING = (*(_CLAMP, _HARDTANH) * 4, "aten.relu.default", "aten.abs.default", *sorted(_ROUGH))
_IN_BODIES = ("aten.neg.default", "aten.sub.Scalar", "aten.relu.default", "aten.add.Scalar")
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


_LOWS = (0, 0, 0, 1, -1, -128, -129, -5)
_HIGHS = (5, 7, 1, 3, 10, 100, 127, 128, 255, 256, 32_767)
_WHOLE = (torch.int64, torch.int64, torch.int32, torch.int8, torch.int16, torch.uint8)
_NARROW = (torch.int8, torch.uint8, torch.int16, torch.int32)
_CAST = "aten._to_copy.default"
_DIVIDING = ("aten.remainder.Scalar", "aten.fmod.Scalar")
_WHOLE_COMPARING = (*_COMPARING, "aten.lt.Scalar", "aten.ge.Scalar", "aten.eq.Scalar")
_RELU, _ABS = "aten.relu.default", "aten.abs.default"
_DOUBLED = "aten.add.Tensor"
_SHIFTING = ("aten.add.Scalar", "aten.sub.Scalar", "aten.mul.Scalar", "aten.neg.default", _DOUBLED)
_WHOLE_ACTING = (*_DIVIDING * 3, _CLAMP, _CAST, _CAST, _ABS, _RELU, *_WHOLE_COMPARING)
_USED_OF_WHOLE = frozenset({_CLAMP, _CAST, *_DIVIDING, *_WHOLE_COMPARING, *_SHIFTING, _ABS, _RELU})


def bounded_integers(scope: Scope) -> None:
    """Bound integers, shift the bounds, and apply what acts only beyond a number at the bounds or next to them.

    What is shifted beyond the bounds of a narrow dtype wraps around.
    """
    choices, policy = scope.choices, scope.building.plan.policy
    dtypes = [one for one in _WHOLE if one in policy.dtypes]
    if not dtypes or not all(map(policy.allows, _USED_OF_WHOLE)):
        return
    for _ in range(choices.integer(4, 7)):
        dtype = choices.pick(dtypes)
        least, greatest = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        low, high = max(choices.pick(_LOWS), least), min(choices.pick(_HIGHS), greatest)
        # Elements at both bounds, next to them, and far beyond.
        far = (low, high, low - 1, high + 1, low + 1, high - 1, 0, -70_000, 70_000)
        elements = tuple(min(max(one, least), greatest) for one in far)
        source = scope.new_input(dtype, (len(elements),), Contents("numbers", numbers=elements))
        hide(scope, source)
        value = loose_call(scope, _CLAMP, (source, low, high), dtype, source.sizes)
        if choices.chance(0.3 if greatest > 2**31 else 0.7):
            value, low, high = _shifted(scope, value, low, high)
        returned(scope, _acted_on(scope, value, low, high))


def _shifted(scope: Scope, value: Value, low: int, high: int) -> tuple[Value, int, int]:
    op = scope.choices.pick(_SHIFTING)
    if op == "aten.neg.default":
        return loose_call(scope, op, (value,), value.dtype, value.sizes), -high, -low
    if op == _DOUBLED:
        return loose_call(scope, op, (value, value), value.dtype, value.sizes), 2 * low, 2 * high
    number = scope.choices.pick((1, 2, 3, -1))
    made = loose_call(scope, op, (value, number), value.dtype, value.sizes)
    ends = [one * number if "mul" in op else one - number if "sub" in op else one + number for one in (low, high)]
    return made, min(ends), max(ends)


def _acted_on(scope: Scope, value: Value, low: int, high: int) -> Value:
    draw = scope.choices.pick
    op = draw(_WHOLE_ACTING)
    limits_of = torch.iinfo(value.dtype)
    far = (low, high, low - 1, high + 1, low + 1, high - 1)
    near = tuple(min(max(one, limits_of.min), limits_of.max) for one in far)
    if op in _DIVIDING:
        divisors = [one for one in (near[1], near[1], near[3], near[3], near[5], -low) if 0 < one <= limits_of.max]
        return loose_call(scope, op, (value, draw(divisors or [3])), value.dtype, value.sizes)
    if op == _CLAMP:
        limits = sorted((draw(near), draw(near)))
        return loose_call(scope, op, (value, *draw((limits, limits, (limits[0],)))), value.dtype, value.sizes)
    if op == _CAST:
        narrow = draw([one for one in _NARROW if one != value.dtype])
        made = loose_call(scope, op, (value,), narrow, value.sizes, (("dtype", narrow),))
        return loose_call(scope, op, (made,), value.dtype, value.sizes, (("dtype", value.dtype),))
    if op in (_ABS, _RELU):
        return loose_call(scope, op, (value,), value.dtype, value.sizes)
    return loose_call(scope, op, (value, draw(near)), torch.bool, value.sizes)
