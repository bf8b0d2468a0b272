"""Several memories of limited size: each is filled with what gains most, and the rest goes to the next one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from .demand import Demand, Placement, lower_bound
from .exact import ProvedPlacement
from .fitting import Claim, Load, choose_claims
from .planners import DemandPlanner, naive_placement, planner_named, solve
from .problem import PlanningProblem, PlanningResult, Pool, Timeline, storage_roots
from .search import smallest_placement

# How often a pool is planned again with less or more in it, at most; fewer times if there are many values.
_TRIALS = 60
_TRIED_VALUES = 20_000


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
        is_best: For every pool with a limit whether no other choice of values could gain more there.
        gains: What each value gains by staying where it is.
        spilled: Values that had to leave a pool, with the number of the first one that they left.
    """

    problem: PlanningProblem
    result: PlanningResult
    is_best: dict[int, bool]
    spilled: dict[int, int]
    gains: list[int]


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
        problem: What to place; the pools of its values are not looked at.
        wishes: One for each value. Their pools come in the order in which pools are filled.
        order: Numbers of the pools in the order in which they are filled.
        planner: One of `PLANNERS`, or a function that places the ranges of one pool.

    Returns:
        A plan in which no value is in a pool that it does not wish for. Values for which a pool is the last one of
        their wish stay even if they are more than its limit: see `result.over_limit`.
    """
    place = planner_named(planner)
    roots = storage_roots(problem.values)
    owners = [number for number, (root, _) in enumerate(roots) if root == number]
    filling = _Filling(problem, wishes, place, _claims(problem, wishes, roots))
    waiting: dict[int, list[int]] = {number: [] for number in order}
    for number in owners:
        waiting[wishes[number].pools[0]].append(number)
    plan = PooledPlan(problem, PlanningResult([], {}, {}, {}), {}, {}, [wish.gain for wish in wishes])
    pool_of = [0] * len(problem.values)
    for pool in order:
        staying, leaving = filling.fill(pool, sorted(waiting[pool]), plan.is_best)
        for number in staying:
            pool_of[number] = pool
        for number in leaving:
            wished = wishes[number].pools
            plan.spilled.setdefault(number, pool)
            waiting[wished[wished.index(pool) + 1]].append(number)
    placed = [replace(value, pool=pool_of[root]) for value, (root, _) in zip(problem.values, roots, strict=True)]
    plan.problem = replace(problem, values=placed)
    plan.result = solve(plan.problem, place)
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


class _Filling:
    def __init__(
        self,
        problem: PlanningProblem,
        wishes: Sequence[PoolWish],
        place: DemandPlanner,
        claims: Mapping[int, Claim],
    ) -> None:
        self._problem = problem
        self._wishes = wishes
        self._place = place
        self._claims = claims
        self._roots = storage_roots(problem.values)
        self._trials = 0

    def fill(self, number: int, wanting: list[int], is_best: dict[int, bool]) -> tuple[list[int], list[int]]:
        """Return which of the values stay in a pool, and which leave it."""
        pool = self._problem.pools.get(number, Pool())
        limit = pool.limit
        if limit is None:
            return wanting, []
        is_best[number] = True
        may_leave = [one for one in wanting if self._wishes[one].pools[-1] != number and self._size(one, pool)]
        if not may_leave or self._fits(wanting, number, limit):
            return wanting, []
        staying, is_best[number] = self._chosen(number, pool, limit, wanting, set(may_leave))
        kept = set(staying)
        return staying, [one for one in wanting if one not in kept]

    def _chosen(
        self, number: int, pool: Pool, limit: int, wanting: list[int], may_leave: set[int]
    ) -> tuple[list[int], bool]:
        self._trials = min(_TRIALS, _TRIED_VALUES // len(wanting) + 4)
        empty = [one for one in wanting if not self._size(one, pool)]
        listed = [one for one in wanting if self._size(one, pool)]
        claims = [self._claim(one, pool, must=one not in may_leave) for one in listed]
        choice = choose_claims(claims, limit)
        if choice is None:
            return sorted({*wanting} - may_leave), True
        staying = {listed[place] for place in choice.chosen}
        while not self._fits(staying, number, limit):
            leaving = self._least_of_top(sorted(staying), number, limit, may_leave)
            if not leaving:
                return sorted({*wanting} - may_leave), True
            staying -= leaving
        self._add_more(staying, number, pool, limit, listed)
        gained = sum(self._claims[one].gain for one in staying & may_leave)
        return sorted([*staying, *empty]), choice.is_best and gained >= choice.gain

    def _least_of_top(self, staying: Collection[int], number: int, limit: int, may_leave: set[int]) -> set[int]:
        """Return what to take out of a pool that is too full: of what lies beyond the limit the one that gains least.

        After many trials it is all of it that may leave.
        """
        result, place_of = self._solved(staying, number)
        beyond = [
            one
            for one in staying
            if one in may_leave and result.offsets[place_of[one]] + self._problem.values[one].nbytes > limit
        ]
        self._trials -= 1
        if not beyond:
            # What lies beyond must stay, so something else has to make room for it.
            beyond = [one for one in staying if one in may_leave]
        if self._trials <= 0:
            return set(beyond)
        return set(sorted(beyond, key=lambda one: (self._claims[one].gain / self._claims[one].size, one))[:1])

    def _add_more(self, staying: set[int], number: int, pool: Pool, limit: int, listed: list[int]) -> None:
        """Put in what fits besides: gaps that bytes live at once do not show, or what was taken out in vain."""
        load = Load([(self._claims[one].first, self._claims[one].last) for one in listed])
        # Results that outlive a branch share bytes with its alternatives, which the sum does not know.
        is_exact = len(self._problem.bodies) == 1
        for one in staying:
            claim = self._claim(one, pool)
            load.add(claim.first, claim.last, claim.size)
        for one in sorted({*listed} - staying, key=lambda one: (-self._claims[one].gain, one)):
            claim = self._claim(one, pool)
            if is_exact and load.most(claim.first, claim.last) + claim.size > limit:
                continue
            if self._trials <= 0:
                return
            self._trials -= 1
            if self._fits([*staying, one], number, limit):
                staying.add(one)
                load.add(claim.first, claim.last, claim.size)

    def _claim(self, one: int, pool: Pool, *, must: bool = False) -> Claim:
        claim = self._claims[one]
        first, last = (0, 0) if self._place is naive_placement else (claim.first, claim.last)
        return Claim(self._size(one, pool), first, last, claim.gain, must)

    def _size(self, one: int, pool: Pool) -> int:
        nbytes = self._problem.values[one].nbytes
        return nbytes + -nbytes % pool.alignment

    def _fits(self, members: Collection[int], number: int, limit: int) -> bool:
        if self._least(members, number) > limit:
            return False
        return self._solved(members, number)[0].pool_nbytes.get(number, 0) <= limit

    def _least(self, members: Collection[int], number: int) -> int:
        """Return bytes of the fullest step, of which no plan needs less; 0 where alternatives make it hard to say."""
        if len(self._problem.bodies) > 1:
            return 0
        pool = self._problem.pools[number]
        load = Load([(self._claims[one].first, self._claims[one].last) for one in members])
        for one in members:
            load.add(self._claims[one].first, self._claims[one].last, self._size(one, pool))
        return load.peak

    def _solved(self, members: Collection[int], number: int) -> tuple[PlanningResult, dict[int, int]]:
        """Plan one pool with these owners of bytes and their views alone; return also where each one is listed."""
        kept = set(members)
        # In the order of the whole problem, so that the same members are planned the same way in the end.
        listed = [one for one, (root, _) in enumerate(self._roots) if root in kept]
        place_of = {one: place for place, one in enumerate(listed)}
        values = []
        for one in listed:
            value = self._problem.values[one]
            base = None if value.base is None else place_of[value.base]
            values.append(replace(value, pool=number, base=base))
        limit = self._problem.pools[number].limit
        return solve(replace(self._problem, values=values), _within(self._place, limit or 0)), place_of


def _within(place: DemandPlanner, limit: int) -> DemandPlanner:
    """Return a planner that searches no longer than is needed to know whether a pool holds a demand."""

    def plan(demand: Demand) -> Placement | ProvedPlacement:
        if place is smallest_placement and lower_bound(demand) <= limit:
            return smallest_placement(demand, enough=limit)
        return place(demand)

    return plan
