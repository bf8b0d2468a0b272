"""Halves that are rounded: they go to the even integer beside them before anything is added."""

from __future__ import annotations

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Fact, Value, bits_of
from exirkit.fuzz.programs import Contents

from .loose import hide, returned

_LIBRARY = "quantized_decomposed"
_SCALES = (1.0, 0.5, 2.0, 0.25, 0.125)
# Their halves lie between limits of every dtype, with some that do not.
_HALVES = (0.5, 1.5, -0.5, 2.5, -1.5, -2.5, 3.0, 6.5, -7.5, 126.5, -128.5, 0.0)
_LIMITS = {torch.int8: (-128, 127), torch.uint8: (0, 255), torch.int16: (-32768, 32767)}
_ZEROS = (1, 3, 7, 0, 2, 17, 5)


def rounded_ties(scope: Scope) -> None:
    """Quantize numbers half-way between integers, with zero points of which most are odd, per tensor or per channel."""
    choices = scope.choices
    if not scope.building.plan.policy.allows(f"{_LIBRARY}.quantize_per_tensor.default"):
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
