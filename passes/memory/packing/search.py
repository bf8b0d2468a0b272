"""The search for a small arena: cheap packings one after another, until one meets the lower bound or time is up."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from exirkit.ir import UsageError
from exirkit.passes.memory.problem import (
    Demand,
    Packer,
    Placement,
    SparsePacker,
    degrees,
    fullest_step,
    lower_bound,
    neighbours,
    packer_for,
)

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


# Estimated microseconds that optional candidates may take: so many for each range, and for one arena at most. Lowering
# takes thousands for each. Estimates, not a clock: plans do not depend on the speed of the machine.
_BUDGET_OF_RANGE = 160
_BUDGET = 800_000
_MAX_PROMOTIONS = 32
_MAX_REORDERINGS = 400


@dataclass(slots=True)
class Effort:
    """How long to search.

    Attributes:
        factor: Times the default budget.
    """

    factor: float = 1.0

    def microseconds(self, count: int) -> int:
        """Return the estimated microseconds that may be spent on so many ranges."""
        return int(self.factor * min(_BUDGET, max(_BUDGET_OF_RANGE * count, 2000)))


def smallest_placement(demand: Demand, effort: Effort | None = None, *, enough: int = 0) -> Placement:
    """Return the smallest placement found.

    Args:
        demand: What to place; pinned ranges stay where they are.
        effort: How long to search.
        enough: The search ends with the first placement of at most so many bytes.
    """
    lifelong, others = _split_lifelong(demand)
    floor = sum(demand.size[index] for index in lifelong)
    inner = demand if not lifelong else demand.restricted(others)
    bound = lower_bound(inner)
    best = Placement([], -1)
    for placement in _candidates(demand, inner, others, bound, effort or Effort()):
        if best.height < 0 or placement.height < best.height:
            best = placement
            if best.height <= max(bound, enough - floor):
                break
    if not lifelong:
        return best
    offsets = [0] * len(demand)
    for index, offset in zip(others, best.offsets, strict=True):
        offsets[index] = floor + offset
    for index, offset in zip(lifelong, accumulate((demand.size[i] for i in lifelong), initial=0), strict=False):
        offsets[index] = offset
    return Placement(offsets, floor + best.height)


def _split_lifelong(demand: Demand) -> tuple[list[int], list[int]]:
    """Separate the ranges that are needed at every step of every run.

    Nothing else can ever use their bytes, so they may as well lie at the bottom: sliding them there, and all that lay
    above them down, makes no plan larger. It makes the rest much cheaper to pack where a model has many mutable
    buffers.
    """
    everything = list(range(len(demand)))
    if demand.pinned or demand.alignment or not everything:
        return [], everything
    start, end = min(demand.first), max(demand.last)
    lifelong = [index for index in everything if demand.first[index] == start and demand.last[index] == end]
    if demand.alternatives is not None:
        lifelong = [index for index in lifelong if not demand.alternatives.excluded[demand.body[index]]]
    if not lifelong:
        return [], everything
    kept = set(lifelong)
    return lifelong, [index for index in everything if index not in kept]


def _candidates(
    demand: Demand,
    inner: Demand,
    others: Sequence[int],
    bound: int,
    effort: Effort,
) -> Iterator[Placement]:
    """Yield placements of the inner demand, the most promising first; each is computed when it is asked for."""
    packer = packer_for(inner)
    orders = _Orders(inner)
    best_order = orders.by_size()
    best = packer.pack(best_order)
    yield best
    budget = effort.microseconds(len(inner))
    affordable = budget // (packer.cost() + 1)
    if isinstance(packer, SparsePacker) and packer.cost_between() <= budget and not (inner.pinned or inner.alignment):
        yield packer.pack_between(orders.by_length(), bound)
    optional = [
        (orders.by_area, False),
        (orders.by_peak, False),
        (orders.by_size, True),
        (orders.by_conflicts, False),
        (orders.by_length, False),
    ]
    for make_order, tight in optional[:affordable]:
        candidate = make_order()
        placement = packer.pack(candidate, tight=tight)
        if placement.height < best.height:
            best, best_order = placement, candidate
        yield placement
    compacted = _compacted_official(demand, others)
    if compacted is not None:
        yield packer.pack(compacted)
    affordable -= len(optional)
    rounds = min(_MAX_PROMOTIONS, affordable // 2)
    yield from _promotions(inner, packer, best_order, rounds)
    yield from _reorderings(inner, packer, best_order, best.height, min(_MAX_REORDERINGS, affordable - rounds))


def _compacted_official(demand: Demand, others: Sequence[int]) -> list[int] | None:
    """Return the order in which packing ends no higher than the official plan.

    Each range finds at least its official place free: what was placed before it lay below it there, or is not needed at
    the same time.
    """
    if demand.pinned or demand.alignment:
        return None
    packed = pack_shared_objects(demand)
    if packed is None:
        return None
    offsets = packed.offsets
    return sorted(range(len(others)), key=lambda place: (offsets[others[place]], place))


def _promotions(demand: Demand, packer: Packer, order: Sequence[int], rounds: int) -> Iterator[Placement]:
    """Yield the packings that follow when the range that ends highest is moved to the front of the order."""
    order = list(order)
    for _ in range(rounds):
        placement = packer.pack(order)
        yield placement
        top = max(order, key=lambda i: (placement.offsets[i] + demand.size[i], -i))
        if top == order[0]:
            return
        order.remove(top)
        order.insert(0, top)


def _reorderings(demand: Demand, packer: Packer, order: Sequence[int], height: int, rounds: int) -> Iterator[Placement]:
    """Yield packings of changed orders; a change that makes the plan no larger stays.

    A change moves one range to an earlier place: every second time one that ends at the top. Which one and where to is
    drawn from a sequence of numbers that is always the same.
    """
    order = list(order)
    count = len(order)
    if count < 2:
        return
    tops = _tops(demand, packer.pack(order).offsets, height) if rounds > 0 else []
    draw = 12345
    for number in range(rounds):
        draw = (draw * 6364136223846793005 + 1442695040888963407) & 0xFFFF_FFFF_FFFF_FFFF
        moved = tops[(draw >> 40) % len(tops)] if tops and number & 1 else order[(draw >> 40) % count]
        at = order.index(moved)
        to = (draw >> 20 & 0xFFFFF) % count
        if to == at:
            continue
        changed = order.copy()
        changed.insert(to, changed.pop(at))
        placement = packer.pack(changed)
        yield placement
        if placement.height <= height:
            order, height = changed, placement.height
            tops = _tops(demand, placement.offsets, height)


def _tops(demand: Demand, offsets: Sequence[int], height: int) -> list[int]:
    return [i for i, offset in enumerate(offsets) if offset + demand.size[i] >= height and i not in demand.pinned]


class _Orders:
    """Orders in which the ranges of a demand may be placed; each ends in the index, so that it is one order only."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._length = [last - first + 1 for first, last in zip(demand.first, demand.last, strict=True)]
        self._indices = range(len(demand))

    def by_size(self) -> list[int]:
        size, length, first = self._demand.size, self._length, self._demand.first
        return sorted(self._indices, key=lambda i: (-size[i], -length[i], first[i], i))

    def by_area(self) -> list[int]:
        size, length, first = self._demand.size, self._length, self._demand.first
        return sorted(self._indices, key=lambda i: (-size[i] * length[i], first[i], i))

    def by_length(self) -> list[int]:
        length, first = self._length, self._demand.first
        return sorted(self._indices, key=lambda i: (-length[i], first[i], i))

    def by_conflicts(self) -> list[int]:
        conflicts, size = degrees(self._demand), self._demand.size
        return sorted(self._indices, key=lambda i: (-conflicts[i], -size[i], i))

    def by_peak(self) -> list[int]:
        """What is needed when most is needed comes first, the longest of it lowest: there it leaves no gap."""
        demand, length, size = self._demand, self._length, self._demand.size
        # As if alternatives ran one after another.
        step, _ = fullest_step(zip(demand.first, demand.last, demand.size, strict=True))
        at_peak = [first <= step <= last for first, last in zip(demand.first, demand.last, strict=True)]
        return sorted(
            self._indices,
            key=lambda i: (not at_peak[i], -length[i] if at_peak[i] else 0, -size[i], -length[i], demand.first[i], i),
        )


# Work of the solver, in its own deterministic unit: about seconds on a fast machine, the same on every machine.
DEFAULT_WORK = 10.0
# Up to so many pairs in each other's way, an order of each pair is decided; more are left to the packing constraint.
_MAX_PAIRS = 4000


@dataclass(slots=True)
class ProvedPlacement:
    """A placement, and what no other one can beat.

    Attributes:
        placement: The best placement found.
        bound: Bytes that every placement needs; the placement is a smallest one if it needs no more.
    """

    placement: Placement
    bound: int


def exact_placement(demand: Demand, start: Placement | None = None, work: float = DEFAULT_WORK) -> ProvedPlacement:
    """Return a smallest placement, or the best found within the budget and a proven bound.

    The solver is not asked where the start, by default what the heuristics find, meets the lower bound. One worker, a
    fixed seed and a budget that is not a clock: the same demand gives the same placement.

    Args:
        demand: What to place.
        start: A placement to improve on.
        work: How much work the solver may do, in its deterministic unit of about a second.

    Raises:
        UsageError: EK465, if OR-tools is needed and not installed.
    """
    placement = smallest_placement(demand) if start is None else start
    bound = lower_bound(demand)
    if placement.height <= bound:
        return ProvedPlacement(placement, bound)
    return _solve(solver_library(), demand, placement, bound, work)


def solver_library() -> Any:
    """Return the module of CP-SAT.

    Raises:
        UsageError: EK465, if OR-tools is not installed.
    """
    try:
        return importlib.import_module("ortools.sat.python.cp_model")
    except ImportError as error:
        raise UsageError(
            code="EK465",
            message="the exact planner needs OR-tools, which cannot be imported",
            notes=(str(error),),
        ) from error


def _solve(library: Any, demand: Demand, start: Placement, bound: int, work: float) -> ProvedPlacement:
    unit = math.gcd(*demand.size, *demand.pinned.values(), *demand.alignment)
    model = library.CpModel()
    top = start.height // unit
    height = model.new_int_var(-(-bound // unit), top, "height")
    offsets = []
    for index, size in enumerate(demand.size):
        offset = _offset(model, demand, index, unit, top)
        offsets.append(offset)
        model.add(offset + size // unit <= height)
    _keep_apart(model, demand, offsets, unit)
    model.minimize(height)
    solver = library.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = work
    for index, offset in enumerate(offsets):
        if not demand.alignment and index not in demand.pinned:
            model.add_hint(offset, start.offsets[index] // unit)
    status = solver.solve(model)
    proved = max(bound, math.ceil(solver.best_objective_bound - 1e-6) * unit)
    if status not in (library.OPTIMAL, library.FEASIBLE):
        return ProvedPlacement(start, min(proved, start.height))
    found = [int(solver.value(offset)) * unit for offset in offsets]
    end = max(offset + size for offset, size in zip(found, demand.size, strict=True))
    best = Placement(found, end) if end < start.height else start
    return ProvedPlacement(best, min(proved, best.height))


def _offset(model: Any, demand: Demand, index: int, unit: int, top: int) -> Any:
    """Return the offset of a range in units: a variable, a multiple of one, or a number."""
    pinned = demand.pinned.get(index)
    if pinned is not None:
        return model.new_constant(pinned // unit)
    room = top - demand.size[index] // unit
    step = demand.alignment[index] // unit if demand.alignment else 1
    if step == 1:
        return model.new_int_var(0, room, f"offset{index}")
    return step * model.new_int_var(0, room // step, f"offset{index}")


def _keep_apart(model: Any, demand: Demand, offsets: list[Any], unit: int) -> None:
    pairs = [(index, other) for index, others in enumerate(neighbours(demand)) for other in others if index < other]
    if demand.alternatives is None and len(pairs) > _MAX_PAIRS:
        times, places = [], []
        for index, (first, last) in enumerate(zip(demand.first, demand.last, strict=True)):
            times.append(model.new_fixed_size_interval_var(first, last + 1 - first, f"time{index}"))
            size = demand.size[index] // unit
            places.append(model.new_fixed_size_interval_var(offsets[index], size, f"place{index}"))
        model.add_no_overlap_2d(times, places)
        return
    for index, other in pairs:
        below = model.new_bool_var(f"below{index},{other}")
        model.add(offsets[index] + demand.size[index] // unit <= offsets[other]).only_enforce_if(below)
        model.add(offsets[other] + demand.size[other] // unit <= offsets[index]).only_enforce_if(~below)
