"""Several memories of limited size: each is filled with what gains most, and the rest goes to the next one."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from exirkit.passes.memory.planners import DemandPlanner, naive_placement, planner_named, solve
from exirkit.passes.memory.problem import PlanningProblem, PlanningResult, Pool, Timeline, storage_roots

from .bin import Shelf
from .demand import Demand, Placement, lower_bound
from .exact import ProvedPlacement
from .fitting import Claim, choose_claims
from .gaps import PlacedRanges
from .search import smallest_placement

# How often all of a pool is planned again with less or more in it, at most; less often if there are many values.
_TRIALS = 12
_TRIED_VALUES = 6_000


@dataclass(frozen=True, slots=True)
class PoolWish:
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
    wishes: Sequence[PoolWish],
    order: Sequence[int],
    planner: str | DemandPlanner = "portfolio",
) -> PooledPlan:
    """Choose a pool for every value, and place the values of every pool.

    A value lies in the first pool of its wish unless that has a limit and cannot hold all that want to be in it. Then
    those stay that gain most, and the others try the next pool of their wish. Values with a base lie where their base
    does; their own wish counts for nothing.

    Args:
        problem: What to place; the pools of its values are not looked at. Pinned values must wish for one pool only.
        wishes: One for each value. Their pools come in the order in which pools are filled.
        order: Numbers of the pools in the order in which they are filled.
        planner: One of `PLANNERS`, or a function that places the ranges of one pool.

    Returns:
        A plan in which no value is in a pool that it does not wish for. Values for which a pool is the last one of
        their wish stay even if they are more than its limit: see `result.over_limit`.

    Raises:
        UsageError: EK465, if the exact planner is asked for and OR-tools is not installed.
        KeyError: If there is no planner of that name.
    """
    plan = PooledPlan(problem, PlanningResult([0] * len(wishes), {}, {}, {}), [wish.gain for wish in wishes])
    filling = _Filling(problem, wishes, planner_named(planner), plan)
    waiting: dict[int, list[int]] = {number: [] for number in order}
    for number in filling.claims:
        waiting[wishes[number].pools[0]].append(number)
    pool_of = [0] * len(problem.values)
    for pool in order:
        wanting = sorted(waiting[pool])
        staying = filling.fill(pool, wanting)
        for number in wanting:
            if number in staying:
                pool_of[number] = pool
                continue
            wished = wishes[number].pools
            plan.spilled.setdefault(number, pool)
            waiting[wished[wished.index(pool) + 1]].append(number)
    roots = storage_roots(problem.values)
    for number, (root, offset) in enumerate(roots):
        plan.result.offsets[number] = plan.result.offsets[root] + offset
    placed = [replace(value, pool=pool_of[root]) for value, (root, _) in zip(problem.values, roots, strict=True)]
    plan.problem = replace(problem, values=placed)
    return plan


def _claims(problem: PlanningProblem, wishes: Sequence[PoolWish], roots: Sequence[tuple[int, int]]) -> dict[int, Claim]:
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
            wishes[root].gain,
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
        self, problem: PlanningProblem, wishes: Sequence[PoolWish], place: DemandPlanner, plan: PooledPlan
    ) -> None:
        self._problem = problem
        self._wishes = wishes
        self._place = place
        self._plan = plan
        self._roots = storage_roots(problem.values)
        self.claims = _claims(problem, wishes, self._roots)

    def fill(self, number: int, wanting: Sequence[int]) -> set[int]:
        """Place the values that stay in a pool, and return them."""
        pool = self._problem.pools.get(number, Pool())
        may_leave = {one for one in wanting if self._wishes[one].pools[-1] != number and self._size(one, pool)}
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
        shelf = Shelf(claims, {one: self._unit(one, pool) for one in listed}, limit)
        trials: list[PlacedRanges] = []
        for members in ({listed[place] for place in choice.chosen}, {one for one in listed if one not in may_leave}):
            ranges = shelf.ranges(self._planned(members, number, limit).offsets)
            shelf.cut(ranges)
            trials += shelf.filled(ranges)
        trials = [ranges for ranges in trials if shelf.holds_what_must(ranges)]
        if not trials:
            return None
        best = shelf.exchanged(max(trials, key=lambda ranges: ranges.gain))
        return self._with_more(best, number, shelf)

    def _with_more(self, ranges: PlacedRanges, number: int, shelf: Shelf) -> PlacedRanges:
        """Plan the pool again with one value more, where enough bytes are free at each step, as long as that works."""
        trials = min(_TRIALS, _TRIED_VALUES // len(shelf.claims) + 2)
        for one in shelf.missing(ranges):
            claim = shelf.claims[one]
            if trials <= 0:
                break
            if ranges.live_bytes(claim) + claim.size > shelf.limit:
                continue
            trials -= 1
            again = shelf.ranges(self._planned([*ranges.offset, one], number, shelf.limit).offsets)
            if not again.beyond(shelf.limit):
                ranges = again
        shelf.fill(ranges, shelf.missing(ranges))
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
        result = solve(replace(self._problem, values=values), _within(self._place, enough))
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
