"""Numbers that are rounded: halves go to the even integer beside them, and chosen zero points to the nearest one."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Fact, Value, bits_of
from exirkit.fuzz.programs import Contents

from .loose import hide, loose_call, loose_calls, returned

_LIBRARY = "quantized_decomposed"
_SCALES = (1.0, 0.5, 2.0, 0.25, 0.125)
# Their halves lie between limits of every dtype, with some that do not.
_HALVES = (0.5, 1.5, -0.5, 2.5, -1.5, -2.5, 3.0, 6.5, -7.5, 126.5, -128.5, 0.0)
_LIMITS = {torch.int8: (-128, 127), torch.uint8: (0, 255), torch.int16: (-32768, 32767)}
_ZEROS = (1, 3, 7, 0, 2, 17, 5)
# Of one sign or both, far from zero or beside it, and none whose zero point lies near a half.
_RANGES = ((3.0, 5.0, 4.0, 8.0), (-1.25, 1.0, 0.25, 3.5), (-3.0, -5.0, -0.5, -8.0), (2.0, -0.75, 0.0, 1.0))
_INTEGERS_AND_LIMITS = ((torch.int8, -128, 127), (torch.uint8, 0, 255), (torch.int8, -127, 127), (torch.uint8, 0, 100))


def rounded_ties(scope: Scope) -> None:
    """Quantize numbers half-way between integers, with zero points most of which are odd, or choose zero points."""
    choices = scope.choices
    if not scope.building.plan.policy.allows(f"{_LIBRARY}.quantize_per_tensor.default"):
        return
    if choices.chance(0.3):
        _choose(scope)
        return
    dtype = choices.pick(tuple(_LIMITS))
    scale = choices.pick(_SCALES)
    numbers = tuple(half * scale for half in choices.shuffled(_HALVES)[:8])
    value = scope.new_input(torch.float32, (2, 4), Contents(kind="numbers", numbers=numbers))
    sign = choices.pick((1, 1, -1)) if dtype.is_signed else 1
    zeros = tuple(sign * choices.pick(_ZEROS) for _ in range(2))
    made, back = (_by_channel if choices.chance(0.3) else _whole)(scope, value, scale, zeros, dtype)
    for one in (made, back):
        hide(scope, one)
        returned(scope, one)


def _choose(scope: Scope) -> None:
    """Choose scales and zero points for numbers of one sign or both; all come back nearly as they were."""
    for numbers in scope.choices.shuffled(_RANGES)[:2]:
        dtype, *limits = scope.choices.pick(_INTEGERS_AND_LIMITS)
        sizes = (len(numbers),)
        value = scope.new_input(torch.float32, sizes, Contents(kind="numbers", numbers=numbers))
        hide(scope, value)
        args = (value, *limits, scope.choices.pick((2.0**-23, 2.0**-12)), dtype)
        # Executors agree on zero points, and not on the last bits of scales, which are not returned.
        results = ((torch.float64, (1,)), (torch.int64, (1,)))
        scale, zero = loose_calls(scope, f"{_LIBRARY}.choose_qparams.tensor", args, results, is_exact=True)
        returned(scope, zero)
        args = (scale, zero, *limits, dtype)
        back = loose_call(scope, f"{_LIBRARY}.quantize_per_tensor.tensor", (value, *args), dtype, sizes, is_exact=True)
        back = _like(scope, f"{_LIBRARY}.dequantize_per_tensor.tensor", (back, *args), value)
        gap = _like(scope, "aten.abs.default", (_like(scope, "aten.sub.Tensor", (back, value), value),), value)
        returned(scope, loose_call(scope, "aten.lt.Scalar", (gap, 0.5), torch.bool, sizes, is_exact=True))


def _like(scope: Scope, op: str, args: Sequence[object], value: Value) -> Value:
    return loose_call(scope, op, tuple(args), value.dtype, value.sizes, is_exact=True)


def _whole(scope: Scope, value: Value, scale: float, zeros: tuple[int, ...], dtype: torch.dtype) -> tuple[Value, Value]:
    arguments = (scale, zeros[0], *_LIMITS[dtype], dtype)
    made = scope.call(f"{_LIBRARY}.quantize_per_tensor.default", (value, *arguments), _integers(dtype))
    back = scope.call(f"{_LIBRARY}.dequantize_per_tensor.default", (made, *arguments), _floats(scale, dtype))
    return made, back


def _by_channel(
    scope: Scope, value: Value, scale: float, zeros: tuple[int, ...], dtype: torch.dtype
) -> tuple[Value, Value]:
    scales = Contents(kind="numbers", numbers=(scale, scale))
    parameters = (
        scope.building.store("constant", torch.float32, (2,), scales),
        scope.building.store("constant", torch.int64, (2,), Contents(kind="numbers", numbers=zeros)),
    )
    arguments = (*parameters, 0, *_LIMITS[dtype], dtype)
    made = scope.call(f"{_LIBRARY}.quantize_per_channel.default", (value, *arguments), _integers(dtype))
    back = scope.call(f"{_LIBRARY}.dequantize_per_channel.default", (made, *arguments), _floats(scale, dtype))
    return made, back


def _integers(dtype: torch.dtype) -> Fact:
    return Fact(dtype, (2, 4), *_LIMITS[dtype], 0, True)


def _floats(scale: float, dtype: torch.dtype) -> Fact:
    low, high = _LIMITS[dtype]
    reach = (high - low) * scale
    return Fact(torch.float32, (2, 4), -reach, reach, bits_of(scale), True)
