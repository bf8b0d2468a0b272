"""Planners over problems in plain numbers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exirkit.passes.memory.packing.search import Effort, exact_placement, smallest_placement
from exirkit.passes.memory.planners import PLANNERS, solve_planning_problem
from exirkit.passes.memory.problem import (
    Alternatives,
    Body,
    Demand,
    DensePacker,
    PlannedValue,
    PlanningProblem,
    Pool,
    SparsePacker,
    Timeline,
    lower_bound,
    peak_bytes,
)


def random_demand(seed: int, count: int, steps: int) -> Demand:
    draw = random.Random(seed)
    demand = Demand([], [], [])
    for _ in range(count):
        first = draw.randrange(steps)
        demand.first.append(first)
        demand.last.append(min(steps - 1, first + int(draw.random() ** 3 * steps)))
        demand.size.append(16 * draw.randrange(1, 200))
    return demand


def test_steps_of_bodies_follow_the_step_that_runs_them() -> None:
    bodies = (Body(-1, 0), Body(0, 2), Body(0, 2), Body(2, 1))
    values = [PlannedValue(1, 0, 5), PlannedValue(1, 0, 2, body=1), PlannedValue(1, 0, 1, body=2)]
    inner = PlannedValue(1, 0, 3, body=3, last_body=0)
    timeline = Timeline(bodies, [*values, inner])
    # Places: 0, 1, 2 | 3 4 5 | 6 7 (8) | 9, 10, 11: the call at step 2 begins at 2 and ends at 8.
    assert timeline.span(values[1]) == (3, 5)
    assert timeline.span(values[2]) == (6, 8)
    assert timeline.span(inner) == (8, 9)
    assert timeline.span(values[0]) == (0, 11)
    assert [bin(mask) for mask in Alternatives(bodies).excluded] == ["0b0", "0b1100", "0b10", "0b10"]


def test_the_bound_counts_one_of_several_alternatives() -> None:
    bodies = (Body(-1, 0), Body(0, 1), Body(0, 1))
    values = [PlannedValue(10, 0, 3), *(PlannedValue(7, 0, 3, body=body, last_body=0) for body in (1, 2))]
    result = solve_planning_problem(PlanningProblem(values, {}, bodies))
    assert result.lower_bounds == result.pool_nbytes == {1: 17}
    assert result.is_proved_smallest


def test_single_alignments_and_pools() -> None:
    values = [PlannedValue(1, 0, 1), PlannedValue(8, 0, 1, alignment=8), PlannedValue(3, 0, 1, pool=2)]
    for planner in ("naive", "greedy", "portfolio"):
        result = solve_planning_problem(PlanningProblem(values, {2: Pool(4, 2)}), planner)
        assert result.offsets[1] % 8 == 0
        assert result.pool_nbytes[2] == 4
        assert result.over_limit == {2: 2}
    assert solve_planning_problem(PlanningProblem(values)).pool_nbytes == {1: 9, 2: 3}


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 60))
def test_packers_agree_about_alternatives_and_alignments(seed: int, count: int) -> None:
    draw = random.Random(seed)
    demand = random_demand(seed, count, 12)
    demand.alternatives = Alternatives((Body(-1, 0), Body(0, 3), Body(0, 3), Body(2, 1), Body(2, 1)))
    demand.body = [draw.randrange(5) for _ in range(count)]
    if draw.random() < 0.5:
        demand.alignment = [draw.choice((16, 32, 64)) for _ in range(count)]
    order = draw.sample(range(count), count)
    for tight in (False, True):
        sparse, dense = SparsePacker(demand).pack(order, tight=tight), DensePacker(demand).pack(order, tight=tight)
        assert sparse == dense
    assert peak_bytes(demand) <= sparse.height


def test_more_effort_is_never_worse_and_repeats() -> None:
    for seed in range(20):
        demand = random_demand(seed, 40, 20)
        short, long = smallest_placement(demand, effort=Effort(0.1)), smallest_placement(demand, effort=Effort(3.0))
        assert lower_bound(demand) <= long.height <= short.height
        assert smallest_placement(demand, effort=Effort(3.0)) == long


def test_exact_is_a_smallest_plan_and_says_so() -> None:
    pytest.importorskip("ortools")
    # What heuristics leave at 160 bytes fits into the 144 that are live at once.
    rows = ((48, 1, 3), (48, 0, 0), (32, 1, 3), (32, 0, 1), (32, 3, 3), (48, 0, 0), (16, 3, 3), (48, 2, 2), (32, 1, 1))
    problem = PlanningProblem([PlannedValue(*row) for row in rows])
    result = solve_planning_problem(problem, "exact")
    assert result.pool_nbytes == {1: 144}
    assert result.is_proved_smallest
    assert solve_planning_problem(problem, "exact") == result
    # A gap below what is pinned that nothing fits into: no plan is as small as the bytes that are live.
    pinned = PlanningProblem([PlannedValue(16, 0, 1, pinned=16), PlannedValue(32, 0, 1)])
    assert solve_planning_problem(pinned, "portfolio").lower_bounds == {1: 48}
    assert (
        solve_planning_problem(pinned, "exact").lower_bounds
        == solve_planning_problem(pinned, "exact").pool_nbytes
        == {1: 64}
    )


def test_exact_states_a_gap_when_it_gives_up() -> None:
    pytest.importorskip("ortools")
    demand = random_demand(4, 60, 10)
    start = smallest_placement(demand, effort=Effort(0.0))
    given_up = exact_placement(demand, start, work=1e-4)
    assert given_up.bound <= given_up.placement.height <= start.height


def test_every_planner_has_a_name() -> None:
    assert list(PLANNERS) == ["naive", "greedy", "portfolio", "exact"]
