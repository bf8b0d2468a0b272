"""Layers with stored weights between factors, summands and normalizations, which weights can take up."""

from __future__ import annotations

from typing import Any

import torch

from exirkit.fuzz.generation.method.extents import Extents
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Fact, Value

from .loose import hide, loose_call, returned

_CONVOLUTION, _LINEAR = "aten.convolution.default", "aten.linear.default"
_NORM = "aten._native_batch_norm_legit_no_training.default"
_EPSILONS = (1e-5, 1e-3, 0.01, 0.0625, 0.5)
_SCALING = ("aten.mul.Tensor", "aten.mul.Tensor", "aten.add.Tensor", "aten.sub.Tensor", "aten.div.Tensor")
_USED = frozenset({_CONVOLUTION, _LINEAR, _NORM, *_SCALING, "aten.relu.default"})


def layer_with_factors(scope: Scope) -> None:
    """Call some layers, each with what scales, shifts and normalizes channels before it and behind it."""
    if all(map(scope.building.plan.policy.allows, _USED)):
        for _ in range(scope.choices.integer(1, 3)):
            _layer(scope)


def _layer(scope: Scope) -> None:
    choices = scope.choices
    channels, outputs = choices.integer(1, 3), choices.integer(1, 3)
    is_image = choices.chance(0.7)
    sizes: Extents = (choices.integer(1, 2), channels, 4, 3) if is_image else (2, channels)
    value = scope.new_input(torch.float32, sizes, scope.building.contents(torch.float32))
    hide(scope, value)
    if choices.chance(0.25):
        value = _scaled(scope, value, "aten.mul.Tensor", channels)
    value = _convolved(scope, value, outputs) if is_image else _multiplied(scope, value, outputs)
    if choices.chance(0.1):
        # Something else reads what the layer gives, without what is behind it.
        returned(scope, value)
    for _ in range(choices.integer(1, 2)):
        kind = choices.integer(0, 5)
        if kind < 2:
            value = _normalized(scope, value, outputs)
        elif kind == 5:
            value = _called(scope, "aten.relu.default", (value,), value, value.sizes)
        else:
            value = _scaled(scope, value, choices.pick(_SCALING), outputs)
    returned(scope, value)


def _called(scope: Scope, op: str, args: tuple[Any, ...], value: Value, sizes: Extents) -> Value:
    """Call an operator of a value: eighths, and sums and products of few of them, are exact."""
    is_exact = value.is_exact and op != "aten.div.Tensor"
    return loose_call(scope, op, args, value.dtype, sizes, is_exact=is_exact)


def _stored(scope: Scope, sizes: Extents, low: float = -1, high: float = 1) -> Value:
    kind = scope.choices.pick(("parameter", "buffer", "constant"))
    return scope.building.store(kind, torch.float32, sizes, scope.building.contents(torch.float32, low, high, 3))


def _scaled(scope: Scope, value: Value, op: str, channels: int) -> Value:
    ones = (1,) * (value.rank - 2)
    # Most times one number for each channel.
    by_channel: Extents = (channels, *ones)
    shapes: tuple[Extents, ...] = (by_channel, by_channel, by_channel, (1, channels, *ones), (1,), ())
    low, high = (0.5, 2) if "div" in op else (-1, 1)
    other = _stored(scope, scope.choices.pick(shapes), low, high)
    args: tuple[Any, ...] = (value, other)
    if op in ("aten.mul.Tensor", "aten.add.Tensor") and scope.choices.chance(0.3):
        args = (other, value)
    return _called(scope, op, args, value, value.sizes)


def _convolved(scope: Scope, value: Value, outputs: int) -> Value:
    channels = int(str(value.sizes[1]))
    size, padding = scope.choices.pick((1, 3, 2)), scope.choices.pick((0, 0, 1))
    weight = _stored(scope, (outputs, channels, size, size))
    bias = _stored(scope, (outputs,)) if scope.choices.chance(0.7) else None
    sides = tuple(int(str(side)) + 2 * padding - size + 1 for side in value.sizes[2:])
    args = (value, weight, bias, [1, 1], [padding, padding], [1, 1], False, [0, 0], 1)
    return _called(scope, _CONVOLUTION, args, value, (value.sizes[0], outputs, *sides))


def _multiplied(scope: Scope, value: Value, outputs: int) -> Value:
    weight = _stored(scope, (outputs, value.sizes[1]))
    args = (value, weight, _stored(scope, (outputs,))) if scope.choices.chance(0.5) else (value, weight)
    return _called(scope, _LINEAR, args, value, (value.sizes[0], outputs))


def _normalized(scope: Scope, value: Value, channels: int) -> Value:
    weight, bias, mean = (_stored(scope, (channels,)) for _ in range(3))
    variance = _stored(scope, (channels,), 0.125, 2)
    args = (value, weight, bias, mean, variance, 0.125, scope.choices.pick(_EPSILONS))
    empty = Fact(value.dtype, (0,), 0, 0, 0)
    made = scope.call_several(_NORM, args, (value.fact._replace(bits=None, is_dense=False), empty, empty))
    for one in made:
        hide(scope, one)
    return made[0]
