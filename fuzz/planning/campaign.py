"""Many problems through every planner, each plan checked, and how far the plans are from the smallest ones."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

from exirkit.passes import PlanningResult, exact_placement, solve_planning_problem

from .instances import Instance, draw_instance
from .painting import check_limits, check_plan

FAST_PLANNERS = ("naive", "greedy", "portfolio")
# Problems with more values are not asked to be solved exactly.
MOST_VALUES_TO_SOLVE = 14
# What the solver may do for one of them: enough for nearly all.
_WORK = 0.3
_CHUNK = 2000
_KEPT_FINDINGS = 20
GAPS = (0.0, 0.001, 0.01, 0.05, 0.1, 0.25, float("inf"))


@dataclass(slots=True)
class Tally:
    """What a campaign counted.

    Attributes:
        instances: Problems by what they have: `all`, `aliases`, `bodies`, `aliases or bodies`.
        plans: Plans checked, by planner.
        findings: What was wrong, by planner and kind.
        examples: Number of the problem, planner and text of the first findings.
        at_bound: Plans that need no more than the lower bound, by planner.
        gaps: For each planner, solved problems by how much the plan is larger than the optimum: place in `GAPS`.
        solved: Problems whose optimum is known.
        unsolved: Problems given to the solver that it did not finish.
        seconds: Time spent in planning and checking, by part.
    """

    instances: Counter[str] = field(default_factory=Counter)
    plans: Counter[str] = field(default_factory=Counter)
    findings: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: list[tuple[int, str, str]] = field(default_factory=list)
    at_bound: Counter[str] = field(default_factory=Counter)
    gaps: dict[str, Counter[int]] = field(default_factory=dict)
    solved: int = 0
    unsolved: int = 0
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, other: Tally) -> None:
        """Add what another part of the campaign counted."""
        for mine, theirs in (
            (self.instances, other.instances),
            (self.plans, other.plans),
            (self.at_bound, other.at_bound),
        ):
            mine.update(theirs)
        for part, spent in other.seconds.items():
            self.seconds[part] += spent
        self.findings.update(other.findings)
        self.examples = (self.examples + other.examples)[:_KEPT_FINDINGS]
        for planner, gaps in other.gaps.items():
            self.gaps.setdefault(planner, Counter()).update(gaps)
        self.solved += other.solved
        self.unsolved += other.unsolved


def run_campaign(
    instances: int,
    seed: int,
    planners: Sequence[str] = FAST_PLANNERS,
    *,
    exact_every: int = 1,
    workers: int = 1,
) -> Tally:
    """Plan problems 0 to `instances` - 1 of a seed.

    Args:
        instances: How many problems.
        seed: Which ones.
        planners: The planners to run.
        exact_every: Solve every n-th of the small problems that no planner has proved; 0 for none.
        workers: Processes.

    Returns:
        The counts; the same for any number of workers, apart from the seconds.
    """
    chunks = [range(start, min(start + _CHUNK, instances)) for start in range(0, instances, _CHUNK)]
    work = partial(run_chunk, seed, planners=tuple(planners), exact_every=exact_every)
    total = Tally()
    if workers == 1:
        for chunk in chunks:
            total.add(work(chunk))
        return total
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for tally in pool.map(work, chunks):
            total.add(tally)
    return total


def run_chunk(seed: int, numbers: range, *, planners: Sequence[str], exact_every: int) -> Tally:
    """Plan some problems and check the plans."""
    tally = Tally()
    clock = time.perf_counter
    for number in numbers:
        start = clock()
        instance = draw_instance(seed, number)
        _count(tally, instance)
        results: dict[str, PlanningResult] = {}
        tally.seconds["drawing"] += clock() - start
        for planner in planners:
            start = clock()
            result = results[planner] = solve_planning_problem(instance.problem, planner)
            planned = clock()
            _check(tally, instance, planner, result)
            tally.seconds[planner] += planned - start
            tally.seconds["checking"] += clock() - planned
        start = clock()
        if exact_every and number % exact_every == 0:
            _compare(tally, instance, results)
        tally.seconds["solving"] += clock() - start
    return tally


def _count(tally: Tally, instance: Instance) -> None:
    tally.instances["all"] += 1
    tally.instances["aliases"] += instance.has_aliases
    tally.instances["bodies"] += instance.has_bodies
    tally.instances["aliases or bodies"] += instance.has_aliases or instance.has_bodies


def _check(tally: Tally, instance: Instance, planner: str, result: PlanningResult) -> None:
    tally.plans[planner] += 1
    tally.at_bound[planner] += result.is_proved_smallest
    for finding in (*check_plan(instance.problem, result), *check_limits(instance.problem, result)):
        tally.findings[planner, finding.kind] += 1
        if len(tally.examples) < _KEPT_FINDINGS:
            tally.examples.append((instance.number, planner, finding.text))


def _compare(tally: Tally, instance: Instance, results: dict[str, PlanningResult]) -> None:
    """Count how far the plans are from the smallest one, if that is known or can be found."""
    problem = instance.problem
    if sum(value.base is None for value in problem.values) > MOST_VALUES_TO_SOLVE:
        return
    proved = next((result for result in results.values() if result.is_proved_smallest), None)
    if proved is None:
        proved = solve_planning_problem(problem, partial(exact_placement, work=_WORK))
        _check(tally, instance, "exact", proved)
    if not proved.is_proved_smallest:
        tally.unsolved += 1
        return
    tally.solved += 1
    smallest = sum(proved.pool_nbytes.values())
    for planner, result in results.items():
        excess = sum(result.pool_nbytes.values()) / smallest - 1 if smallest else 0.0
        place = next(place for place, gap in enumerate(GAPS) if excess <= gap)
        tally.gaps.setdefault(planner, Counter())[place] += 1
        if excess < 0:
            tally.findings[planner, "bound"] += 1
            tally.examples.append((instance.number, planner, f"smaller than the proved optimum {smallest}"))
