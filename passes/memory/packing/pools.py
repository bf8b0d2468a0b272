"""Several memories of limited size: each is filled with what gains most, and the rest goes to the next one."""

from __future__ import annotations

import heapq
import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from exirkit.passes.memory.planners import DemandPlanner, naive_placement, planner_named, solve_planning_problem
from exirkit.passes.memory.problem import (
    Demand,
    Placement,
    PlanningProblem,
    PlanningResult,
    Pool,
    Timeline,
    fullest_step,
    lower_bound,
    storage_roots,
)

from .search import ProvedPlacement, smallest_placement

# Choices that are examined in all: enough to choose from about a dozen ranges that are live at once exactly.
_CHOICES = 300_000
_FEWEST_STATES, _MOST_STATES = 64, 16_384

_Chain = tuple[int, Any] | None


@dataclass(frozen=True, slots=True)
class Claim:
    """What wants to be in the memory.

    Attributes:
        size: Bytes, more than 0.
        first: First step that needs them.
        last: Last step that needs them.
        gain: What is won if it is in; 0 or more.
        must: Whether it has to be in.
    """

    size: int
    first: int
    last: int
    gain: int
    must: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """What to put in.

    Attributes:
        chosen: Numbers of the claims that are in, in order.
        gain: What the optional ones among them gain.
        is_best: Whether no choice within the limit gains more.
    """

    chosen: list[int]
    gain: int
    is_best: bool


def choose_claims(claims: Sequence[Claim], limit: int) -> Choice | None:
    """Return the claims that gain most while no step needs more than so many bytes.

    A walk over the steps keeps, for every set of chosen claims that are live, the best way to it. Where these become
    too many the best ones are kept, and the result is compared with those of simple orders.

    Returns:
        The choice; None if those that must be in are too much already.
    """
    swept = _sweep(claims, limit)
    if swept is None or swept.is_best:
        return swept
    listed = [swept, *(_in_order(claims, limit, order) for order in _orders(claims))]
    return max(listed, key=lambda choice: choice.gain)


class Load:
    """Bytes that are needed at each step.

    Args:
        spans: First and last steps that will be asked about.
    """

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._steps = np.unique(np.asarray([step for span in spans for step in span], dtype=np.int64))
        self._bytes: npt.NDArray[np.int64] = np.zeros(len(self._steps), dtype=np.int64)

    def most(self, first: int, last: int) -> int:
        """Return the most bytes needed at a step from first to last."""
        low, high = np.searchsorted(self._steps, (first, last + 1))
        return int(self._bytes[low:high].max(initial=0))

    @property
    def peak(self) -> int:
        """Bytes of the fullest step."""
        return int(self._bytes.max(initial=0))

    def add(self, first: int, last: int, nbytes: int) -> None:
        """Need so many bytes more; fewer if negative."""
        low, high = np.searchsorted(self._steps, (first, last + 1))
        self._bytes[low:high] += nbytes


def _sweep(claims: Sequence[Claim], limit: int) -> Choice | None:
    most_states = min(_MOST_STATES, max(_FEWEST_STATES, _CHOICES // max(1, len(claims))))
    # For each set of chosen claims that are live: what all chosen ones gain, bytes of the live ones, and the chain of
    # the chosen ones.
    states: dict[int, tuple[int, int, _Chain]] = {0: (0, 0, None)}
    dying: list[tuple[int, int, int]] = []
    unused: list[int] = []
    width = base = 0
    is_best = True
    for number in sorted(range(len(claims)), key=lambda one: (claims[one].first, not claims[one].must, one)):
        claim = claims[number]
        gone: list[tuple[int, int]] = []
        while dying and dying[0][0] < claim.first:
            _, place, size = heapq.heappop(dying)
            if place < 0:
                base -= size
            else:
                gone.append((1 << place, size))
                unused.append(place)
        if gone:
            states = _without(states, gone)
        if claim.must:
            heapq.heappush(dying, (claim.last, -1, claim.size))
            base += claim.size
            states = {live: state for live, state in states.items() if base + state[1] <= limit}
            if not states:
                return None
            continue
        place = unused.pop() if unused else width
        width = max(width, place + 1)
        heapq.heappush(dying, (claim.last, place, claim.size))
        states = _with(states, claim, number, 1 << place, limit - base)
        if len(states) > most_states:
            is_best = False
            states = _best_of(states, most_states)
    best = max(states.values(), key=lambda state: state[0])
    chosen = [number for number, claim in enumerate(claims) if claim.must]
    chain = best[2]
    while chain is not None:
        number, chain = chain
        chosen.append(number)
    return Choice(sorted(chosen), best[0], is_best)


def _with(
    states: dict[int, tuple[int, int, _Chain]], claim: Claim, number: int, bit: int, room: int
) -> dict[int, tuple[int, int, _Chain]]:
    grown = dict(states)
    for live, (gain, used, chain) in states.items():
        if used + claim.size <= room:
            grown[live | bit] = (gain + claim.gain, used + claim.size, (number, chain))
    return grown


def _without(
    states: dict[int, tuple[int, int, _Chain]], gone: Sequence[tuple[int, int]]
) -> dict[int, tuple[int, int, _Chain]]:
    """Forget what is not live any more; of the ways to what is left, keep the one that gained most."""
    bits = sum(bit for bit, _ in gone)
    left: dict[int, tuple[int, int, _Chain]] = {}
    for live, (gain, used, chain) in states.items():
        kept = live & ~bits
        known = left.get(kept)
        if known is None:
            left[kept] = (gain, used - sum(size for bit, size in gone if live & bit), chain)
        elif known[0] < gain:
            left[kept] = (gain, known[1], chain)
    return left


def _best_of(states: dict[int, tuple[int, int, _Chain]], count: int) -> dict[int, tuple[int, int, _Chain]]:
    """Keep the states that gain most, and the emptiest one, from which everything that must be in can be reached."""
    listed = sorted(states.items(), key=lambda one: (-one[1][0], one[1][1], one[0]))
    emptiest = min(listed, key=lambda one: (one[1][1], -one[1][0], one[0]))
    return dict([*listed[: count - 1], emptiest])


def _orders(claims: Sequence[Claim]) -> list[list[int]]:
    numbers = range(len(claims))

    def length(one: int) -> int:
        return claims[one].last - claims[one].first + 1

    return [
        sorted(numbers, key=lambda one: (-claims[one].gain / (claims[one].size * length(one)), one)),
        sorted(numbers, key=lambda one: (-claims[one].gain / claims[one].size, one)),
        sorted(numbers, key=lambda one: (-claims[one].gain, one)),
    ]


def _in_order(claims: Sequence[Claim], limit: int, order: Sequence[int]) -> Choice:
    """Put in whatever fits, in the given order, after what must be in."""
    load = Load([(claim.first, claim.last) for claim in claims])
    chosen, gain = [], 0
    for number in sorted(order, key=lambda one: not claims[one].must):
        claim = claims[number]
        if claim.must or load.most(claim.first, claim.last) + claim.size <= limit:
            load.add(claim.first, claim.last, claim.size)
            chosen.append(number)
            gain += 0 if claim.must else claim.gain
    return Choice(sorted(chosen), gain, False)


class PlacedRanges:
    """Ranges with places.

    Attributes:
        offset: First byte of each range, by its number.
    """

    def __init__(self) -> None:
        self.offset: dict[int, int] = {}
        self._claims: dict[int, Claim] = {}

    def put(self, number: int, claim: Claim, offset: int) -> None:
        """Put a range at a place, whatever is there."""
        self.offset[number] = offset
        self._claims[number] = claim

    def remove(self, number: int) -> None:
        """Take a range out."""
        del self.offset[number], self._claims[number]

    def end(self, number: int) -> int:
        """Return the byte after the last one of a range."""
        return self.offset[number] + self._claims[number].size

    def beyond(self, limit: int) -> set[int]:
        """Return the ranges that reach beyond so many bytes."""
        return {number for number in self.offset if self.end(number) > limit}

    @property
    def peak(self) -> int:
        """Bytes of the fullest step."""
        return fullest_step((claim.first, claim.last, claim.size) for claim in self._claims.values())[1]

    @property
    def height(self) -> int:
        """Bytes of a memory that holds the ranges at their places."""
        return max((self.end(number) for number in self.offset), default=0)

    def insert(self, number: int, claim: Claim, unit: int, limit: int) -> bool:
        """Put a range into the lowest gap that holds it, if there is one.

        Args:
            number: Number of the range, which is not in yet.
            claim: Its size and its steps.
            unit: What its place is a multiple of.
            limit: Bytes of the memory.

        Returns:
            Whether there is a gap.
        """
        place = 0
        for start, end, *_ in sorted(self._in_the_way(claim), key=itemgetter(0, 1)):
            if place + claim.size <= start:
                break
            place = max(place, end + -end % unit)
        if place + claim.size > limit:
            return False
        self.put(number, claim, place)
        return True

    def cheapest_place(self, claim: Claim, unit: int, limit: int) -> tuple[int, set[int]] | None:
        """Return where a range would drive out what gains least, and what that is; None if it drives out too much.

        Args:
            claim: Its size and steps. It has to gain more than what it drives out, none of which must be in.
            unit: What its place is a multiple of.
            limit: Bytes of the memory.
        """
        there = list(self._in_the_way(claim))
        best: tuple[int, int, set[int]] | None = None
        for place in sorted({0, *(end + -end % unit for _, end, _, _ in there)}):
            end = place + claim.size
            driven = [one for one in there if one[0] < end and place < one[1]]
            loss = sum(other.gain for *_, other in driven)
            if end > limit or any(other.must for *_, other in driven) or loss >= claim.gain:
                continue
            if best is None or loss < best[0]:
                best = loss, place, {number for _, _, number, _ in driven}
        return None if best is None else best[1:]

    @property
    def gain(self) -> int:
        """What the ranges that need not be in gain."""
        return sum(claim.gain for claim in self._claims.values() if not claim.must)

    def copy(self) -> PlacedRanges:
        """Return the same ranges, to try something."""
        variant = PlacedRanges()
        variant.offset, variant._claims = dict(self.offset), dict(self._claims)
        return variant

    def live_bytes(self, claim: Claim) -> int:
        """Return the most bytes of ranges that are needed at one step at which a claim is needed too."""
        return fullest_step(
            (max(other.first, claim.first), other.last, other.size)
            for other in self._claims.values()
            if other.first <= claim.last and claim.first <= other.last
        )[1]

    def _in_the_way(self, claim: Claim) -> Iterator[tuple[int, int, int, Claim]]:
        """Yield first byte, end, number and claim of the ranges that are needed together with a claim."""
        for number, other in self._claims.items():
            if other.size and other.first <= claim.last and claim.first <= other.last:
                yield self.offset[number], self.offset[number] + other.size, number, other


# How often ranges may drive out others, for every range.
_EXCHANGES = 2


@dataclass(frozen=True, slots=True)
class Bin:
    """A memory and what wants to be in it.

    Attributes:
        claims: Sizes, steps and gains, by number.
        units: What the place of each is a multiple of.
        limit: Bytes of the memory.
    """

    claims: Mapping[int, Claim]
    units: Mapping[int, int]
    limit: int

    def ranges(self, offsets: Mapping[int, int]) -> PlacedRanges:
        """Return ranges with places that are known."""
        ranges = PlacedRanges()
        for one, offset in offsets.items():
            ranges.put(one, self.claims[one], offset)
        return ranges

    def cut(self, ranges: PlacedRanges) -> None:
        """Take out what lies beyond the end of the memory."""
        for one in ranges.beyond(self.limit):
            ranges.remove(one)

    def missing(self, ranges: PlacedRanges) -> list[int]:
        """Return what is not in, what gains most first."""
        left = [one for one in self.claims if one not in ranges.offset]
        return sorted(left, key=lambda one: (-self.claims[one].gain, one))

    def holds_what_must(self, ranges: PlacedRanges) -> bool:
        """Return whether all that must be in is in."""
        return all(one in ranges.offset for one, claim in self.claims.items() if claim.must)

    def fill(self, ranges: PlacedRanges, order: Collection[int]) -> None:
        """Put what is not in yet into gaps, in the given order, after what must be in."""
        for one in sorted(
            (one for one in order if one not in ranges.offset), key=lambda one: not self.claims[one].must
        ):
            ranges.insert(one, self.claims[one], self.units[one], self.limit)

    def filled(self, ranges: PlacedRanges) -> list[PlacedRanges]:
        """Return the ranges with as much besides as gaps hold, in several orders."""
        found = []
        for order in self._orders():
            trial = ranges.copy()
            self.fill(trial, order)
            found.append(trial)
        return found

    def exchanged(self, ranges: PlacedRanges) -> PlacedRanges:
        """Let what is not in drive out what gains less, as long as that gains something."""
        left = _EXCHANGES * len(self.claims)
        improved = True
        while improved and left > 0:
            improved = False
            for one in self.missing(ranges):
                left -= 1
                trial = self._with(ranges, one)
                if trial is not None and trial.gain > ranges.gain:
                    ranges, improved = trial, True
        return ranges

    def _with(self, ranges: PlacedRanges, one: int) -> PlacedRanges | None:
        found = ranges.cheapest_place(self.claims[one], self.units[one], self.limit)
        if found is None:
            return None
        place, driven = found
        trial = ranges.copy()
        for other in driven:
            trial.remove(other)
        trial.put(one, self.claims[one], place)
        self.fill(trial, self.missing(trial))
        return trial

    def _orders(self) -> list[list[int]]:
        claims = self.claims

        def area(one: int) -> int:
            return claims[one].size * (claims[one].last - claims[one].first + 1)

        return [
            sorted(claims, key=lambda one: (-claims[one].gain, one)),
            sorted(claims, key=lambda one: (-claims[one].gain / area(one), one)),
            sorted(claims, key=lambda one: (-claims[one].gain / claims[one].size, one)),
            sorted(claims, key=lambda one: (-claims[one].size, one)),
            sorted(claims, key=lambda one: (claims[one].first, -claims[one].gain, one)),
        ]


# How often all of a pool is planned again with less or more in it, at most; less often if there are many values.
_TRIALS = 12
_TRIED_VALUES = 6_000


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """Where a value may lie, and what is won.

    Attributes:
        pools: Numbers of pools, the most wanted first; at least one.
        gain: What is won for every pool that the value does not have to leave: bytes that are written to it and read.
    """

    pools: tuple[int, ...]
    gain: int = 0


@dataclass(slots=True)
class PooledPlan:
    """A plan over several pools.

    Attributes:
        problem: The problem, each value with its pool.
        result: Places in the pools; `over_limit` names those that what must be in them does not fit in.
        gains: What each value gains by staying where it is.
        most_gain: For each pool that could not hold all that wanted to be in it, a gain that no choice of values can
            beat, as far as one is known.
        spilled: Values that had to leave a pool, with the number of the first one that they left.
    """

    problem: PlanningProblem
    result: PlanningResult
    gains: list[int]
    most_gain: dict[int, int] = field(default_factory=dict)
    spilled: dict[int, int] = field(default_factory=dict)


def plan_pools(
    problem: PlanningProblem,
    requests: Sequence[PoolRequest],
    order: Sequence[int],
    planner: str | DemandPlanner = "portfolio",
) -> PooledPlan:
    """Choose a pool for every value, and place the values of every pool.

    A value lies in the first pool of its request unless that has a limit and cannot hold all that want to be in it.
    Then those stay that gain most, and the others try the next pool of their request. Values with a base lie where
    their base does; their own request counts for nothing.

    Args:
        problem: What to place; the pools of its values are not examined. Pinned values must request one pool only.
        requests: One for each value. Their pools come in the order in which pools are filled.
        order: Numbers of the pools in the order in which they are filled.
        planner: One of `PLANNERS`, or a function that places the ranges of one pool.

    Returns:
        A plan in which no value is in a pool that it does not request. Values for which a pool is the last one of
        their request stay even if they are more than its limit: see `result.over_limit`.

    Raises:
        UsageError: EK465, if the exact planner is asked for and OR-tools is not installed.
        KeyError: If there is no planner of that name.
    """
    plan = PooledPlan(problem, PlanningResult([0] * len(requests), {}, {}, {}), [request.gain for request in requests])
    filling = _Filling(problem, requests, planner_named(planner), plan)
    waiting: dict[int, list[int]] = {number: [] for number in order}
    for number in filling.claims:
        waiting[requests[number].pools[0]].append(number)
    pool_of = [0] * len(problem.values)
    for pool in order:
        wanting = sorted(waiting[pool])
        staying = filling.fill(pool, wanting)
        for number in wanting:
            if number in staying:
                pool_of[number] = pool
                continue
            requested = requests[number].pools
            plan.spilled.setdefault(number, pool)
            waiting[requested[requested.index(pool) + 1]].append(number)
    roots = storage_roots(problem.values)
    for number, (root, offset) in enumerate(roots):
        plan.result.offsets[number] = plan.result.offsets[root] + offset
    placed = [replace(value, pool=pool_of[root]) for value, (root, _) in zip(problem.values, roots, strict=True)]
    plan.problem = replace(problem, values=placed)
    return plan


def _claims(
    problem: PlanningProblem, requests: Sequence[PoolRequest], roots: Sequence[tuple[int, int]]
) -> dict[int, Claim]:
    """Return what every owner of bytes claims of a memory, views included."""
    timeline = Timeline(problem.bodies, problem.values)
    claims: dict[int, Claim] = {}
    for value, (root, _) in zip(problem.values, roots, strict=True):
        first, last = timeline.span(value)
        known = claims.get(root)
        claims[root] = Claim(
            problem.values[root].nbytes,
            first if known is None else min(first, known.first),
            last if known is None else max(last, known.last),
            requests[root].gain,
        )
    return claims


@dataclass(frozen=True, slots=True)
class _Trial:
    """Places of some owners of bytes in one pool.

    Attributes:
        offsets: First byte of each.
        height: Bytes of the pool that the plan takes.
        bound: Bytes that every plan of them takes.
    """

    offsets: dict[int, int]
    height: int
    bound: int


class _Filling:
    """Fills one pool after the other, and writes the places into the plan."""

    def __init__(
        self, problem: PlanningProblem, requests: Sequence[PoolRequest], place: DemandPlanner, plan: PooledPlan
    ) -> None:
        self._problem = problem
        self._requests = requests
        self._place = place
        self._plan = plan
        self._roots = storage_roots(problem.values)
        self.claims = _claims(problem, requests, self._roots)

    def fill(self, number: int, wanting: Sequence[int]) -> set[int]:
        """Place the values that stay in a pool, and return them."""
        pool = self._problem.pools.get(number, Pool())
        may_leave = {one for one in wanting if self._requests[one].pools[-1] != number and self._size(one, pool)}
        if pool.limit is not None and may_leave and self._planned(wanting, number, pool.limit).height > pool.limit:
            ranges = self._chosen(number, pool, pool.limit, wanting, may_leave)
            if ranges is not None:
                empty = {one: 0 for one in wanting if not self._size(one, pool)}
                self._write(_Trial({**empty, **ranges.offset}, ranges.height, ranges.peak), number)
                return {*empty, *ranges.offset}
            wanting = [one for one in wanting if one not in may_leave]
        trial = self._planned(wanting, number)
        self._write(trial, number)
        if pool.limit is not None and trial.height > pool.limit:
            self._plan.result.over_limit[number] = trial.height - pool.limit
        return set(wanting)

    def _chosen(
        self, number: int, pool: Pool, limit: int, wanting: Sequence[int], may_leave: set[int]
    ) -> PlacedRanges | None:
        """Choose what stays in a pool that is too small, and place it; None if what must stay does not fit."""
        listed = [one for one in wanting if self._size(one, pool)]
        choice = choose_claims([self._claim(one, pool, must=one not in may_leave) for one in listed], limit)
        if choice is None:
            return None
        if choice.is_best:
            self._plan.most_gain[number] = choice.gain
        claims = {one: self._claim(one, pool, must=one not in may_leave) for one in listed}
        bin = Bin(claims, {one: self._unit(one, pool) for one in listed}, limit)
        trials: list[PlacedRanges] = []
        for members in ({listed[place] for place in choice.chosen}, {one for one in listed if one not in may_leave}):
            ranges = bin.ranges(self._planned(members, number, limit).offsets)
            bin.cut(ranges)
            trials += bin.filled(ranges)
        trials = [ranges for ranges in trials if bin.holds_what_must(ranges)]
        if not trials:
            return None
        best = bin.exchanged(max(trials, key=lambda ranges: ranges.gain))
        return self._with_more(best, number, bin)

    def _with_more(self, ranges: PlacedRanges, number: int, bin: Bin) -> PlacedRanges:
        """Plan the pool again with one value more, where enough bytes are free at each step, as long as that works."""
        trials = min(_TRIALS, _TRIED_VALUES // len(bin.claims) + 2)
        for one in bin.missing(ranges):
            claim = bin.claims[one]
            if trials <= 0:
                break
            if ranges.live_bytes(claim) + claim.size > bin.limit:
                continue
            trials -= 1
            again = bin.ranges(self._planned([*ranges.offset, one], number, bin.limit).offsets)
            if not again.beyond(bin.limit):
                ranges = again
        bin.fill(ranges, bin.missing(ranges))
        return ranges

    def _claim(self, one: int, pool: Pool, *, must: bool = False) -> Claim:
        claim = self.claims[one]
        # The naive planner gives bytes to one value only, as if all were needed at once.
        first, last = (0, 0) if self._place is naive_placement else (claim.first, claim.last)
        return Claim(self._size(one, pool), first, last, claim.gain, must)

    def _size(self, one: int, pool: Pool) -> int:
        nbytes = self._problem.values[one].nbytes
        return nbytes + -nbytes % pool.alignment

    def _unit(self, one: int, pool: Pool) -> int:
        return math.lcm(self._problem.values[one].alignment, pool.alignment)

    def _planned(self, members: Collection[int], number: int, enough: int | None = None) -> _Trial:
        """Plan one pool with these owners of bytes and their views alone.

        Args:
            members: The owners.
            number: Number of the pool.
            enough: The search may end with a plan of so many bytes.
        """
        kept = set(members)
        listed = [one for one, (root, _) in enumerate(self._roots) if root in kept]
        place_of = {one: place for place, one in enumerate(listed)}
        values = []
        for one in listed:
            value = self._problem.values[one]
            values.append(replace(value, pool=number, base=None if value.base is None else place_of[value.base]))
        result = solve_planning_problem(replace(self._problem, values=values), _within(self._place, enough))
        offsets = {one: result.offsets[place_of[one]] for one in sorted(kept)}
        return _Trial(offsets, result.pool_nbytes.get(number, 0), result.lower_bounds.get(number, 0))

    def _write(self, trial: _Trial, number: int) -> None:
        result = self._plan.result
        for one, offset in trial.offsets.items():
            result.offsets[one] = offset
        if trial.offsets:
            result.pool_nbytes[number], result.lower_bounds[number] = trial.height, trial.bound


def _within(place: DemandPlanner, enough: int | None) -> DemandPlanner:
    """Return a planner that searches no longer than is needed to know whether a pool holds a demand."""
    if enough is None or place is not smallest_placement:
        return place

    def plan(demand: Demand) -> Placement | ProvedPlacement:
        # Where more is needed than there is, any plan says so.
        return smallest_placement(demand, enough=enough if lower_bound(demand) <= enough else sys.maxsize)

    return plan
