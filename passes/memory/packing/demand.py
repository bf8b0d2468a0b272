"""What one arena has to hold, as lists of integers, and the bounds that follow from it.

Steps are inclusive on both ends; sizes are in bytes and rounded up to the alignment that all ranges share, so that
every sum of sizes is an aligned offset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from exirkit.passes.memory.problem import Alternatives

# More bodies than this and ranges of alternatives are kept apart, because the table of pairs gets too large.
_MAX_BODIES = 4000


@dataclass(slots=True)
class Demand:
    """What one arena has to hold; entry i of each list describes range i.

    Attributes:
        first: First step that needs the range.
        last: Last step that needs it.
        size: Bytes, more than 0.
        pinned: Offset in bytes of each range that must lie in one place.
        alignment: What the offset of each range is a multiple of, where that is not the same for all; else empty.
        body: The body of each range, where there are alternatives; else empty.
        alternatives: Which bodies never run together; None if there are none.
        official_size: Size of each range by which the official planner orders ranges of one size; empty if not known.
    """

    first: list[int]
    last: list[int]
    size: list[int]
    pinned: dict[int, int] = field(default_factory=dict)
    alignment: list[int] = field(default_factory=list)
    body: list[int] = field(default_factory=list)
    alternatives: Alternatives | None = None
    official_size: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.size)

    def restricted(self, indices: Sequence[int]) -> Demand:
        """Return the demand of some of the ranges, none of them pinned."""
        return Demand(
            [self.first[index] for index in indices],
            [self.last[index] for index in indices],
            [self.size[index] for index in indices],
            {},
            [self.alignment[index] for index in indices] if self.alignment else [],
            [self.body[index] for index in indices] if self.body else [],
            self.alternatives,
        )

    def aligned(self, index: int, offset: int) -> int:
        """Return the first offset from here on at which a range may lie."""
        return offset + -offset % self.alignment[index] if self.alignment else offset

    def excluded_bodies(self) -> npt.NDArray[np.bool_] | None:
        """Return for each pair of bodies whether they are alternatives; None if there are none, or far too many."""
        if self.alternatives is None or len(self.alternatives.excluded) > _MAX_BODIES:
            return None
        count = len(self.alternatives.excluded)
        table = np.zeros((count, count), dtype=np.bool_)
        for body, mask in enumerate(self.alternatives.excluded):
            while mask:
                lowest = mask & -mask
                table[body, lowest.bit_length() - 1] = True
                mask ^= lowest
        return table


@dataclass(slots=True)
class Placement:
    """Offset in bytes of each range of a demand, and the size in bytes of an arena that holds them."""

    offsets: list[int]
    height: int


def height_of(demand: Demand, offsets: Sequence[int]) -> int:
    """Return the bytes of an arena that holds the ranges at their offsets."""
    return max((offset + size for offset, size in zip(offsets, demand.size, strict=True)), default=0)


def lower_bound(demand: Demand) -> int:
    """Return bytes that every placement needs: the most live at once, and the end of what is pinned."""
    pinned_end = max((offset + demand.size[index] for index, offset in demand.pinned.items()), default=0)
    return max(peak_bytes(demand), pinned_end)


def peak_bytes(demand: Demand) -> int:
    """Return the most bytes that are needed at one step of one run: no arena can be smaller."""
    if demand.alternatives is not None:
        return _peak_of_runs(demand, demand.alternatives)
    changes = sorted(
        [(first, size) for first, size in zip(demand.first, demand.size, strict=True)]
        + [(last + 1, -size) for last, size in zip(demand.last, demand.size, strict=True)]
    )
    peak = live = 0
    for _, change in changes:
        live += change
        peak = max(peak, live)
    return peak


def peak_step(demand: Demand) -> int:
    """Return the first step at which most bytes are needed, as if alternatives ran one after another."""
    changes: dict[int, int] = {}
    for first, last, size in zip(demand.first, demand.last, demand.size, strict=True):
        changes[first] = changes.get(first, 0) + size
        changes[last + 1] = changes.get(last + 1, 0) - size
    step = peak = live = 0
    for at in sorted(changes):
        live += changes[at]
        if live > peak:
            step, peak = at, live
    return step


def degrees(demand: Demand) -> list[int]:
    """Return, for each range, how many others are needed at some step at which it is needed."""
    starts, ends = sorted(demand.first), sorted(demand.last)
    return [
        bisect_right(starts, last) - bisect_left(ends, first) - 1
        for first, last in zip(demand.first, demand.last, strict=True)
    ]


def neighbours(demand: Demand) -> list[list[int]]:
    """Return, for each range, those that are in its way: needed at some step with it, in one run."""
    found: list[list[int]] = [[] for _ in range(len(demand))]
    live: list[int] = []
    last = demand.last
    excluded = None if demand.alternatives is None else demand.alternatives.excluded
    for index in sorted(range(len(demand)), key=demand.first.__getitem__):
        start = demand.first[index]
        live = [other for other in live if last[other] >= start]
        met = live
        if excluded is not None and (mask := excluded[demand.body[index]]):
            met = [other for other in live if not mask >> demand.body[other] & 1]
        found[index].extend(met)
        for other in met:
            found[other].append(index)
        live.append(index)
    return found


def _peak_of_runs(demand: Demand, alternatives: Alternatives) -> int:
    """Return the peak of the run that needs most, where of alternatives only one runs."""
    changes = sorted(
        [(first, size, body) for first, size, body in zip(demand.first, demand.size, demand.body, strict=True)]
        + [(last + 1, -size, body) for last, size, body in zip(demand.last, demand.size, demand.body, strict=True)]
    )
    groups, group_of, parent = alternatives.groups, alternatives.group_of, alternatives.parent
    need = [0] * len(parent)
    largest = [[0] * len(calls) for calls in groups]
    peak = 0
    for _, change, body in changes:
        while body >= 0:
            need[body] += change
            above = parent[body]
            if above < 0:
                break
            place = group_of[body]
            most = max(need[one] for one in groups[above][place])
            change, largest[above][place] = most - largest[above][place], most
            body = above
        peak = max(peak, need[0])
    return peak
