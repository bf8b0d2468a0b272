"""Every planner holds on generated problems, and the checker sees plans that do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from exirkit.fuzz.campaigns import CampaignConfig, Progress, run_here
from exirkit.fuzz.planning import bench, check_limits, check_plan, draw_instance, possible_runs
from exirkit.passes import Body, PlannedValue, PlanningProblem, PlanningResult, Pool, solve_planning_problem


def kinds(problem: PlanningProblem, result: PlanningResult) -> set[str]:
    return {finding.kind for finding in (*check_plan(problem, result), *check_limits(problem, result))}


def campaign(problems: int, **options: Any) -> Progress:
    config = CampaignConfig(bench="exirkit.fuzz.planning:PlanningBench", first_seed=1 << 40, seeds=problems)
    return run_here(config.model_copy(update={"policy": options}))


def test_no_plan_is_wrong_and_few_are_larger_than_they_must_be() -> None:
    pytest.importorskip("ortools")
    progress = campaign(600)
    counts = progress.counts
    assert progress.verdicts == {"passed": 600}, progress.buckets
    assert counts["plans portfolio"] == 600
    assert counts["aliases or bodies"] > 30
    assert counts["solved"] > 400
    assert sum(counts[f"gap portfolio {place}"] for place in range(3)) >= 0.99 * counts["solved"]


def test_a_wrong_planner_is_found_and_its_problem_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_zero(problem: PlanningProblem, planner: Any) -> PlanningResult:
        result = solve_planning_problem(problem, planner)
        return replace(result, offsets=[0] * len(problem.values))

    monkeypatch.setattr(bench, "solve_planning_problem", at_zero)
    made = bench.PlanningBench(CampaignConfig(policy={"planners": ["greedy"], "exact_every": 0}))
    case = next(one for one in map(made.make, range(100)) if made.check(one).verdict == "failed")
    number = next(at for at, one in enumerate(made.check(case).failures) if one.symptom == "overlap")
    analysis = made.analyse(case, number)
    assert (analysis.culprit, analysis.bucket) == ("greedy", "greedy | overlap")
    assert analysis.reduced is not None
    assert analysis.reduced.count("PlannedValue(") == 2


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
