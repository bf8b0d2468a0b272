"""Programs of calls that stand alone: samples of all operators, with elements that operators treat apart."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch

from exirkit.fuzz.generation.choices import Choices
from exirkit.fuzz.generation.method.building import Building
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Value
from exirkit.fuzz.generation.operators.samples import Sample, TensorSample, sampled_operators, samples_of
from exirkit.fuzz.programs import Contents, Method, Ref, Run

from .loose import loose_calls

_CALLS = (14, 22)
_RUNS = 5
_TURNS = 2**20
_SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0)
# Not the least of a dtype: divided by -1 it ends the process.
_GREAT = {torch.int64: 2**63 - 1, torch.int32: 2**31 - 1, torch.int16: 2**15 - 1, torch.int8: 127, torch.uint8: 255}

Numbers = tuple[float | int | bool, ...]


def _quarters(choices: Choices, dtype: torch.dtype, count: int) -> Numbers:
    """Return numbers as other programs have them."""
    if dtype == torch.bool:
        return tuple(choices.chance(0.5) for _ in range(count))
    if dtype.is_floating_point:
        return tuple(choices.integer(-12, 12) / 4 for _ in range(count))
    return tuple(choices.integer(0 if dtype == torch.uint8 else -4, 7) for _ in range(count))


def _equal(choices: Choices, dtype: torch.dtype, count: int) -> Numbers:
    """Return numbers many of which are equal."""
    few = _quarters(choices, dtype, 2)
    return tuple(choices.pick(few) for _ in range(count))


def _special(choices: Choices, dtype: torch.dtype, count: int) -> Numbers:
    """Return numbers of which some are not finite, or at the bounds of their dtype: one kind of them, or several."""
    made = list(_quarters(choices, dtype, count))
    if dtype == torch.bool:
        return tuple(made)
    great = _GREAT.get(dtype, 0)
    odd: tuple[Any, ...] = (
        _SPECIAL if dtype.is_floating_point else (great, 0, 1, 32, 64, great - 1, 0 if great == 255 else -great)
    )
    # NaN hides the most: it is among them more often.
    first = odd[:1] if choices.chance(0.4) else ()
    kinds = (*first, *choices.shuffled(odd))[: choices.pick((1, 1, 2, len(odd)))]
    for _ in range(min(count, choices.integer(1, max(1, count // 2)))):
        made[choices.integer(0, count - 1)] = min(choices.pick(kinds), great) if great else choices.pick(kinds)
    return tuple(made)


NUMBERS: Mapping[str, Callable[[Choices, torch.dtype, int], Numbers]] = {
    "plain": _quarters,
    "equal": _equal,
    "special": _special,
}
"""Kinds of elements that a tensor may have whose elements may be any."""

_KINDS = ("special", "plain", "special", "special", "equal")


@dataclass
class _Filled:
    """A tensor of a program, with its elements in each run."""

    value: Value
    runs: list[Contents] = field(default_factory=list)


def sampled_method(building: Building) -> tuple[Method, tuple[Run, ...]]:
    """Return a method that calls operators on inputs and stored tensors of their own, and its runs."""
    choices = building.choices
    allows = building.plan.policy.allows
    weights = {name: weight for name, weight in sampled_operators().items() if allows(name)}
    names, sums = list(weights), list(accumulate(weights.values()))
    places = (choices.turn(_TURNS) / _TURNS * sums[-1] for _ in range(choices.integer(*_CALLS)))
    chosen = [names[bisect_right(sums, place)] for place in places]
    return method_of(building, [_picked(choices, samples_of(name)) for name in chosen])


def _picked(choices: Choices, samples: Sequence[Sample]) -> Sample:
    """Return one of the calls of an operator, more often one of floats, or with a number that is zero."""
    return samples[choices.weighted(list(accumulate(map(_weight, samples))))]


def _weight(sample: Sample) -> int:
    has_floats = any(one.dtype.is_floating_point and one.is_free and 0 not in one.sizes for one in sample.tensors)
    numbers = (*sample.args, *sample.kwargs.values())
    has_zero = any(isinstance(one, int | float) and type(one) is not bool and one == 0 for one in numbers)
    return 1 + 2 * (has_floats and not sample.is_plain) + 2 * has_zero


def method_of(
    building: Building, samples: Sequence[Sample], kinds: Sequence[str] = _KINDS
) -> tuple[Method, tuple[Run, ...]]:
    """Return a method that makes the calls of some samples, and its runs.

    Args:
        building: The program.
        samples: Calls, each on tensors of its own.
        kinds: Of the elements, in `NUMBERS`; each run has any of them.
    """
    scope = Scope(building)
    filled: list[_Filled] = []
    for sample in samples:
        allowed = ("plain",) if sample.is_plain else kinds

        def made(tensor: TensorSample, chosen: Sequence[str] = allowed) -> Value:
            one = _tensor(scope, tensor, chosen)
            filled.append(one)
            return one.value

        called = sample.mapped(made)
        loose_calls(scope, sample.op, called.args, sample.results, tuple(called.kwargs.items()))
    outputs = tuple(Ref(name) for step in scope.steps for name in step.results if name is not None)
    runs = tuple(
        Run("forward", {}, {one.value.name: one.runs[number] for one in filled if one.value.source == "input"})
        for number in range(_RUNS)
    )
    return Method("forward", tuple(scope.inputs), tuple(scope.steps), outputs, ()), runs


def _tensor(scope: Scope, tensor: TensorSample, kinds: Sequence[str]) -> _Filled:
    choices, building = scope.choices, scope.building
    count = math.prod(tensor.sizes)
    is_image = len(tensor.sizes) == 4 and count > 0 and choices.chance(0.15)
    layout: Any = "channels_last" if is_image else "dense"

    def contents() -> Contents:
        draw = NUMBERS[choices.pick(kinds)]
        numbers = draw(choices, tensor.dtype, count) if tensor.is_free else tensor.numbers
        return Contents("numbers", numbers=numbers, layout=layout)

    if scope.inputs and choices.chance(0.25):
        stored = building.store(
            choices.pick(("parameter", "constant", "buffer")), tensor.dtype, tensor.sizes, contents()
        )
        return _Filled(stored)
    runs = [contents() for _ in range(_RUNS)]
    return _Filled(scope.new_input(tensor.dtype, tensor.sizes, runs[0]), runs)
