"""Every planner holds on generated problems, and the checker sees plans that do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exirkit.fuzz.planning import check_limits, check_plan, draw_instance, possible_runs, run_campaign
from exirkit.passes import Body, PlannedValue, PlanningProblem, PlanningResult, Pool, solve_planning_problem


def kinds(problem: PlanningProblem, result: PlanningResult) -> set[str]:
    return {finding.kind for finding in (*check_plan(problem, result), *check_limits(problem, result))}


def test_no_plan_is_wrong_and_few_are_larger_than_they_must_be() -> None:
    pytest.importorskip("ortools")
    tally = run_campaign(600, 1)
    assert not tally.findings, tally.examples
    assert tally.plans["portfolio"] == 600
    assert tally.instances["aliases or bodies"] > 30
    assert tally.solved > 400
    assert sum(count for place, count in tally.gaps["portfolio"].items() if place <= 2) >= 0.99 * tally.solved


def test_counts_do_not_depend_on_the_cut() -> None:
    whole, parts = run_campaign(40, 7, exact_every=0), run_campaign(40, 7, exact_every=0)
    whole.seconds.clear()
    parts.seconds.clear()
    assert whole == parts


def test_problems_come_from_their_number() -> None:
    assert draw_instance(3, 17) == draw_instance(3, 17)
    assert draw_instance(3, 17) != draw_instance(4, 17)


def test_the_checker_sees_each_fault() -> None:
    values = [PlannedValue(32, 0, 2), PlannedValue(16, 2, 3), PlannedValue(16, 3, 3)]
    problem = PlanningProblem(values, {1: Pool(16, 48)})
    good = PlanningResult([0, 32, 0], {1: 48}, {1: 48}, {})
    assert not kinds(problem, good)
    assert kinds(problem, replace(good, offsets=[0, 16, 0])) == {"overlap"}
    assert kinds(problem, replace(good, offsets=[0, 32, 8])) == {"misaligned"}
    assert kinds(problem, replace(good, offsets=[0, 48, 0])) == {"outside"}
    assert kinds(problem, replace(good, pool_nbytes={1: 64})) == {"limit"}
    assert kinds(problem, replace(good, lower_bounds={1: 64})) == {"bound"}
    pinned = PlanningProblem([replace(values[0], pinned=16), *values[1:]], problem.pools)
    assert kinds(pinned, good) == {"moved"}


def test_the_checker_sees_a_view_that_outlives_its_base() -> None:
    base = PlannedValue(64, 0, 1)
    view = PlannedValue(16, 1, 4, base=0, base_offset=32)
    later = PlannedValue(64, 3, 4)
    problem = PlanningProblem([base, view, later], {1: Pool()})
    assert kinds(problem, PlanningResult([0, 32, 0], {1: 64}, {1: 64}, {})) == {"overlap"}
    assert kinds(problem, PlanningResult([0, 0, 64], {1: 128}, {1: 128}, {})) == {"moved"}
    assert not kinds(problem, solve_planning_problem(problem))


# A branch computes what is used after the conditional; the other branch may use the same bytes.
BRANCHES = (Body(-1, 0), Body(0, 1), Body(0, 1), Body(2, 0))
IN_BRANCHES = (
    PlannedValue(16, 0, 1),
    PlannedValue(16, 0, 3, body=1, last_body=0),
    PlannedValue(16, 1, 3, body=2, last_body=0),
    PlannedValue(8, 0, 0, body=3),
    PlannedValue(16, 2, 3),
)


def test_alternatives_share_bytes_and_nothing_else_does() -> None:
    problem = PlanningProblem(IN_BRANCHES, {1: Pool(8)}, BRANCHES)
    assert len(list(possible_runs(problem))) == 2
    for planner in ("naive", "greedy", "portfolio"):
        result = solve_planning_problem(problem, planner)
        assert not kinds(problem, result)
    assert solve_planning_problem(problem).pool_nbytes == {1: 32}
    assert solve_planning_problem(problem).lower_bounds == {1: 32}
    parent_overwritten = PlanningResult([0, 0, 16, 24, 32], {1: 48}, {1: 32}, {})
    assert kinds(problem, parent_overwritten) == {"overlap"}
    result_overwritten = PlanningResult([0, 16, 16, 32, 16], {1: 48}, {1: 32}, {})
    assert kinds(problem, result_overwritten) == {"overlap"}
