"""The planners under their names, over problems in plain numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from .packing.exact import ProvedPlacement, exact_placement
from .packing.packers import Demand, Placement, lower_bound
from .packing.search import pack_shared_objects, smallest_placement
from .problem import Alternatives, PlanningProblem, PlanningResult, Pool, Timeline, storage_roots

DemandPlanner = Callable[[Demand], Placement | ProvedPlacement]


def solve(problem: PlanningProblem, planner: str | DemandPlanner = "portfolio") -> PlanningResult:
    """Place the values of a problem.

    Values without bytes lie at offset 0 and do not conflict with any others, unless they are pinned. Values with
    a base lie in it, and keep it for as long as they are needed.

    Args:
        problem: What to place; bases must not form a cycle, and what is pinned must not overlap.
        planner: One of `PLANNERS`, or a function that places the ranges of one pool.

    Raises:
        UsageError: EK465, if the exact planner is asked for and OR-tools is not installed.
        KeyError: If there is no planner of that name.
    """
    place = planner_named(planner)
    timeline = Timeline(problem.bodies, problem.values)
    alternatives = Alternatives(problem.bodies) if len(problem.bodies) > 1 else None
    roots = storage_roots(problem.values)
    spans: dict[int, tuple[int, int]] = {}
    for value, (root, _) in zip(problem.values, roots, strict=True):
        first, last = timeline.span(value)
        known = spans.get(root)
        spans[root] = (first, last) if known is None else (min(first, known[0]), max(last, known[1]))
    result = PlanningResult([0] * len(problem.values), {}, {}, {})
    pools: dict[int, list[int]] = {}
    for root in spans:
        pools.setdefault(problem.values[root].pool, []).append(root)
    for number, members in sorted(pools.items()):
        _fill(problem, number, members, spans, alternatives, place, result)
    for index, (root, offset) in enumerate(roots):
        if root != index:
            result.offsets[index] = result.offsets[root] + offset
    return result


def planner_named(planner: str | DemandPlanner) -> DemandPlanner:
    """Return the planner of a name; anything else is one already."""
    return PLANNERS[planner] if isinstance(planner, str) else planner


def _fill(
    problem: PlanningProblem,
    number: int,
    members: list[int],
    spans: dict[int, tuple[int, int]],
    alternatives: Alternatives | None,
    place: DemandPlanner,
    result: PlanningResult,
) -> None:
    pool = problem.pools.get(number, Pool())
    demand, kept = _demand(problem, pool, members, spans, alternatives)
    answer = place(demand)
    placement = answer.placement if isinstance(answer, ProvedPlacement) else answer
    for index, offset in zip(kept, placement.offsets, strict=True):
        result.offsets[index] = offset
    result.pool_nbytes[number] = placement.height
    result.lower_bounds[number] = answer.bound if isinstance(answer, ProvedPlacement) else lower_bound(demand)
    if pool.limit is not None and placement.height > pool.limit:
        result.over_limit[number] = placement.height - pool.limit


def _demand(
    problem: PlanningProblem,
    pool: Pool,
    members: list[int],
    spans: dict[int, tuple[int, int]],
    alternatives: Alternatives | None,
) -> tuple[Demand, list[int]]:
    """Return what a pool has to hold, and the value of each range."""
    demand = Demand([], [], [])
    kept: list[int] = []
    units: list[int] = []
    with_bodies = bool(alternatives)
    for index in members:
        value = problem.values[index]
        if not value.nbytes and value.pinned is None:
            continue
        if value.pinned is not None:
            demand.pinned[len(kept)] = value.pinned
        first, last = spans[index]
        demand.first.append(first)
        demand.last.append(last)
        demand.size.append(value.nbytes + -value.nbytes % pool.alignment)
        units.append(math.lcm(value.alignment, pool.alignment))
        if with_bodies:
            demand.body.append(value.body)
        if problem.official_nbytes:
            demand.official_size.append(problem.official_nbytes[index])
        kept.append(index)
    if with_bodies:
        demand.alternatives = alternatives
    common = math.lcm(*units)
    if any(size % common for size in demand.size) or any(offset % common for offset in demand.pinned.values()):
        demand.alignment = units
    return demand, kept


def naive_placement(demand: Demand) -> Placement:
    """Give every range bytes of its own, after what is pinned."""
    offsets = [0] * len(demand)
    end = 0
    for index, offset in demand.pinned.items():
        offsets[index] = offset
        end = max(end, offset + demand.size[index])
    for index, size in enumerate(demand.size):
        if index not in demand.pinned:
            offsets[index] = demand.aligned(index, end)
            end = offsets[index] + size
    return Placement(offsets, end)


def official_placement(demand: Demand, *, above_others: bool = True) -> Placement:
    """Place as the official planner's greedy algorithm does; it knows of no alternatives.

    What it does not know either: where something is pinned, or there are too many objects to keep account of, the
    portfolio plans; ranges of different alignment are rounded up to the largest.

    Args:
        demand: What to place.
        above_others: Whether a range may lie inside a memory object above ranges that are needed at the same time.
    """
    if demand.alignment:
        unit = math.lcm(*demand.alignment)
        demand = replace(demand, size=[size + -size % unit for size in demand.size], alignment=[])
    packed = None if demand.pinned else pack_shared_objects(demand, above_others=above_others)
    return smallest_placement(demand) if packed is None else packed


PLANNERS: dict[str, DemandPlanner] = {
    "naive": naive_placement,
    "greedy": official_placement,
    "portfolio": smallest_placement,
    "exact": exact_placement,
}
