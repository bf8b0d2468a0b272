"""Values in several memories of limited size: on drawn problems, against every choice there is, and by hand."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from exirkit.fuzz.planning import check_limits, check_plan, draw_instance
from exirkit.passes import (
    PlannedValue,
    PlanningProblem,
    Pool,
    PooledPlan,
    PoolRequest,
    plan_pools,
    solve_planning_problem,
)
from exirkit.passes.memory.packing.pools import Bin, Claim, PlacedRanges, choose_claims


def live_bytes(claims: Sequence[Claim], numbers: Sequence[int]) -> int:
    steps = range(max(claim.last for claim in claims) + 1)
    return max(
        sum(claims[number].size for number in numbers if claims[number].first <= step <= claims[number].last)
        for step in steps
    )


@pytest.mark.parametrize("seed", range(120))
def test_no_choice_gains_more(seed: int) -> None:
    draw = random.Random(seed)
    claims = [
        Claim(draw.randint(1, 9), first := draw.randint(0, 9), first + draw.randint(0, 5), draw.randint(0, 20), must)
        for must in (draw.random() < 0.15 for _ in range(8))
    ]
    limit = draw.randint(5, 25)
    must = {number for number, claim in enumerate(claims) if claim.must}
    gains = [
        sum(claims[number].gain for number in chosen if number not in must)
        for count in range(len(claims) + 1)
        for chosen in itertools.combinations(range(len(claims)), count)
        if must <= {*chosen} and live_bytes(claims, chosen) <= limit
    ]
    choice = choose_claims(claims, limit)
    if choice is None:
        assert not gains
        return
    assert choice.is_best
    assert choice.gain == max(gains)
    assert must <= {*choice.chosen}
    assert live_bytes(claims, choice.chosen) <= limit
    assert choice.gain == sum(claims[number].gain for number in choice.chosen if number not in must)


def test_too_many_ranges_to_examine_every_choice() -> None:
    draw = random.Random(5)
    claims = [
        Claim(draw.randint(1, 9), first := draw.randint(0, 400), first + draw.randint(0, 60), draw.randint(1, 20))
        for _ in range(400)
    ]
    choice = choose_claims(claims, 80)
    assert choice is not None
    assert not choice.is_best
    assert live_bytes(claims, choice.chosen) <= 80
    simple = choose_claims([replace(claim, gain=1) for claim in claims[:40]], 10**6)
    assert simple is not None
    assert simple.gain == 40


def drawn(number: int) -> tuple[PlanningProblem, list[PoolRequest], list[int], str]:
    """Return a problem with limits that bind, requests, the order of its pools, and a planner."""
    draw = random.Random(number)
    problem = draw_instance(11, number).problem
    order = draw.sample(range(1, 6), draw.choice((1, 2, 2, 3)))
    planner = draw.choice(("portfolio", "portfolio", "greedy", "naive"))
    whole = sum(value.nbytes for value in problem.values if value.base is None)
    pools = {}
    for pool in order:
        limit = int(whole * draw.random() * 0.4) if draw.random() < 0.7 else None
        pools[pool] = Pool(draw.choice((1, 16, 64)), limit)
    requests = []
    for value in problem.values:
        start = draw.randrange(len(order))
        ways = order[start:] if draw.random() < 0.8 and value.pinned is None else order[start : start + 1]
        requests.append(PoolRequest(tuple(ways), value.nbytes * draw.randint(1, 5)))
    # What is pinned in one problem may overlap if pools are mixed; the pins are not what is tried here.
    values = [replace(value, pinned=None) for value in problem.values]
    return replace(problem, values=values, pools=pools), requests, order, planner


def root_of(problem: PlanningProblem, number: int) -> int:
    while (base := problem.values[number].base) is not None:
        number = base
    return number


def fits_besides(plan: PooledPlan, number: int, pool: int) -> bool:
    """Whether a value fits into a pool as it is filled, at any place that begins at 0 or where another one ends."""
    space = plan.problem.pools[pool]
    values, offsets = list(plan.problem.values), list(plan.result.offsets)
    members = [one for one, value in enumerate(values) if value.pool == pool and value.nbytes]
    starts = {0, *(offsets[one] + values[one].nbytes for one in members)}
    family = [one for one in range(len(values)) if root_of(plan.problem, one) == number]
    for start in sorted(starts):
        start += -start % space.alignment
        start += -start % values[number].alignment
        if start + values[number].nbytes + -values[number].nbytes % space.alignment > (space.limit or 0):
            continue
        moved = offsets[number] - start
        tried = [replace(value, pool=pool) if one in family else value for one, value in enumerate(values)]
        there = [offset - moved if one in family else offset for one, offset in enumerate(offsets)]
        result = replace(plan.result, offsets=there)
        if not any(each.kind == "overlap" for each in check_plan(replace(plan.problem, values=tried), result)):
            return True
    return False


@pytest.mark.parametrize("block", range(5))
def test_drawn_policies_on_drawn_problems(block: int) -> None:
    spilled = overfull = 0
    for number in range(block * 60, block * 60 + 60):
        problem, requests, order, planner = drawn(number)
        plan = plan_pools(problem, requests, order, planner)
        assert plan == plan_pools(problem, requests, order, planner)
        assert not check_plan(plan.problem, plan.result), number
        assert {each.kind for each in check_limits(plan.problem, plan.result)} <= {"limit"}, number
        for one, value in enumerate(plan.problem.values):
            way = requests[root_of(problem, one)].pools
            assert value.pool in way, number
            left = plan.spilled.get(one)
            assert value.base is not None or (left is None) == (value.pool == way[0]), number
        for one, pool in plan.spilled.items():
            if len(problem.bodies) == 1 and pool not in plan.result.over_limit and planner != "naive":
                assert not fits_besides(plan, one, pool), (number, one)
        for pool, missing in plan.result.over_limit.items():
            # Nothing is in a pool that is too full but what must not go anywhere else.
            for one, value in enumerate(plan.problem.values):
                inside = value.pool == pool and value.base is None and value.nbytes
                assert not inside or requests[one].pools[-1] == pool, number
            assert plan.result.pool_nbytes[pool] - missing == problem.pools[pool].limit, number
        for pool, most in plan.most_gain.items():
            kept = [
                request.gain
                for request, value in zip(requests, plan.problem.values, strict=True)
                if value.pool == pool and value.base is None and request.pools[-1] != pool and value.nbytes
            ]
            # Values of alternatives are counted as if they ran together.
            assert sum(kept) <= most or len(problem.bodies) > 1, number
        spilled += len(plan.spilled)
        overfull += len(plan.result.over_limit)
    assert spilled > 30
    assert overfull


@pytest.mark.parametrize("seed", range(12))
def test_problems_whose_choices_leave_gaps(seed: int) -> None:
    """What is chosen by sums of live bytes often cannot be placed here, and some of it has to leave again."""
    draw = random.Random(seed)
    values = [
        PlannedValue(draw.randint(1, 40) * 10, first := draw.randint(0, 60), first + draw.randint(0, 9),
                     alignment=draw.choice((1, 1, 64)))
        for _ in range(70)
    ]  # fmt: skip
    for _ in range(8):
        # Views, of which some are needed when nothing else of the value is.
        base = draw.randrange(70)
        values.append(replace(values[base], last=values[base].last + draw.randint(-1, 6), base=base))
        values[-1] = replace(values[-1], last=max(values[-1].first, values[-1].last))
    ways = [(1, 2, 3) if draw.random() < 0.97 else (1,) for _ in values]
    requests = [PoolRequest(way, value.nbytes * draw.randint(1, 5)) for way, value in zip(ways, values, strict=True)]
    pools = {1: Pool(16, draw.randint(900, 1600)), 2: Pool(1, draw.randint(300, 900)), 3: Pool()}
    plan = plan_pools(PlanningProblem(values, pools), requests, [1, 2, 3])
    assert not check_plan(plan.problem, plan.result)
    assert bool(check_limits(plan.problem, plan.result)) == bool(plan.result.over_limit)
    for one, pool in plan.spilled.items():
        assert pool in plan.result.over_limit or not fits_besides(plan, one, pool), one
    for pool, most in plan.most_gain.items():
        inside = [one for one, value in enumerate(plan.problem.values) if value.pool == pool and value.base is None]
        gained = sum(requests[one].gain for one in inside if requests[one].pools[-1] != pool)
        assert 0.9 * most <= gained <= most


def test_a_range_is_put_into_the_lowest_gap_that_holds_it() -> None:
    ranges = PlacedRanges()
    ranges.put(0, Claim(10, 0, 9, 0), 0)
    ranges.put(1, Claim(10, 0, 4, 0), 30)
    ranges.put(2, Claim(10, 5, 9, 0), 50)
    assert ranges.insert(3, Claim(20, 0, 9, 0), 1, 100)
    assert ranges.offset[3] == 10
    assert ranges.insert(4, Claim(20, 5, 9, 0), 1, 100)
    assert ranges.offset[4] == 30
    assert ranges.insert(5, Claim(7, 0, 9, 0), 16, 100)
    assert ranges.offset[5] == 64
    assert not ranges.insert(6, Claim(30, 0, 0, 0), 16, 100)
    assert (ranges.height, ranges.peak, ranges.beyond(64)) == (71, 67, {5})
    assert ranges.live_bytes(Claim(0, 5, 5, 0)) == 67
    ranges.remove(0)
    assert ranges.insert(7, Claim(10, 3, 3, 0), 4, 100)
    assert ranges.offset[7] == 0


def test_what_gains_more_drives_out_what_gains_less() -> None:
    claims = {0: Claim(60, 0, 9, 5), 1: Claim(30, 0, 4, 4, must=True), 2: Claim(70, 0, 9, 9), 3: Claim(20, 6, 9, 1)}
    bin = Bin(claims, dict.fromkeys(claims, 10), 100)
    ranges = bin.exchanged(bin.ranges({0: 0, 1: 70}))
    assert ranges.offset.keys() == {1, 2, 3}
    assert not ranges.beyond(100)
    assert ranges.gain == 10
    assert bin.exchanged(ranges).offset == ranges.offset


@pytest.mark.parametrize("number", range(0, 400, 8))
def test_what_fits_stays(number: int) -> None:
    problem, requests, order, planner = drawn(number)
    if any(value.base is not None for value in problem.values):
        return
    first = replace(
        problem,
        values=[replace(value, pool=request.pools[0]) for value, request in zip(problem.values, requests, strict=True)],
    )
    result = solve_planning_problem(first, planner)
    plan = plan_pools(problem, requests, order, planner)
    lowest = min((order.index(pool) for pool in plan.spilled.values()), default=len(order))
    full = [pool for pool in order if pool in result.over_limit]
    # The first pool of the order that does not hold what wants to be in it is the first that something leaves.
    for pool in full[:1]:
        may_leave = any(
            request.pools[0] == pool and request.pools[-1] != pool and value.nbytes
            for request, value in zip(requests, problem.values, strict=True)
        )
        assert order.index(pool) == lowest or not may_leave
    assert full or not plan.spilled


def test_what_is_read_most_stays() -> None:
    values = [PlannedValue(600, 0, 9), PlannedValue(400, 1, 4), PlannedValue(500, 1, 2), PlannedValue(900, 5, 9)]
    requests = [
        PoolRequest((1, 2), 1200),
        PoolRequest((1, 2), 2000),
        PoolRequest((1, 2), 1000),
        PoolRequest((2, 1), 99),
    ]
    problem = PlanningProblem(values, {1: Pool(limit=1000), 2: Pool()})
    plan = plan_pools(problem, requests, [1, 2])
    assert [value.pool for value in plan.problem.values] == [1, 1, 2, 2]
    assert plan.spilled == {2: 1}
    assert plan.most_gain == {1: 3200}
    assert plan.result.pool_nbytes == {1: 1000, 2: 900}


def test_a_range_that_must_stay_drives_out_what_gains_more() -> None:
    values = [PlannedValue(600, 0, 3), PlannedValue(600, 0, 3)]
    requests = [PoolRequest((1,), 0), PoolRequest((1, 2), 10**9)]
    plan = plan_pools(PlanningProblem(values, {1: Pool(limit=1000), 2: Pool()}), requests, [1, 2])
    assert [value.pool for value in plan.problem.values] == [1, 2]
    assert not plan.result.over_limit


def test_every_pool_may_be_too_small() -> None:
    values = [PlannedValue(600, 0, 3), PlannedValue(700, 0, 3), PlannedValue(50, 0, 3)]
    requests = [PoolRequest((1, 2), 1), PoolRequest((1, 2), 2), PoolRequest((1, 2), 3)]
    plan = plan_pools(PlanningProblem(values, {1: Pool(limit=640), 2: Pool(limit=512)}), requests, [1, 2])
    assert [value.pool for value in plan.problem.values] == [1, 2, 2] or plan.result.over_limit
    assert plan.result.over_limit.keys() == {2}
