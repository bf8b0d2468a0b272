"""Programs of calls that stand alone: samples of all operators, with elements that operators treat apart."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
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
_FOCUSED = 3.0
_SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0)

Numbers = tuple[float | int | bool, ...]


def _quarters(choices: Choices, dtype: torch.dtype, count: int) -> Numbers:
    """Return numbers as other programs have them."""
    if dtype == torch.bool:
        return tuple(choices.chance(0.5) for _ in range(count))
    if dtype.is_floating_point:
        return tuple(choices.integer(-12, 12) / 4 for _ in range(count))
    return tuple(choices.integer(0 if dtype == torch.uint8 else -4, 7) for _ in range(count))


def _equal(choices: Choices, dtype: torch.dtype, count: int) -> Numbers:
    """Return numbers many of which are equal, all of them at times, or zero: a matrix of them has no inverse."""
    few = _quarters(choices, dtype, choices.pick((1, 2, 2)))
    if choices.chance(0.3):
        few = (*few, False if dtype == torch.bool else 0.0 if dtype.is_floating_point else 0)
    return tuple(choices.pick(few) for _ in range(count))


def _special(choices: Choices, dtype: torch.dtype, count: int) -> Numbers:
    """Return numbers of which some are not finite, or at the bounds of their dtype: one kind of them, or several."""
    made = list(_quarters(choices, dtype, count))
    if dtype == torch.bool:
        return tuple(made)
    odd: Sequence[float] = _SPECIAL
    if not dtype.is_floating_point:
        # Not the least of a dtype: divided by -1 it ends the process.
        most = torch.iinfo(dtype).max
        odd = (most, 0, 1, 32, 64, most - 1, max(-most, torch.iinfo(dtype).min))
    # NaN hides the most: it is among them more often.
    first = odd[:1] if choices.chance(0.4) else ()
    kinds = (*first, *choices.shuffled(odd))[: choices.pick((1, 1, 2, len(odd)))]
    for _ in range(min(count, choices.integer(1, max(1, count // 2)))):
        made[choices.integer(0, count - 1)] = choices.pick(kinds)
    return tuple(made)


NUMBERS: Mapping[str, Callable[[Choices, torch.dtype, int], Numbers]] = {
    "plain": _quarters,
    "equal": _equal,
    "special": _special,
}
"""Kinds of elements that a tensor may have whose elements may be any."""

_KINDS = ("special", "plain", "special", "special", "equal")


def sampled_method(building: Building) -> tuple[Method, tuple[Run, ...]]:
    """Return a method that calls operators on inputs and stored tensors of their own, and its runs."""
    choices = building.choices
    allows = building.plan.policy.allows
    weights = {name: weight for name, weight in sampled_operators().items() if allows(name)}
    if focused := building.plan.policy.focused_operators & weights.keys():
        # More often than all others together.
        extra = _FOCUSED * sum(weights.values()) / len(focused)
        weights |= {name: weights[name] + extra for name in sorted(focused)}
    names, sums = list(weights), list(accumulate(weights.values()))
    places = (choices.turn(_TURNS) / _TURNS * sums[-1] for _ in range(choices.integer(*_CALLS)))
    chosen = [names[bisect_right(sums, place)] for place in places]
    return method_of(building, [samples_of(name)[choices.weighted(_sums(name))] for name in chosen])


@cache
def _sums(op: str) -> Sequence[float]:
    """Return the sums of the weights of an operator's calls."""
    return tuple(accumulate(map(_weight, samples_of(op))))


def _weight(sample: Sample) -> float:
    """Return how often a call is chosen: more often one of floats, with a number that is zero, or on rare ways."""
    has_floats = any(one.dtype.is_floating_point and one.is_free and 0 not in one.sizes for one in sample.tensors)
    numbers = (*sample.args, *sample.kwargs.values())
    has_zero = any(isinstance(one, int | float) and type(one) is not bool and one == 0 for one in numbers)
    return sample.interest * (1 + 2 * (has_floats and not sample.is_plain) + 2 * has_zero)


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
    inputs: list[dict[str, Contents]] = [{} for _ in range(_RUNS)]
    for sample in samples:
        allowed = ("plain",) if sample.is_plain else kinds

        called = sample.mapped(partial(_tensor, scope, inputs, allowed))
        kwargs = tuple(called.kwargs.items())
        loose_calls(scope, sample.op, called.args, sample.results, kwargs, is_decided=not _rounds_otherwise(sample))
    outputs = tuple(Ref(name) for step in scope.steps for name in step.results if name is not None)
    method = Method("forward", tuple(scope.inputs), tuple(scope.steps), outputs, ())
    return method, tuple(Run("forward", {}, one) for one in inputs)


def _rounds_otherwise(sample: Sample) -> bool:
    """Return whether kernels compute zero points in float32 where eager torch has floats of 16 bits."""
    is_narrow = any(one.dtype in (torch.float16, torch.bfloat16) for one in sample.tensors)
    return is_narrow and ".choose_qparams" in sample.op


def _tensor(scope: Scope, inputs: Sequence[dict[str, Contents]], kinds: Sequence[str], tensor: TensorSample) -> Value:
    """Return a new input, whose elements in each run are noted, or a stored tensor."""
    choices, building = scope.choices, scope.building
    count = math.prod(tensor.sizes)
    is_image = len(tensor.sizes) == 4 and count > 0 and choices.chance(0.15)
    layout: Any = "channels_last" if is_image else "dense"

    def contents() -> Contents:
        draw = NUMBERS[choices.pick(kinds)]
        numbers = draw(choices, tensor.dtype, count) if tensor.is_free else tensor.numbers
        return Contents("numbers", numbers=numbers, layout=layout)

    if scope.inputs and choices.chance(0.25):
        kind = choices.pick(("parameter", "constant", "buffer"))
        return building.store(kind, tensor.dtype, tensor.sizes, contents())
    drawn = [contents() for _ in inputs]
    value = scope.new_input(tensor.dtype, tensor.sizes, drawn[0])
    for run, one in zip(inputs, drawn, strict=True):
        run[value.name] = one
    return value
