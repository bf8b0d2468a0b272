"""What a planner is asked and what it answers, in plain numbers: no graph, no tensors.

Time is a tree. A body is a run of steps; a branch or a loop body is a body that runs at one step of another one, and
bodies that run at the same step of the same body are alternatives: in one run only one of them runs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

DEFAULT_POOL = 1


@dataclass(frozen=True, slots=True)
class PlannedValue:
    """Bytes that are needed from one step to another.

    Attributes:
        nbytes: Size in bytes, 0 or more.
        first: First step that needs them, counted in `body`.
        last: Last step that needs them, counted in `last_body`.
        alignment: Their offset in the pool is a multiple of this many bytes.
        pool: The memory in which they lie.
        pinned: The offset at which they must lie; None to leave it to the planner.
        body: The body that computes the value.
        last_body: The body of the last use: `body`, or one around it for a result that outlives the call.
        base: The value in whose bytes this one lies, so that it needs none of its own; None for an owner of bytes.
        base_offset: First byte of this value in its base.
    """

    nbytes: int
    first: int
    last: int
    alignment: int = 1
    pool: int = DEFAULT_POOL
    pinned: int | None = None
    body: int = 0
    last_body: int | None = None
    base: int | None = None
    base_offset: int = 0


@dataclass(frozen=True, slots=True)
class Body:
    """Steps that run at one step of another body, in which they begin with 0.

    Attributes:
        parent: Number of the body around this one, which is listed before it; -1 for the outermost.
        step: The step of the parent at which it runs.
    """

    parent: int
    step: int


OUTERMOST = Body(-1, 0)


@dataclass(frozen=True, slots=True)
class Pool:
    """A memory.

    Attributes:
        alignment: Every offset and size in it is a multiple of this many bytes.
        limit: Its size in bytes, None if it has no limit.
    """

    alignment: int = 1
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class PlanningProblem:
    """What has to be placed.

    Attributes:
        values: The values; their place in the list is their number.
        pools: The pools by number; one that is not listed has alignment 1 and no limit.
        bodies: The bodies; number 0 is the outermost.
        official_nbytes: Size of each value by which the official planner orders values of one size; empty if it is not
            known.
    """

    values: Sequence[PlannedValue]
    pools: Mapping[int, Pool] = field(default_factory=dict)
    bodies: Sequence[Body] = (OUTERMOST,)
    official_nbytes: Sequence[int] = ()


@dataclass(slots=True)
class PlanningResult:
    """A plan, with what is known about smaller ones.

    Attributes:
        offsets: First byte of each value in its pool.
        pool_nbytes: Bytes used of each pool, by number.
        lower_bounds: Bytes of each pool below which no plan exists: the most that is live at once, or more where a
            planner has proved more.
        over_limit: Pools whose limit the plan exceeds, with the number of bytes that are missing.
    """

    offsets: list[int]
    pool_nbytes: dict[int, int]
    lower_bounds: dict[int, int]
    over_limit: dict[int, int]

    @property
    def is_proved_smallest(self) -> bool:
        """Whether no plan needs fewer bytes of any pool."""
        return all(nbytes <= self.lower_bounds[pool] for pool, nbytes in self.pool_nbytes.items())


class Timeline:
    """The steps of all bodies in one line, in which the bodies that run at a step follow it.

    Two values are in each other's way if their spans on the line overlap and they do not belong to alternatives. A
    result that outlives its branch seems to be there during later alternatives of the branch too, but never is in the
    way of their values, for they are alternatives.
    """

    def __init__(self, bodies: Sequence[Body], values: Iterable[PlannedValue]) -> None:
        self._steps = _lengths(bodies, values)
        self._calls: list[list[tuple[int, int]]] = [[] for _ in bodies]
        self._base = [0] * len(bodies)
        if len(bodies) > 1:
            self._lay_out(bodies)

    def begin(self, body: int, step: int) -> int:
        """Return the place of a step, before the bodies that run at it."""
        return self._base[body] + step + sum(length for at, length in self._calls[body] if at < step)

    def end(self, body: int, step: int) -> int:
        """Return the place of a step, after the bodies that run at it."""
        return self._base[body] + step + sum(length for at, length in self._calls[body] if at <= step)

    def span(self, value: PlannedValue) -> tuple[int, int]:
        """Return first and last place at which a value is needed."""
        if len(self._base) == 1:
            return value.first, value.last
        last_body = value.body if value.last_body is None else value.last_body
        return self.begin(value.body, value.first), self.end(last_body, value.last)

    def _lay_out(self, bodies: Sequence[Body]) -> None:
        total = list(self._steps)
        for number in range(len(bodies) - 1, 0, -1):
            body = bodies[number]
            self._calls[body.parent].append((body.step, total[number]))
            total[body.parent] += total[number]
        used: dict[tuple[int, int], int] = {}
        for number, body in enumerate(bodies):
            if number:
                key = (body.parent, body.step)
                before = used.get(key, 0)
                self._base[number] = self.begin(body.parent, body.step) + 1 + before
                used[key] = before + total[number]


class Alternatives:
    """Which bodies never run together.

    Attributes:
        excluded: For each body, the set of bodies that are alternatives to it or lie inside of one, as bits.
        parent: For each body, the one around it.
        groups: For each body, its calls: the numbers of the bodies of which one runs.
        group_of: For each body, the place of its call in `groups` of its parent.
    """

    def __init__(self, bodies: Sequence[Body]) -> None:
        calls: dict[tuple[int, int], list[int]] = {}
        for number, body in enumerate(bodies):
            if number:
                calls.setdefault((body.parent, body.step), []).append(number)
        inside = [1 << number for number in range(len(bodies))]
        for number in range(len(bodies) - 1, 0, -1):
            inside[bodies[number].parent] |= inside[number]
        self.parent = [body.parent for body in bodies]
        self.groups: list[list[list[int]]] = [[] for _ in bodies]
        self.group_of = [0] * len(bodies)
        self.excluded = [0] * len(bodies)
        for (parent, _), members in calls.items():
            for member in members:
                self.group_of[member] = len(self.groups[parent])
            self.groups[parent].append(members)
        for number, body in enumerate(bodies):
            if number:
                for other in calls[body.parent, body.step]:
                    if other != number:
                        self.excluded[number] |= inside[other]
                self.excluded[number] |= self.excluded[body.parent]

    def __bool__(self) -> bool:
        return any(self.excluded)


def storage_roots(values: Sequence[PlannedValue]) -> list[tuple[int, int]]:
    """Return, for each value, the value that owns its bytes and its first byte there.

    The bases must not form a cycle.
    """
    found: list[tuple[int, int]] = []
    for number, value in enumerate(values):
        offset = 0
        while value.base is not None:
            offset += value.base_offset
            number, value = value.base, values[value.base]
        found.append((number, offset))
    return found


def _lengths(bodies: Sequence[Body], values: Iterable[PlannedValue]) -> list[int]:
    """Return how many steps each body has: as many as are mentioned."""
    lengths = [1] * len(bodies)
    if len(bodies) == 1:
        return lengths
    for body in bodies[1:]:
        lengths[body.parent] = max(lengths[body.parent], body.step + 1)
    for value in values:
        lengths[value.body] = max(lengths[value.body], value.first + 1)
        last_body = value.body if value.last_body is None else value.last_body
        lengths[last_body] = max(lengths[last_body], value.last + 1)
    return lengths


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
    return fullest_step(zip(demand.first, demand.last, demand.size, strict=True))[1]


def fullest_step(lives: Iterable[tuple[int, int, int]]) -> tuple[int, int]:
    """Return the first step at which most bytes are live, and these; 0 and 0 if there are none.

    Args:
        lives: First step, last step and bytes of each value.
    """
    changes: dict[int, int] = {}
    for first, last, size in lives:
        changes[first] = changes.get(first, 0) + size
        changes[last + 1] = changes.get(last + 1, 0) - size
    step = peak = live = 0
    for at in sorted(changes):
        live += changes[at]
        if live > peak:
            step, peak = at, live
    return step, peak


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
