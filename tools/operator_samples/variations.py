"""Calls that differ from recorded ones in anything that eager PyTorch takes: arguments, sizes, dims and dtypes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from random import Random
from typing import Any

import torch

from exirkit.fuzz.generation.operators.samples import Sample, TensorSample

from .changes import changed, with_tensor

_MOST_ELEMENTS = 144
_STEPS = (1, 1, 2, 2, 3)
"""How many changes a variation has."""
_DULL = 0.85
"""How many of the calls with a tensor without elements are left out: nearly all calls can have one."""
_SIZES = (1, 1, 2, 3, 4, 7)
_INTEGERS = (-3, -2, -1, 0, 1, 2, 3, 4)
_DTYPES = (torch.float32, torch.float16, torch.float64, torch.int32, torch.int64, torch.int8, torch.uint8, torch.bool)


def variations(samples: Sequence[Sample], attempts: int) -> Iterator[Sample]:
    """Yield calls that differ from some of one operator in one to three respects, each once.

    Args:
        samples: Calls of one operator; their tensors have elements.
        attempts: How many are tried; those that are too large, or were met before, are left out.
    """
    random = Random(samples[0].op)
    met = {one.pattern for one in samples}
    for _ in range(attempts):
        made = random.choice(samples)
        for _ in range(random.choice(_STEPS)):
            (change,) = random.choices(_KINDS, _WEIGHTS)
            made = change(made, random)
        sizes = [math.prod(one.sizes) for one in made.tensors]
        is_dull = 0 in sizes and random.random() < _DULL
        if sizes and max(sizes) <= _MOST_ELEMENTS and not is_dull and made.pattern not in met:
            met.add(made.pattern)
            yield made


def _another_argument(sample: Sample, random: Random) -> Sample:
    """Return a call with one argument changed; each argument is as likely as any other, however many values it has."""
    groups: dict[str, list[Sample]] = defaultdict(list)
    for kind, other in islice(changed(sample), 400):
        if other.op == sample.op:
            groups[kind.partition(" ")[0]].append(other)
    return random.choice(groups[random.choice(sorted(groups))]) if groups else sample


def _other_integers(sample: Sample, random: Random) -> Sample:
    """Return a call with one of its integers replaced, alone or in a list, or with all of a list."""
    places: list[tuple[bool, Any, int | None]] = []
    for is_named, each in ((False, enumerate(sample.args)), (True, sample.kwargs.items())):
        for key, given in each:
            if type(given) is int:
                places.append((is_named, key, None))
            elif isinstance(given, list | tuple) and given and all(type(one) is int for one in given):
                places += [(is_named, key, place) for place in (*range(len(given)), -1)]
    if not places:
        return sample
    is_named, key, place = random.choice(places)
    given = sample.kwargs[key] if is_named else sample.args[key]
    if place is None:
        other: Any = random.choice(_INTEGERS)
    else:
        number = random.choice(_INTEGERS)
        other = tuple(number if place in (each, -1) else one for each, one in enumerate(given))
    if is_named:
        return replace(sample, kwargs={**sample.kwargs, key: other})
    return replace(sample, args=(*sample.args[:key], other, *sample.args[key + 1 :]))


def _other_size(sample: Sample, random: Random) -> Sample:
    """Return a call with another size wherever tensors have one, in all of them or in one of them."""
    sizes = sorted({size for one in sample.tensors for size in one.sizes})
    if not sizes:
        return sample
    size = random.choice(sizes)
    change = partial(_resized, size=size, other=random.choice((*_SIZES, size + 1, max(size - 1, 0))))
    if random.random() < 0.7:
        return sample.mapped(change)
    return with_tensor(sample, random.randrange(len(sample.tensors)), change)


def _other_dims(sample: Sample, random: Random) -> Sample:
    """Return a call on tensors without their first dim, or with one more: all of them, or one of them."""
    change: Callable[[TensorSample], TensorSample]
    if random.random() < 0.5:
        change = _without_first_dim
    else:
        size = random.choice((1, 2, 3))
        change = partial(_with_first_dim, size=size)
    if random.random() < 0.5:
        return sample.mapped(change)
    return with_tensor(sample, random.randrange(len(sample.tensors)), change)


def _other_dtype(sample: Sample, random: Random) -> Sample:
    """Return a call on another dtype wherever tensors have one, or in one of them."""
    tensor = random.choice(sample.tensors)
    other = random.choice(_DTYPES)
    if random.random() < 0.5:
        return sample.mapped(lambda one: _converted(one, other) if one.dtype == tensor.dtype else one)
    place = random.randrange(len(sample.tensors))
    return with_tensor(sample, place, lambda one: _converted(one, other))


_KINDS = (_another_argument, _other_integers, _other_size, _other_dims, _other_dtype)
_WEIGHTS = (3, 1, 2, 1, 1)


def _converted(one: TensorSample, dtype: torch.dtype) -> TensorSample:
    """Return a tensor of another dtype, with numbers that this has."""
    if dtype == torch.bool:
        return replace(one, dtype=dtype, numbers=tuple(bool(each) for each in one.numbers))
    if dtype.is_floating_point:
        return replace(one, dtype=dtype, numbers=tuple(float(each) for each in one.numbers))
    limits = torch.iinfo(dtype)
    whole = (int(each) if math.isfinite(each) else 0 for each in one.numbers)
    fitting = (each if limits.min <= each <= limits.max else abs(each) % (limits.max + 1) for each in whole)
    return replace(one, dtype=dtype, numbers=tuple(fitting))


def _resized(one: TensorSample, size: int, other: int) -> TensorSample:
    return _of_sizes(one, tuple(other if each == size else each for each in one.sizes))


def _without_first_dim(one: TensorSample) -> TensorSample:
    return _of_sizes(one, one.sizes[1:]) if one.sizes else one


def _with_first_dim(one: TensorSample, size: int) -> TensorSample:
    return _of_sizes(one, (size, *one.sizes))


def _of_sizes(one: TensorSample, sizes: tuple[int, ...]) -> TensorSample:
    """Return a tensor of other sizes with the elements of one, from the first one on and again."""
    count = math.prod(sizes)
    had = one.numbers or (0,)
    return replace(one, sizes=sizes, numbers=tuple(had[place % len(had)] for place in range(count)))
