"""From calls that a kernel takes and calls that it does not take to conditions that tell them apart.

A condition is kept only if no call that the kernel took breaks it. Of those, the ones that explain most rejected calls
are chosen one after the other; what no single condition explains is looked for among pairs joined by `or`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from exirkit.verifiers import UNKNOWN, Fact, TensorFacts, read_condition

LEAST_EVIDENCE = 4
"""Rejected calls that a condition has to explain, beyond those that others explain."""
_LEAST_SHARE = 0.4
_MOST_PARTS = 90
# What tells cases of an operator apart. Pairs of anything else fit what was drawn, not the kernel.
_GUARDS = ("given(", "not ", "rank(", "length(", "numel(", "outer(", "flag(")
_MOST_CONDITIONS = 8


@dataclass(frozen=True)
class Tried:
    """A call that was run.

    Attributes:
        call: What the kernel was given.
        taken: Whether it took it.
    """

    call: Mapping[str, Fact]
    taken: bool


@dataclass(frozen=True)
class Inferred:
    """What was found out about a kernel.

    Attributes:
        conditions: Which calls have to meet.
        unexplained: Rejected calls that meet them all.
    """

    conditions: tuple[str, ...]
    unexplained: tuple[Tried, ...]


def infer(tried: Sequence[Tried]) -> Inferred:
    """Return conditions that all taken calls meet and that as many rejected ones as possible break."""
    broken: dict[str, frozenset[int]] = {}
    refuted: dict[str, frozenset[int]] = {}
    for text in dict.fromkeys(_candidates(tried)):
        condition = read_condition(text)
        failing = frozenset(place for place, one in enumerate(tried) if condition.holds(one.call) is False)
        rejected = frozenset(place for place in failing if not tried[place].taken)
        if rejected:
            broken[text], refuted[text] = rejected, failing - rejected
    left = frozenset(place for place, one in enumerate(tried) if not one.taken)
    sound = {text: places for text, places in broken.items() if not refuted[text]}
    chosen, left = _chosen(sound, left, LEAST_EVIDENCE)
    if left:
        # What explains a small part of what is left fits what was drawn, not the kernel.
        least = max(2 * LEAST_EVIDENCE, int(_LEAST_SHARE * len(left)))
        more, left = _chosen(_pairs(broken, refuted, left), left, least)
        chosen += more
    return Inferred(tuple(chosen), tuple(tried[place] for place in sorted(left)))


def _chosen(sound: Mapping[str, frozenset[int]], left: frozenset[int], least: int) -> tuple[list[str], frozenset[int]]:
    chosen: list[str] = []
    while left and sound and len(chosen) < _MOST_CONDITIONS:
        # Of equals the first: weak ones come before strong ones.
        best = max(sound, key=lambda text: len(sound[text] & left))
        if len(sound[best] & left) < least:
            break
        chosen.append(best)
        left -= sound[best]
    return chosen, left


def _pairs(
    broken: Mapping[str, frozenset[int]], refuted: Mapping[str, frozenset[int]], left: frozenset[int]
) -> dict[str, frozenset[int]]:
    """Return what holds of all taken calls if two conditions are joined by `or`."""
    # Kernels that write nothing check little: that explains what any other case would explain as well.
    parts = sorted(
        (text for text in broken if broken[text] & left),
        key=lambda text: (
            not (text.startswith(("numel(", "outer(")) or _is_size_of_zero(text)),
            -len(broken[text] & left),
        ),
    )
    found: dict[str, frozenset[int]] = {}
    for one, other in itertools.combinations(parts[:_MOST_PARTS], 2):
        is_guarded = any(part.startswith(_GUARDS) or _is_size_of_zero(part) for part in (one, other))
        if is_guarded and not refuted[one] & refuted[other] and (places := broken[one] & broken[other]):
            found[f"{one} or {other}"] = places
    return found


def _is_size_of_zero(text: str) -> bool:
    return text.startswith("size(") and text.endswith(" == 0")


def _candidates(tried: Sequence[Tried]) -> Iterator[str]:
    calls = [one.call for one in tried]
    taken = [one.call for one in tried if one.taken]
    names = list(calls[0]) if calls else []
    tensors = [name for name in names if any(isinstance(call[name], TensorFacts) for call in calls)]
    several = [name for name in names if any(_is_tensors(call[name]) for call in calls)]
    for name in names:
        if name in tensors:
            yield from _of_tensor(name, calls, taken)
        elif name in several:
            yield from (f"length({name}) >= 1", f"length({name}) <= 1")
        elif name.startswith("dim"):
            yield from _of_dims(name, calls, taken, tensors)
        else:
            yield from _of_argument(name, calls, taken, tensors)
        if any(call[name] is None for call in calls):
            yield from (f"given({name})", f"not given({name})")
        if any(_varies(call[name]) for call in calls):
            yield f"fixed({name})"
    yield from _of_several([*tensors, *several], tensors)


def _varies(fact: Fact) -> bool:
    if isinstance(fact, TensorFacts):
        return any(size is UNKNOWN for size in fact.sizes)
    return isinstance(fact, tuple) and any(map(_varies, fact))


def _is_tensors(fact: Fact) -> bool:
    return isinstance(fact, tuple) and any(isinstance(one, TensorFacts) for one in fact)


def _of_several(every: Sequence[str], single: Sequence[str]) -> Iterator[str]:
    groups = [*((one,) for one in every), *itertools.combinations(every, 2)]
    groups += [tuple(every[:size]) for size in range(3, len(every) + 1)]
    for group in dict.fromkeys(groups):
        words = ", ".join(group)
        if len(group) > 1:
            yield f"same_order({words})"
            yield f"same_shape({words})"
            yield f"same_dtype({words})"
        yield f"one_layout({words})"
        yield f"contiguous({words})"
    for one, other in itertools.permutations(single, 2):
        yield f"rank({one}) <= rank({other})"
    yield from (f"rank({one}) == rank({other})" for one, other in itertools.combinations(single, 2))


def _of_tensor(name: str, calls: Sequence[Mapping[str, Fact]], taken: Sequence[Mapping[str, Fact]]) -> Iterator[str]:
    ranks = _values(taken, lambda call: _rank(call[name]))
    if ranks:
        yield f"rank({name}) >= 1"
        yield f"rank({name}) <= {ranks[-1]}"
        yield f"rank({name}) >= {ranks[0]}"
        if 1 < len(ranks) < 5:
            yield f"rank({name}) in {list(ranks)}"
        yield from (f"rank({name}) == {one}" for one in ranks)
    yield from (f"numel({name}) > 0", f"numel({name}) == 0")
    for dim in (-1, -2, 0, 1):
        yield f"size({name}, {dim}) > 0"
    dtypes = sorted({fact.dtype for call in taken if isinstance(fact := call[name], TensorFacts)})
    tried = {fact.dtype for call in calls if isinstance(fact := call[name], TensorFacts)}
    if dtypes and set(dtypes) != tried:
        yield f"dtype({name}) in {dtypes}" if len(dtypes) > 1 else f"dtype({name}) == '{dtypes[0]}'"


def _rank(fact: Fact) -> int | None:
    return len(fact.sizes) if isinstance(fact, TensorFacts) else None


def _of_argument(
    name: str, calls: Sequence[Mapping[str, Fact]], taken: Sequence[Mapping[str, Fact]], tensors: Sequence[str]
) -> Iterator[str]:
    facts = [call[name] for call in calls]
    if any(isinstance(fact, tuple) for fact in facts):
        yield from _of_list(name, taken, tensors)
    elif any(isinstance(fact, str) for fact in facts):
        words = sorted({fact for call in taken if isinstance(fact := call[name], str)})
        yield f"{name} in {words}"
    elif all(isinstance(fact, bool) for fact in facts if fact is not None):
        yield from (f"not {name}", f"flag({name})")
    elif any(isinstance(fact, int | float) for fact in facts):
        yield from (f"{name} != 0", f"{name} >= 0", f"{name} > 0", f"{name} <= 0", f"{name} == 0", f"{name} == 1")
        yield from (f"{name} <= 1", f"integral({name})")
        whole = sorted({fact for call in taken if isinstance(fact := call[name], int) and not isinstance(fact, bool)})
        if all(isinstance(fact, int) for fact in facts if fact is not None):
            # Of a number that counts something, larger ones than those tried may be taken as well.
            if 1 < len(whole) < 5 and name.endswith("mode"):
                yield f"{name} in {whole}"
            for tensor in tensors if not name.startswith("dim") else ():
                yield from (f"size({tensor}, 0) == {name}", f"size({tensor}, 1) == {name}")


def _of_dims(
    name: str, calls: Sequence[Mapping[str, Fact]], taken: Sequence[Mapping[str, Fact]], tensors: Sequence[str]
) -> Iterator[str]:
    """Yield conditions on one dim of a tensor, or on several."""
    yield from _of_argument(name, calls, taken, tensors)
    if not any(isinstance(call[name], tuple) for call in calls):
        for tensor in tensors:
            yield from (f"{name} < rank({tensor})", f"{name} <= rank({tensor})", f"size({tensor}, {name}) > 0")
            yield f"size({tensor}, {name}) == 0"
            yield f"outer({tensor}, {name}) == 0"


def _of_list(name: str, taken: Sequence[Mapping[str, Fact]], tensors: Sequence[str]) -> Iterator[str]:
    lengths = _values(taken, lambda call: len(fact) if isinstance(fact := call[name], tuple) else None)
    if lengths:
        yield f"length({name}) >= {lengths[0]}"
        yield f"length({name}) <= {lengths[-1]}"
        if 1 < len(lengths) < 4:
            yield f"length({name}) in {list(lengths)}"
        yield from (f"length({name}) == {one}" for one in lengths[:3])
    yield from (f"least({name}) >= -1", f"least({name}) >= 0", f"least({name}) >= 1")
    yield from (f"greatest({name}) <= 1", f"greatest({name}) <= 0", f"least({name}) == greatest({name})")
    for tensor in tensors:
        yield f"length({name}) == rank({tensor})"
        yield f"length({name}) <= rank({tensor})"
        yield f"length({name}) >= rank({tensor})"
        yield f"length({name}) <= 2 * rank({tensor})"


def _values(calls: Iterable[Mapping[str, Fact]], of: object) -> list[int]:
    assert callable(of)
    return sorted({value for call in calls if (value := of(call)) is not None})
