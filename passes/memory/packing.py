"""Packing of byte ranges that are needed for spans of steps: the arithmetic under the planning algorithms.

Everything here works on plain integers. Steps are inclusive on both ends; sizes are in bytes and already
rounded up to the alignment, so that every sum of sizes is an aligned offset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

# Lists of the ranges needed at the same time are kept if there are few, in relation to a walk over everything placed,
# and if they fit into memory (12 bytes for each pair).
_FEW_NEIGHBOURS = 48
_MAX_PAIRS = 5_000_000
# Neighbours from which array operations are faster than a loop.
_WORTH_AN_ARRAY = 64


@dataclass(slots=True)
class Demand:
    """What one arena has to hold; entry i of each list describes range i.

    Attributes:
        first: First step that needs the range.
        last: Last step that needs it.
        size: Bytes, more than 0.
        pinned: Offset in bytes of each range that must lie in one place.
    """

    first: list[int]
    last: list[int]
    size: list[int]
    pinned: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.size)


@dataclass(slots=True)
class Placement:
    """Offset in bytes of each range of a demand, and the size in bytes of an arena that holds them."""

    offsets: list[int]
    height: int


class Packer(Protocol):
    """Places the ranges of one demand, one after another in a given order."""

    def pack(self, order: Sequence[int], *, tight: bool = False) -> Placement:
        """Give each range the lowest free place, or with `tight` the smallest gap that is large enough."""

    def cost(self) -> int:
        """Estimate the microseconds of one packing."""


def peak_bytes(demand: Demand) -> int:
    """Return the most bytes that are needed at one step: no arena can be smaller."""
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
    """Return the first step at which most bytes are needed."""
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


def packer_for(demand: Demand) -> Packer:
    """Return the packer whose cost suits the demand; both kinds give the same placements."""
    pairs = sum(degrees(demand))
    if pairs <= max(_FEW_NEIGHBOURS * len(demand), min(len(demand) ** 2 // 8, _MAX_PAIRS)):
        return SparsePacker(demand)
    return DensePacker(demand)


class SparsePacker:
    """Keeps for each range the list of those that are needed at the same time."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._neighbours = _neighbours(demand)
        self._sizes = np.asarray(demand.size, dtype=np.int64)
        self._arrays = {
            index: np.asarray(others, dtype=np.int32)
            for index, others in enumerate(self._neighbours)
            if len(others) >= _WORTH_AN_ARRAY
        }

    def cost(self) -> int:
        """Estimate the microseconds of one packing."""
        return sum(2 + min(len(others) // 5, 15 + len(others) // 25) for others in self._neighbours)

    def pack(self, order: Sequence[int], *, tight: bool = False) -> Placement:
        """Give each range the lowest free place, or with `tight` the smallest gap that is large enough."""
        demand, neighbours, sizes = self._demand, self._neighbours, self._demand.size
        offsets = [-1] * len(demand)
        offset_array = np.full(len(demand), -1, dtype=np.int64)
        for index, offset in demand.pinned.items():
            offsets[index] = offset_array[index] = offset
        choose = _tightest if tight else _lowest
        for index in order:
            if index in demand.pinned:
                continue
            array = self._arrays.get(index)
            if array is None:
                placed = [other for other in neighbours[index] if offsets[other] >= 0]
                taken = sorted([(offsets[other], offsets[other] + sizes[other]) for other in placed])
                offset = choose(taken, sizes[index])
            else:
                offset = self._gap_among(array, offset_array, sizes[index], tight)
            offsets[index] = offset_array[index] = offset
        return Placement(offsets, _height(demand, offsets))

    def _gap_among(self, others: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64], size: int, tight: bool) -> int:
        starts = offsets[others]
        placed = np.flatnonzero(starts >= 0)
        starts = starts[placed]
        rising = np.argsort(starts, kind="stable")
        starts = starts[rising]
        return _gap(starts, starts + self._sizes[others[placed[rising]]], size, tight)

    def pack_between(self, order: Sequence[int], ceiling: int) -> Placement:
        """Place the ranges against floor and ceiling, each at the end away from its latest neighbour.

        In a chain of operators each range overlaps with the next one only, and so every second one lies at the ceiling:
        if the ceiling is the most bytes live at once, the plan of a chain is a smallest one. What finds no room at an
        end takes the lowest free place, if need be above the ceiling. Pinned ranges are not taken into account.
        """
        demand, neighbours = self._demand, self._neighbours
        offsets = [-1] * len(demand)
        is_high = [False] * len(demand)
        for index in order:
            size = demand.size[index]
            placed = [other for other in neighbours[index] if offsets[other] >= 0]
            taken = sorted((offsets[other], offsets[other] + demand.size[other]) for other in placed)
            offset = _lowest(taken, size)
            if placed:
                latest = max(placed, key=lambda other: (demand.first[other], demand.size[other], other))
                mirrored = sorted((ceiling - end, ceiling - start) for start, end in taken)
                high = ceiling - size - _lowest(mirrored, size)
                if not is_high[latest] and high >= 0 and offset + size <= ceiling:
                    offset, is_high[index] = high, True
            offsets[index] = offset
        return Placement(offsets, _height(demand, offsets))


class DensePacker:
    """Keeps everything placed in arrays sorted by offset and selects from them by comparison."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand

    def cost(self) -> int:
        """Estimate the microseconds of one packing."""
        return len(self._demand) * (30 + len(self._demand) // 150)

    def pack(self, order: Sequence[int], *, tight: bool = False) -> Placement:
        """Give each range the lowest free place, or with `tight` the smallest gap that is large enough."""
        demand = self._demand
        offsets = [-1] * len(demand)
        # Rows: first step, last step, offset, end; columns sorted by offset.
        placed = np.zeros((4, len(demand)), dtype=np.int64)
        sequence = [*demand.pinned, *(index for index in order if index not in demand.pinned)]
        for count, index in enumerate(sequence):
            first, last, size = demand.first[index], demand.last[index], demand.size[index]
            offset = demand.pinned.get(index)
            if offset is None:
                overlapping = np.flatnonzero((placed[0, :count] <= last) & (placed[1, :count] >= first))
                offset = _gap(placed[2, overlapping], placed[3, overlapping], size, tight)
            column = int(np.searchsorted(placed[2, :count], offset))
            placed[:, column + 1 : count + 1] = placed[:, column:count]
            placed[:, column] = (first, last, offset, offset + size)
            offsets[index] = offset
        return Placement(offsets, _height(demand, offsets))


def groups_sharing_bytes(offsets: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Return a group number for each range; ranges with a byte in common are in one group, if through others."""
    groups = [0] * len(offsets)
    group, end = -1, 0
    for index in sorted(range(len(offsets)), key=lambda index: (offsets[index], index)):
        if group < 0 or offsets[index] >= end:
            group += 1
        groups[index] = group
        end = max(end, offsets[index] + sizes[index])
    return groups


def _neighbours(demand: Demand) -> list[list[int]]:
    neighbours: list[list[int]] = [[] for _ in range(len(demand))]
    live: list[int] = []
    last = demand.last
    for index in sorted(range(len(demand)), key=demand.first.__getitem__):
        start = demand.first[index]
        live = [other for other in live if last[other] >= start]
        neighbours[index].extend(live)
        for other in live:
            neighbours[other].append(index)
        live.append(index)
    return neighbours


def _lowest(taken: list[tuple[int, int]], size: int) -> int:
    floor = 0
    for start, end in taken:
        if start - floor >= size:
            break
        floor = max(floor, end)
    return floor


def _tightest(taken: list[tuple[int, int]], size: int) -> int:
    floor, best, best_gap = 0, -1, 0
    for start, end in taken:
        gap = start - floor
        if gap >= size and (best < 0 or gap < best_gap):
            best, best_gap = floor, gap
        floor = max(floor, end)
    return best if best >= 0 else floor


def _gap(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], size: int, tight: bool) -> int:
    """Return the chosen free offset between ranges sorted by start, or the end of the highest."""
    if not len(starts):
        return 0
    tops = np.maximum.accumulate(ends)
    gaps = starts.copy()
    gaps[1:] -= tops[:-1]
    fitting = np.flatnonzero(gaps >= size)
    if not len(fitting):
        return int(tops[-1])
    place = int(fitting[np.argmin(gaps[fitting])] if tight else fitting[0])
    return int(starts[place] - gaps[place])


def _height(demand: Demand, offsets: Sequence[int]) -> int:
    return max((offset + size for offset, size in zip(offsets, demand.size, strict=True)), default=0)
