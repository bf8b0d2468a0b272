"""Calls of one kind, one on the result of the other: what compilers merge, with numbers for which they must not."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Value, is_float
from exirkit.fuzz.programs import Contents

from .loose import hide, loose_call, returned

_NUMBERS = (-5.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 5.0)
"""Elements, and limits, factors and summands: each may lie within, beyond or at others."""
_WHOLE = (-5, -2, -1, 0, 1, 2, 3, 5, 7)
_COUNT = 8


def numbered_calls(scope: Scope) -> None:
    """Call operators that take numbers, mostly of one kind, on each other's results."""
    allows = scope.building.plan.policy.allows
    kinds = [kind for kind in _KINDS if all(map(allows, kind))]
    if not kinds:
        return
    # Limits are what is merged most, and what two pairs of numbers are to each other has most cases.
    limits = [kind for kind in kinds if _CLAMP in kind or _HARDTANH in kind]
    for _ in range(scope.choices.integer(2, 4)):
        is_whole = scope.choices.chance(0.25)
        dtype = scope.choices.pick(
            (torch.int64, torch.int32) if is_whole else (torch.float32, torch.float32, torch.float32, torch.float64)
        )
        numbers: Sequence[float] = _WHOLE if is_whole else _NUMBERS
        drawn = tuple(scope.choices.pick(numbers) for _ in range(_COUNT))
        source = value = scope.new_input(dtype, (_COUNT,), Contents("numbers", numbers=drawn))
        kind = scope.choices.pick(limits if limits and scope.choices.chance(0.5) else kinds)
        for _ in range(scope.choices.integer(2, 3)):
            value = _numbered(scope, scope.choices.pick(kind), value, numbers)
            if scope.choices.chance(0.15):
                returned(scope, value)
        returned(scope, value)
        hide(scope, source)


def _numbered(scope: Scope, op: str, value: Value, numbers: Sequence[float]) -> Value:
    draw = scope.choices.pick
    if op == _CLAMP:
        low, high = sorted((draw(numbers), draw(numbers)))
        # Limits that cross mean the upper one.
        pairs = (*((low, high),) * 5, (low, None), (None, high), (high, low))
        return loose_call(scope, op, (value, *draw(pairs)), value.dtype, value.sizes, is_exact=True)
    if op == _HARDTANH:
        limits = sorted((draw(numbers), draw(numbers)))
        return loose_call(scope, op, (value, *limits), value.dtype, value.sizes, is_exact=True)
    if op in _PLAIN:
        return loose_call(scope, op, (value,), value.dtype, value.sizes, is_exact=True)
    number = draw([one for one in numbers if one or op not in _DIVISIONS])
    return loose_call(scope, op, (value, number), value.dtype, value.sizes, is_exact=True)


_CLAMP, _HARDTANH = "aten.clamp.default", "aten.hardtanh.default"
_PLAIN = frozenset({"aten.relu.default", "aten.abs.default", "aten.neg.default"})
_DIVISIONS = frozenset({"aten.remainder.Scalar", "aten.fmod.Scalar"})
_KINDS = (
    (_CLAMP,),
    (_CLAMP, _CLAMP, "aten.relu.default"),
    (_CLAMP, _HARDTANH),
    (_HARDTANH,),
    (_CLAMP, "aten.neg.default", "aten.abs.default"),
    ("aten.add.Scalar", "aten.sub.Scalar"),
    ("aten.mul.Scalar",),
    ("aten.add.Scalar", "aten.mul.Scalar"),
    ("aten.add.Scalar", _CLAMP, "aten.relu.default"),
    ("aten.mul.Scalar", _CLAMP, "aten.relu.default"),
    ("aten.remainder.Scalar", "aten.add.Scalar"),
    ("aten.fmod.Scalar", "aten.remainder.Scalar"),
    ("aten.relu.default", "aten.abs.default", "aten.neg.default"),
)
"""Operators of which one chain calls some."""

_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
# Too large, too small and too fine for one or the other format, and halves that are rounded.
_EDGES_OF_FLOATS = (1.0, 1e5, -7e4, 1e-6, 1.00390625, 2049.0, 3e38, -1e-40, 0.1, 65520.0, -0.0, 257.0)
_EDGES_OF_INTEGERS = (0, 1, 127, 3, 200, 255, 256, 300, 40_000, 70_000, 2**31 + 5)
# Integers between those that a float has, and few others.
_BETWEEN = {
    torch.float32: (2**24 + 1, 2**25 + 3, 5, 2**31 - 1, 123_456_789),
    torch.float64: (2**53 + 1, 2**31 - 1, 7, 2**54 + 2),
    torch.float16: (2049, 4099, 3, 32_767),
    torch.bfloat16: (257, 513, 2, 32_767),
}
_MODERATE = (0.0, 1.5, 3.75, 100.0, 0.25, 2.5, 127.0, 0.75)


def converted_again(scope: Scope) -> None:
    """Convert to a dtype, to another, and perhaps on, with elements that not all of them hold."""
    allowed = scope.building.plan.policy.dtypes
    if not scope.building.plan.policy.allows(_CAST):
        return
    floats, integers = ([one for one in among if one in allowed] for among in (_FLOATS, _INTEGERS))
    if not floats or not integers:
        return
    if scope.choices.chance(0.5):
        _through_float(scope, scope.choices.pick(floats), integers)
    for _ in range(scope.choices.integer(1, 3)):
        way = scope.choices.integer(0, 4)
        # What a float becomes that an integer does not hold is left to the machine.
        dtypes = floats if way < 2 else integers if way == 2 else [*floats, *integers, torch.bool]
        numbers = _EDGES_OF_FLOATS if way < 2 else _EDGES_OF_INTEGERS if way == 2 else _MODERATE
        first = scope.choices.pick(dtypes)
        contents = Contents("numbers", numbers=_held(scope, first, numbers))
        value = scope.new_input(first, (_COUNT,), contents)
        hide(scope, value)
        for _ in range(scope.choices.integer(2, 3)):
            dtype = scope.choices.pick([one for one in dtypes if one != value.dtype])
            # What is rounded on the way is another number with more digits.
            is_exact = way > 1
            value = loose_call(scope, _CAST, (value,), dtype, value.sizes, (("dtype", dtype),), is_exact=is_exact)
        returned(scope, value)


def _through_float(scope: Scope, dtype: torch.dtype, integers: Sequence[torch.dtype]) -> None:
    """Convert integers to a float that does not hold all of them, and back."""
    first = scope.choices.pick(integers)
    # What a float rounds up must not leave the range on the way back.
    fine = [one for one in _BETWEEN[dtype] if torch.tensor(one, dtype=dtype).item() <= torch.iinfo(first).max]
    value = scope.new_input(first, (_COUNT,), Contents("numbers", numbers=_held(scope, first, fine)))
    hide(scope, value)
    for one in (dtype, scope.choices.pick((first, first, torch.int64))):
        value = loose_call(scope, _CAST, (value,), one, value.sizes, (("dtype", one),), is_exact=True)
    returned(scope, value)


_CAST = "aten._to_copy.default"


def _held(scope: Scope, dtype: torch.dtype, numbers: Sequence[float]) -> tuple[float, ...]:
    """Return some numbers that a dtype holds, as it holds them."""
    if dtype == torch.bool:
        return tuple(scope.choices.pick((True, False)) for _ in range(_COUNT))
    if is_float(dtype):
        found = [one for one in numbers if abs(one) <= torch.finfo(dtype).max]
        return tuple(torch.tensor([scope.choices.pick(found) for _ in range(_COUNT)], dtype=dtype).tolist())
    limits = torch.iinfo(dtype)
    whole = [int(one) for one in numbers if limits.min <= one <= limits.max]
    drawn = [scope.choices.pick(whole) for _ in range(_COUNT)]
    return tuple(scope.choices.pick((1, -1)) * one if limits.min < 0 else one for one in drawn)
