"""Calls of which the analysis of ranges knows something, on values with bounds, and calls that act beyond bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Value
from exirkit.fuzz.generation.operators.samples import Sample, TensorSample, sampled_operators, samples_of
from exirkit.fuzz.programs import Contents
from exirkit.patterns import ELEMENT_RANGES, load_inference

from .loose import hide, loose_call, loose_calls, returned

_CALLS = (3, 6)
_FOCUSED = 0.8
_MOST_ELEMENTS = 40
_BOUNDS = ((0, 4), (0, 1), (1, 3), (-3, -1), (-2, 0), (-1, 1), (-4, 4), (2, 2))
_NEAR = (0, 0, 0, -1, 1)
_CLAMP, _LESS, _GREATER = "aten.clamp.default", "aten.lt.Scalar", "aten.gt.Scalar"
_ACTING = (_CLAMP, _CLAMP, _CLAMP, _LESS, _GREATER, "aten.relu.default", "aten.abs.default")
_ACTS = (3, 5)
_ROUNDING = (
    "add", "sub", "mul", "pow", "sum", "exp", "log", "sqrt", "tanh", "sigmoid", "erf", "sin", "cos", "softmax",
    "quantize", "remainder",
)  # fmt: skip
# Their numbers cannot be below zero.
_OTHERS = frozenset({torch.bool, torch.uint8})


@cache
def _operators() -> Sequence[str]:
    """Return the operators with samples of which the analysis knows something."""
    rows = load_inference(ELEMENT_RANGES).model.transfer
    known = {op.replace("_copy.", ".") for row in rows for op in row.ops}
    return tuple(sorted(known & sampled_operators().keys()))


def analysed_calls(scope: Scope) -> None:
    """Call operators on bounded values, and what acts only beyond limits on what they give."""
    choices, allows = scope.choices, scope.building.plan.policy.allows
    operators = [op for op in _operators() if allows(op)]
    if not operators or not all(map(allows, _ACTING)):
        return
    focused = sorted(scope.building.plan.policy.focused_operators.intersection(operators))
    for _ in range(choices.integer(*_CALLS)):
        op = choices.pick(focused if focused and choices.chance(_FOCUSED) else operators)
        fitting = [sample for sample in samples_of(op) if _has_bounds(sample)]
        if fitting:
            _analysed(scope, choices.pick(fitting))


def _has_bounds(sample: Sample) -> bool:
    tensors, numbers = sample.tensors, (*sample.args, *sample.kwargs.values())
    is_small = all(math.prod(one.sizes) <= _MOST_ELEMENTS for one in tensors)
    is_known = not any(isinstance(one, float) and math.isnan(one) for one in numbers)
    return is_small and is_known and any(one.is_free and one.dtype not in _OTHERS for one in tensors)


def _analysed(scope: Scope, sample: Sample) -> None:
    """Call an operator on bounded values; limits beside these, and beside numbers that it is given, act on results."""
    choices = scope.choices
    low, high = choices.pick(_BOUNDS)
    called = sample.mapped(lambda one: _bounded(scope, one, low, high))
    kwargs = tuple(called.kwargs.items())
    numbers = [one for one in (*sample.args, *sample.kwargs.values()) if type(one) in (int, float) and abs(one) < 100]
    limits = sorted({low, high, 0, *numbers})
    # Elements that only move, or are compared, are the same everywhere.
    is_exact = not any(word in sample.op for word in _ROUNDING)
    for made in loose_calls(scope, sample.op, called.args, sample.results, kwargs, is_exact=is_exact):
        if made.dtype in _OTHERS:
            returned(scope, made)
            continue
        for op in choices.shuffled(_ACTING)[: choices.integer(*_ACTS)]:
            # At the bounds themselves more often than beside them.
            low, high = sorted(choices.pick(limits) + choices.pick(_NEAR) for _ in range(2))
            if not made.dtype.is_floating_point:
                low, high = round(low), round(high)
            args = {_CLAMP: choices.pick(((low, high), (low,), (None, high))), _LESS: (low,), _GREATER: (high,)}
            dtype = torch.bool if op in (_LESS, _GREATER) else made.dtype
            given = (made, *args.get(op, ()))
            returned(scope, loose_call(scope, op, given, dtype, made.sizes, is_exact=is_exact))


def _bounded(scope: Scope, tensor: TensorSample, low: int, high: int) -> Value:
    """Return a value between two numbers, which it reaches; stored numbers where they may not be any."""
    count = math.prod(tensor.sizes)
    if not tensor.is_free or tensor.dtype in _OTHERS:
        numbers = tensor.numbers or tuple(scope.choices.integer(0, 1) for _ in range(count))
        return scope.building.store("constant", tensor.dtype, tensor.sizes, Contents("numbers", numbers=numbers))
    elements = scope.choices.shuffled((low, high, low - 1, high + 1, 0, -70, 70))
    contents = Contents("numbers", numbers=tuple(elements[place % len(elements)] for place in range(count)))
    source = scope.new_input(tensor.dtype, tensor.sizes, contents)
    hide(scope, source)
    return loose_call(scope, _CLAMP, (source, low, high), tensor.dtype, tensor.sizes, is_exact=True)
