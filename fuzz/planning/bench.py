"""Many problems through every planner, each plan checked, and how far the plans are from the smallest ones."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from exirkit.fuzz.campaigns import Analysis, CampaignConfig, Case, Checked, Found
from exirkit.fuzz.triage import smallest
from exirkit.passes import PlanningProblem, PlanningResult, exact_placement, solve_planning_problem

from .checking import Finding, check_limits, check_plan
from .instances import Instance, draw_instance

FAST_PLANNERS = ("naive", "greedy", "portfolio")
# Problems with more values are not asked to be solved exactly.
MOST_VALUES_TO_SOLVE = 14
# What the solver may do for one of them: enough for nearly all.
_WORK = 0.3
GAPS = (0.0, 0.001, 0.01, 0.05, 0.1, 0.25, float("inf"))
"""By how much a plan is larger than the smallest one: the classes in which plans are counted."""


class PlanningBench:
    """Planners on generated problems. Seeds `S << 40` and following are the problems of seed `S`.

    What is counted: `aliases`, `bodies`, `aliases or bodies` (problems); `plans PLANNER`, `at bound PLANNER`;
    `solved` and `unsolved` problems; `gap PLANNER CLASS`, the class a place in `GAPS`.

    Args:
        config: `policy` may have `planners`, a list of names, and `exact_every`: every n-th of the small problems that
            no planner has proved is solved exactly, 0 for none.
    """

    def __init__(self, config: CampaignConfig) -> None:
        options: Mapping[str, Any] = config.policy or {}
        self._planners = tuple(options.get("planners", FAST_PLANNERS))
        self._exact_every = int(options.get("exact_every", 1))

    def make(self, seed: int) -> Case[Instance]:
        """Draw the problem of a seed."""
        instance = draw_instance(0, seed)
        kinds = {"aliases": instance.has_aliases, "bodies": instance.has_bodies}
        features = frozenset(name for name, is_there in kinds.items() if is_there)
        return Case(seed, instance, steps=len(instance.problem.values), features=features)

    def check(self, case: Case[Instance]) -> Checked:
        """Run every planner, check its plan, and compare with the smallest plan where that is known."""
        problem = case.program.problem
        counts: dict[str, int] = dict.fromkeys(case.features, 1)
        if case.features:
            counts["aliases or bodies"] = 1
        seconds: dict[str, float] = {}
        results: dict[str, PlanningResult] = {}
        for planner in self._planners:
            start = time.perf_counter()
            results[planner] = solve_planning_problem(problem, planner)
            seconds[planner] = time.perf_counter() - start
            counts |= {f"plans {planner}": 1, f"at bound {planner}": int(results[planner].is_proved_smallest)}
        start = time.perf_counter()
        is_compared = self._exact_every > 0 and case.seed % self._exact_every == 0
        if is_compared:
            self._solve(problem, results)
        solved = time.perf_counter()
        failures = [
            _found(planner, finding) for planner, result in results.items() for finding in _findings(problem, result)
        ]
        if is_compared:
            failures += [_found(planner, finding) for planner, finding in _compare(problem, results, counts)]
        seconds |= {"solving": solved - start, "checking": time.perf_counter() - solved}
        return Checked("failed" if failures else "passed", tuple(failures), seconds, counts=counts)

    def analyse(self, case: Case[Instance], number: int) -> Analysis:
        """Leave out values as long as the same planner fails in the same way."""
        found = self.check(case).failures[number]

        def is_bad(problem: PlanningProblem) -> bool:
            result = solve_planning_problem(problem, found.oracle)
            return any(one.kind == found.symptom for one in _findings(problem, result))

        whole = case.program.problem
        small = smallest(whole, [_without_values], is_bad, key=repr) if is_bad(whole) else whole
        return Analysis(seed=case.seed, number=number, bucket=found.bucket, culprit=found.oracle, reduced=f"{small}\n")

    @staticmethod
    def _solve(problem: PlanningProblem, results: dict[str, PlanningResult]) -> None:
        """Solve a small problem exactly unless a planner has proved that its plan is the smallest."""
        is_small = sum(value.base is None for value in problem.values) <= MOST_VALUES_TO_SOLVE
        if is_small and not any(result.is_proved_smallest for result in results.values()):
            results["exact"] = solve_planning_problem(problem, partial(exact_placement, work=_WORK))


def _findings(problem: PlanningProblem, result: PlanningResult) -> list[Finding]:
    return [*check_plan(problem, result), *check_limits(problem, result)]


def _found(planner: str, finding: Finding) -> Found:
    return Found(oracle=planner, symptom=finding.kind, message=finding.text, bucket=f"{planner} | {finding.kind}")


def _compare(
    problem: PlanningProblem, results: Mapping[str, PlanningResult], counts: dict[str, int]
) -> Iterator[tuple[str, Finding]]:
    """Count how far the plans are from the smallest one; yield plans that are smaller than it."""
    if sum(value.base is None for value in problem.values) > MOST_VALUES_TO_SOLVE:
        return
    proved = next((result for result in results.values() if result.is_proved_smallest), None)
    if proved is None:
        counts["unsolved"] = int("exact" in results)
        return
    counts["solved"] = 1
    least = sum(proved.pool_nbytes.values())
    for planner, result in results.items():
        excess = sum(result.pool_nbytes.values()) / least - 1 if least else 0.0
        place = next(place for place, gap in enumerate(GAPS) if excess <= gap)
        counts[f"gap {planner} {place}"] = 1
        if excess < 0:
            yield planner, Finding("bound", f"smaller than the proved optimum {least}")


def _without_values(problem: PlanningProblem) -> Iterator[PlanningProblem]:
    """Leave out one value, with those that lie in it."""
    for gone in range(len(problem.values)):
        dropped = {gone}
        for number, value in enumerate(problem.values):
            if value.base in dropped:
                dropped.add(number)
        kept = [number for number in range(len(problem.values)) if number not in dropped]
        moved = {number: place for place, number in enumerate(kept)}
        values = [problem.values[number] for number in kept]
        values = [value if value.base is None else replace(value, base=moved[value.base]) for value in values]
        if values:
            yield replace(problem, values=values)
