"""The shared-object heuristic: large tensors found objects, smaller ones take turns in them.

This is the behaviour of the official planner's `greedy`, which fixes what an exporter may cost at most:
tensors in order of falling size; the first object that is free for the whole lifetime takes the tensor;
failing that, the first object in which it fits above everything it overlaps with; failing that, a new object
of its size. Objects lie one after another.
"""

from __future__ import annotations

import numpy as np

from .demand import Demand, Placement

# Numbers compared in the search for room above others: about a second. Past it the search is left out.
_COMPARISON_BUDGET = 1_000_000_000
# Masks have one bit per object at each step; past this many objects they would fill the memory of the
# machine.
_MAX_OBJECTS = 20_000


def official_order(demand: Demand) -> list[int]:
    """Return the order of the official planner: falling size, and of equal sizes the last one first.

    It sorts by the sizes that specs have before the alignment of the plan is applied, and gives up where that is the
    finer one; the size of the plan comes first here, which makes no difference elsewhere.
    """
    finer = demand.official_size or demand.size
    return sorted(range(len(demand)), key=lambda index: (-demand.size[index], -finer[index], -index))


def pack_shared_objects(demand: Demand, *, above_others: bool = True) -> Placement | None:
    """Place the ranges by the shared-object heuristic, in the order of the official planner.

    Args:
        demand: The ranges; none may be pinned.
        above_others: Whether a range may lie inside an object above ranges that are needed at the same time.

    Returns:
        The placement, or None if there are too many objects to keep account of.
    """
    pool = _ObjectPool(demand)
    for index in official_order(demand):
        pool.add(index, above_others)
        if len(pool.object_sizes) > _MAX_OBJECTS:
            return None
    return pool.placement()


class _ObjectPool:
    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        steps = sorted({*demand.first, *demand.last})
        rank = {step: place for place, step in enumerate(steps)}
        self._span = [(rank[first], rank[last]) for first, last in zip(demand.first, demand.last, strict=True)]
        self._busy = _BusyMasks(len(steps))
        self._full = _BusyMasks(len(steps))
        self.object_sizes: list[int] = []
        self._object_of = [-1] * len(demand)
        self._inner_offset = [0] * len(demand)
        # Rows: first step, last step, end inside the object, object.
        self._members = np.zeros((4, len(demand)), dtype=np.int64)
        self._count = 0
        self._comparisons = 0

    def add(self, index: int, above_others: bool) -> None:
        low, high = self._span[index]
        busy = self._busy.during(low, high)
        chosen = _lowest_zero_bit(busy)
        offset = 0
        if chosen >= len(self.object_sizes):
            room = self._room_above_others(index, busy & ~self._full.during(low, high)) if above_others else None
            if room is None:
                self.object_sizes.append(self._demand.size[index])
            else:
                chosen, offset = room
        self._join(index, chosen, offset)

    def placement(self) -> Placement:
        bases = [0]
        for size in self.object_sizes:
            bases.append(bases[-1] + size)
        offsets = [bases[number] + inner for number, inner in zip(self._object_of, self._inner_offset, strict=True)]
        return Placement(offsets, bases[-1])

    def _room_above_others(self, index: int, candidates: int) -> tuple[int, int] | None:
        """Return object and inner offset of the first object with room above all it overlaps with."""
        if not candidates or self._comparisons > _COMPARISON_BUDGET:
            return None
        self._comparisons += self._count
        demand, members = self._demand, self._members[:, : self._count]
        overlapping = (members[0] <= demand.last[index]) & (members[1] >= demand.first[index])
        tops = np.zeros(len(self.object_sizes), dtype=np.int64)
        np.maximum.at(tops, members[3, overlapping], members[2, overlapping])
        fits = np.flatnonzero((tops > 0) & (tops + demand.size[index] <= np.asarray(self.object_sizes)))
        return (int(fits[0]), int(tops[fits[0]])) if len(fits) else None

    def _join(self, index: int, number: int, offset: int) -> None:
        demand = self._demand
        end = offset + demand.size[index]
        self._object_of[index], self._inner_offset[index] = number, offset
        self._members[:, self._count] = (demand.first[index], demand.last[index], end, number)
        self._count += 1
        self._busy.mark(*self._span[index], number)
        if end == self.object_sizes[number]:
            self._full.mark(*self._span[index], number)


class _BusyMasks:
    """For spans of steps, the set of marked objects as one integer: a segment tree with masks in its nodes.

    `whole[n]` has the objects marked at every step below node n by one mark, `some[n]` those marked at any
    step there.
    """

    def __init__(self, steps: int) -> None:
        self._leaves = 1 << max(steps - 1, 0).bit_length()
        self._whole = [0] * (2 * self._leaves)
        self._some = [0] * (2 * self._leaves)

    def mark(self, low: int, high: int, number: int) -> None:
        bit = 1 << number
        whole, some = self._whole, self._some
        left, right = low + self._leaves, high + self._leaves + 1
        while left < right:
            if left & 1:
                whole[left] |= bit
                some[left] |= bit
                left += 1
            if right & 1:
                right -= 1
                whole[right] |= bit
                some[right] |= bit
            left >>= 1
            right >>= 1
        for leaf in {low + self._leaves, high + self._leaves}:
            node = leaf >> 1
            while node:
                some[node] |= bit
                node >>= 1

    def during(self, low: int, high: int) -> int:
        """Return the mask of the objects marked at some step from low to high."""
        whole, some = self._whole, self._some
        mask = 0
        left, right = low + self._leaves, high + self._leaves + 1
        while left < right:
            if left & 1:
                mask |= some[left]
                left += 1
            if right & 1:
                right -= 1
                mask |= some[right]
            left >>= 1
            right >>= 1
        for leaf in {low + self._leaves, high + self._leaves}:
            node = leaf >> 1
            while node:
                mask |= whole[node]
                node >>= 1
        return mask


def _lowest_zero_bit(mask: int) -> int:
    return (~mask & (mask + 1)).bit_length() - 1
