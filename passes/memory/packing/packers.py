"""Packing of byte ranges that are needed for spans of steps: the arithmetic under the planning algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from .demand import Demand, Placement, degrees, height_of, neighbours

# Lists of the ranges needed at the same time are kept if there are few, in relation to a walk over everything placed,
# and if they fit into memory (12 bytes for each pair).
_FEW_NEIGHBOURS = 48
_MAX_PAIRS = 5_000_000
# Neighbours from which array operations are faster than a loop.
_WORTH_AN_ARRAY = 64


class Packer(Protocol):
    """Places the ranges of one demand, one after another in a given order."""

    def pack(self, order: Sequence[int], *, tight: bool = False) -> Placement:
        """Give each range the lowest free place, or with `tight` the smallest gap that is large enough."""

    def cost(self) -> int:
        """Estimate the microseconds of one packing."""


def packer_for(demand: Demand) -> Packer:
    """Return the packer whose cost suits the demand; both kinds give the same placements."""
    pairs = sum(degrees(demand))
    if pairs <= max(_FEW_NEIGHBOURS * len(demand), min(len(demand) ** 2 // 8, _MAX_PAIRS)):
        return SparsePacker(demand)
    return DensePacker(demand)


class SparsePacker:
    """Keeps for each range the list of those that are in its way."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._neighbours = neighbours(demand)
        self._arrays = {
            index: np.asarray(others, dtype=np.int32)
            for index, others in enumerate(self._neighbours)
            if len(others) >= _WORTH_AN_ARRAY
        }
        self._sizes = np.asarray(demand.size if self._arrays else [], dtype=np.int64)

    def cost(self) -> int:
        """Estimate the microseconds of one packing."""
        return sum(2 + min(len(others) // 5, 15 + len(others) // 25) for others in self._neighbours)

    def cost_between(self) -> int:
        """Estimate the microseconds of one packing between floor and ceiling, which has no arrays to help."""
        return sum(3 + len(others) * 3 // 2 for others in self._neighbours)

    def pack(self, order: Sequence[int], *, tight: bool = False) -> Placement:
        """Give each range the lowest free place, or with `tight` the smallest gap that is large enough."""
        demand, sizes = self._demand, self._demand.size
        offsets = [-1] * len(demand)
        ends = [0] * len(demand)
        for index, offset in demand.pinned.items():
            offsets[index], ends[index] = offset, offset + sizes[index]
        offset_array = np.asarray(offsets if self._arrays else [], dtype=np.int64)
        choose = _tightest if tight else _lowest
        alignment = demand.alignment
        for index in order:
            if index in demand.pinned:
                continue
            array = self._arrays.get(index)
            unit = alignment[index] if alignment else 1
            if array is None:
                taken = [(offsets[other], ends[other]) for other in self._neighbours[index] if offsets[other] >= 0]
                taken.sort()
                offset = choose(taken, sizes[index], unit)
            else:
                offset = self._gap_among(array, offset_array, index, tight)
            offsets[index], ends[index] = offset, offset + sizes[index]
            if self._arrays:
                offset_array[index] = offset
        return Placement(offsets, max(ends, default=0))

    def _gap_among(self, others: npt.NDArray[np.int32], offsets: npt.NDArray[np.int64], index: int, tight: bool) -> int:
        starts = offsets[others]
        placed = np.flatnonzero(starts >= 0)
        starts = starts[placed]
        rising = np.argsort(starts, kind="stable")
        starts = starts[rising]
        unit = self._demand.alignment[index] if self._demand.alignment else 1
        return _gap(starts, starts + self._sizes[others[placed[rising]]], self._demand.size[index], tight, unit)

    def pack_between(self, order: Sequence[int], ceiling: int) -> Placement:
        """Place the ranges against floor and ceiling, each at the end away from its latest neighbour.

        In a chain of operators each range overlaps with the next one only, and so every second one lies at the ceiling:
        if the ceiling is the most bytes live at once, the plan of a chain is a smallest one. What finds no room at an
        end takes the lowest free place, if need be above the ceiling. Neither pinned ranges nor alignments of single
        ranges are taken into account.
        """
        demand = self._demand
        offsets = [-1] * len(demand)
        is_high = [False] * len(demand)
        for index in order:
            size = demand.size[index]
            placed = [other for other in self._neighbours[index] if offsets[other] >= 0]
            taken = sorted((offsets[other], offsets[other] + demand.size[other]) for other in placed)
            offset = _lowest(taken, size, 1)
            if placed:
                latest = max(placed, key=lambda other: (demand.first[other], demand.size[other], other))
                mirrored = sorted((ceiling - end, ceiling - start) for start, end in taken)
                high = ceiling - size - _lowest(mirrored, size, 1)
                if not is_high[latest] and high >= 0 and offset + size <= ceiling:
                    offset, is_high[index] = high, True
            offsets[index] = offset
        return Placement(offsets, height_of(demand, offsets))


class DensePacker:
    """Keeps everything placed in arrays sorted by offset and selects from them by comparison."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._excluded = demand.excluded_bodies()

    def cost(self) -> int:
        """Estimate the microseconds of one packing."""
        return len(self._demand) * (30 + len(self._demand) // 150)

    def pack(self, order: Sequence[int], *, tight: bool = False) -> Placement:
        """Give each range the lowest free place, or with `tight` the smallest gap that is large enough."""
        demand = self._demand
        offsets = [-1] * len(demand)
        # Rows: first step, last step, offset, end, body; columns sorted by offset.
        placed = np.zeros((5, len(demand)), dtype=np.int64)
        sequence = [*demand.pinned, *(index for index in order if index not in demand.pinned)]
        for count, index in enumerate(sequence):
            first, last, size = demand.first[index], demand.last[index], demand.size[index]
            offset = demand.pinned.get(index)
            body = demand.body[index] if demand.body else 0
            if offset is None:
                met = (placed[0, :count] <= last) & (placed[1, :count] >= first)
                if self._excluded is not None:
                    met &= ~self._excluded[body][placed[4, :count]]
                overlapping = np.flatnonzero(met)
                unit = demand.alignment[index] if demand.alignment else 1
                offset = _gap(placed[2, overlapping], placed[3, overlapping], size, tight, unit)
            column = int(np.searchsorted(placed[2, :count], offset))
            placed[:, column + 1 : count + 1] = placed[:, column:count]
            placed[:, column] = (first, last, offset, offset + size, body)
            offsets[index] = offset
        return Placement(offsets, height_of(demand, offsets))


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


def _lowest(taken: list[tuple[int, int]], size: int, unit: int) -> int:
    floor = 0
    for start, end in taken:
        if start - floor >= size:
            break
        if end > floor:
            floor = end + -end % unit
    return floor


def _tightest(taken: list[tuple[int, int]], size: int, unit: int) -> int:
    floor, best, best_gap = 0, -1, 0
    for start, end in taken:
        gap = start - floor
        if gap >= size and (best < 0 or gap < best_gap):
            best, best_gap = floor, gap
        if end > floor:
            floor = end + -end % unit
    return best if best >= 0 else floor


def _gap(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], size: int, tight: bool, unit: int) -> int:
    """Return the chosen free offset between ranges sorted by start, or the end of the highest."""
    if not len(starts):
        return 0
    tops = np.maximum.accumulate(ends)
    tops += -tops % unit
    gaps = starts.copy()
    gaps[1:] -= tops[:-1]
    fitting = np.flatnonzero(gaps >= size)
    if not len(fitting):
        return int(tops[-1])
    place = int(fitting[np.argmin(gaps[fitting])] if tight else fitting[0])
    return int(starts[place] - gaps[place])
