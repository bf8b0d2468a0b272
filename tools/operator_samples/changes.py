"""Calls that differ from recorded ones: in one argument, in two, or in the sizes of their tensors."""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import torch

from exirkit.fuzz.generation.operators.samples import Sample, TensorSample
from exirkit.fuzz.programs.inference import operator_named

LEFT_OUT_ARGUMENTS = frozenset({"device", "pin_memory", "generator"})

_LONG, _MOST_OF_LARGER = 17, 250
"""Elements along a dim of a larger call, at least, since sorts of fewer keep equal elements in order; and in all."""
# They leave open which of equal elements comes first, and choose the first one among few; of many matrices one is
# singular, or nearly.
_OPEN_WHERE_LONG = tuple(
    f"aten.{name}" for name in ("sort", "argsort", "topk", "mode", "median", "nanmedian", "linalg_")
)
_NUMBERS: Sequence[float] = (0, -0.0, 1, 3, -1, 0.5, math.inf, -math.inf, math.nan)
# No double is that number.
_GREAT_NUMBER = 2**53 + 1
_OTHER_DTYPES: Mapping[torch.dtype, Sequence[torch.dtype]] = {
    torch.float32: (torch.float16, torch.bfloat16, torch.float64),
    torch.int64: (torch.int32, torch.int8, torch.uint8, torch.int16),
}


def changed_calls(found: Mapping[str, Mapping[str, Sample]]) -> dict[str, list[list[Sample]]]:
    """Return calls that differ from others in one argument by operator, in groups by the argument."""
    kinds: dict[str, dict[str, dict[str, Sample]]] = defaultdict(lambda: defaultdict(dict))
    for name in sorted(found):
        for one in found[name].values():
            for kind, other in changed(one):
                if other.pattern not in found.get(other.op, {}):
                    kinds[other.op][kind].setdefault(other.pattern, other)
    return {name: [in_order(group.values()) for _, group in sorted(groups.items())] for name, groups in kinds.items()}


def twice_changed_calls(changes: Mapping[str, Sequence[Sequence[Sample]]]) -> dict[str, list[list[Sample]]]:
    """Return calls that differ from others in two arguments by operator, in groups by the second of these."""
    kinds: dict[str, dict[str, dict[str, Sample]]] = defaultdict(lambda: defaultdict(dict))
    for name, groups in changes.items():
        for one in (group[0] for group in groups if group):
            for kind, other in changed(one):
                if other.op == name:
                    kinds[name][kind].setdefault(other.pattern, other)
    return {name: [in_order(group.values()) for _, group in sorted(groups.items())] for name, groups in kinds.items()}


def in_order(samples: Iterable[Sample]) -> list[Sample]:
    """Return calls, those of few elements last, in an order that depends on nothing but the calls themselves."""
    return sorted(samples, key=lambda each: (_is_tiny(each), -len(each.kwargs), zlib.crc32(each.pattern.encode())))


def changed(sample: Sample) -> Iterator[tuple[str, Sample]]:
    """Yield calls that differ in one argument, and what kind of argument that is."""
    yield from ((f"number {_of_number(one.args[1])}", one) for one in _with_numbers(sample))
    operator = operator_named(sample.op)
    assert operator is not None
    for place, parameter in enumerate(operator._schema.arguments):
        name = parameter.name
        given = sample.args[place] if place < len(sample.args) else sample.kwargs.get(name, parameter.default_value)
        if name in LEFT_OUT_ARGUMENTS or isinstance(given, str):
            continue
        is_whole = all(one.dtype == torch.int64 for one in sample.tensors)
        options = list(_options(str(parameter.type), given, is_whole))
        if isinstance(given, list | tuple) and isinstance(parameter.default_value, list) and given:
            options.append(("left out", tuple(parameter.default_value)))
        for what, option in options:
            if place < len(sample.args):
                made = replace(sample, args=(*sample.args[:place], option, *sample.args[place + 1 :]))
            else:
                made = replace(sample, kwargs={**sample.kwargs, name: option})
            yield f"{name} {what}", made
    yield from (("empty", one) for one in _emptied(sample))
    yield from (("longer", one) for one in _lengthened(sample))
    for dtype, others in _OTHER_DTYPES.items():
        if any(one.dtype == dtype for one in sample.tensors):
            for other in others:
                yield "dtype", sample.mapped(partial(_converted, dtype=dtype, other=other))


def _with_numbers(sample: Sample) -> Iterator[Sample]:
    """Yield calls with a number instead of the second tensor."""
    name = sample.op.removesuffix("Tensor") + "Scalar"
    if sample.op.endswith(".Tensor") and operator_named(name) is not None and len(sample.args) == 2:
        yield from (replace(sample, op=name, args=(sample.args[0], number)) for number in _NUMBERS)


def _options(kind: str, given: Any, is_whole: bool) -> Iterator[tuple[str, Any]]:
    """Yield other values of an argument, and in what they differ."""
    if isinstance(given, list | tuple):
        yield from _lists(tuple(given))
    elif isinstance(given, TensorSample):
        yield from [("none", None)] if kind == "Optional[Tensor]" else []
    elif kind in ("number", "float", "Optional[number]", "Optional[float]"):
        numbers = (*_NUMBERS, _GREAT_NUMBER) if is_whole and "number" in kind else _NUMBERS
        others = (one for one in numbers if type(one) is not type(given) or str(one) != str(given))
        yield from ((_of_number(one), one) for one in others)
    elif kind in ("int", "SymInt", "Optional[int]") and isinstance(given, int):
        yield from ((_of_number(one), one) for one in ((-1, -2, 0, 1) if given >= 0 else (0, 1)))
    elif kind == "bool":
        yield "", not given


def _of_number(number: float) -> str:
    """Return what numbers are alike: zeros of either sign, what is not finite and what no double is stand alone."""
    return repr(number) if number in (0, _GREAT_NUMBER) or not math.isfinite(number) else ""


def _lists(given: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield lists with one number changed, with one less, or in another order, and in what they differ."""
    if not all(type(one) in (int, bool) for one in given):
        return
    for place, one in enumerate(given):
        others = (not one,) if isinstance(one, bool) else (one + 1, one - 1, one - len(given))
        for step, other in enumerate(others):
            yield f"{place} {step}", (*given[:place], other, *given[place + 1 :])
    if len(given) > 1:
        yield "without its last", given[:-1]
        if len(set(given)) > 1:
            yield "turned round", given[::-1]


def _converted(one: TensorSample, dtype: torch.dtype, other: torch.dtype) -> TensorSample:
    return replace(one, dtype=other) if one.dtype == dtype else one


def _emptied(sample: Sample) -> Iterator[Sample]:
    """Yield calls without elements along a dim: of one tensor, and of all tensors that have a size."""
    tensors = sample.tensors
    for place, tensor in enumerate(tensors):
        for dim in range(len(tensor.sizes)):
            sizes = (*tensor.sizes[:dim], 0, *tensor.sizes[dim + 1 :])
            yield with_tensor(sample, place, partial(replace, sizes=sizes, numbers=()))
    for size in sorted({size for one in tensors for size in one.sizes if size > 1}):
        yield sample.mapped(partial(_without_elements, size=size))


def _lengthened(sample: Sample) -> Iterator[Sample]:
    """Yield calls with one more tensor in a list, which has no elements along one dim."""
    for place, given in enumerate(sample.args):
        if isinstance(given, list | tuple) and len(given) > 1 and all(isinstance(one, TensorSample) for one in given):
            for dim in range(len(given[0].sizes)):
                sizes = (*given[0].sizes[:dim], 0, *given[0].sizes[dim + 1 :])
                longer = (*given, replace(given[0], sizes=sizes, numbers=()))
                yield replace(sample, args=(*sample.args[:place], longer, *sample.args[place + 1 :]))


def enlarged(sample: Sample) -> Iterator[Sample]:
    """Yield calls on tensors that are longer along a dim, all those that have as many elements there."""
    if sample.op.startswith(_OPEN_WHERE_LONG) and not sample.kwargs.get("stable"):
        return
    longest = max((one.sizes for one in sample.tensors), key=len)
    for dim in range(-1, -len(longest) - 1, -1):
        if longest[dim] > 1 and 0 not in longest:
            made = sample.mapped(partial(_repeated, dim=dim, size=longest[dim], times=-(-_LONG // longest[dim])))
            if all(math.prod(one.sizes) <= _MOST_OF_LARGER for one in made.tensors):
                yield made


def _repeated(one: TensorSample, dim: int, size: int, times: int) -> TensorSample:
    if len(one.sizes) < -dim or one.sizes[dim] != size:
        return one
    sizes = [each * (times if place == dim + len(one.sizes) else 1) for place, each in enumerate(one.sizes)]
    return replace(one, sizes=tuple(sizes), numbers=one.numbers * times)


def _without_elements(one: TensorSample, size: int) -> TensorSample:
    if size not in one.sizes:
        return one
    return replace(one, sizes=tuple(0 if each == size else each for each in one.sizes), numbers=())


def _is_tiny(sample: Sample) -> bool:
    counts = [math.prod(one.sizes) for one in sample.tensors]
    return max(counts) < 2 or 0 in counts


def with_tensor(sample: Sample, place: int, change: Callable[[TensorSample], TensorSample]) -> Sample:
    numbers = count()
    return sample.mapped(lambda one: change(one) if next(numbers) == place else one)
