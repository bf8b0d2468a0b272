"""Whether a plan holds: every possible run is carried out, and every byte marked for as long as it is needed.

Shares neither code nor ideas with the planners: runs are carried out step by step, alternatives are chosen one after
another, and nothing is known of spans on a common line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from exirkit.passes import PlannedValue, PlanningProblem, PlanningResult


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a plan.

    Attributes:
        kind: `overlap`, `misaligned`, `outside`, `limit`, `moved` or `bound`.
        text: The values and numbers.
    """

    kind: str
    text: str


def check_plan(problem: PlanningProblem, result: PlanningResult) -> list[Finding]:
    """Return what is wrong with a plan; empty if it holds."""
    found = list(_check_places(problem, result))
    cells = _Cells(problem, result)
    seen: set[tuple[int, int]] = set()
    most: dict[int, int] = dict.fromkeys(result.pool_nbytes, 0)
    for run in possible_runs(problem):
        for pool, peak in _mark(problem, cells, run, seen).items():
            most[pool] = max(most.get(pool, 0), peak)
    found.extend(
        Finding("overlap", f"values {left} and {right} are needed together and share a byte")
        for left, right in sorted(seen)
    )
    found.extend(_check_bounds(result, most))
    return found


def possible_runs(problem: PlanningProblem) -> Iterator[dict[int, tuple[int, int]]]:
    """Yield, for every choice of the alternatives, the first and last tick of each value that is there."""
    calls: dict[tuple[int, int], list[int]] = {}
    for number, body in enumerate(problem.bodies):
        if number:
            calls.setdefault((body.parent, body.step), []).append(number)
    if not calls:
        yield {number: (value.first, value.last) for number, value in enumerate(problem.values)}
        return
    lengths = [2] * len(problem.bodies)
    for value in problem.values:
        last_body = value.body if value.last_body is None else value.last_body
        lengths[value.body] = max(lengths[value.body], value.first + 1)
        lengths[last_body] = max(lengths[last_body], value.last + 1)
    for parent, step in calls:
        lengths[parent] = max(lengths[parent], step + 1)
    for choice in product(*calls.values()):
        chosen = dict(zip(calls, choice, strict=True))
        ticks: dict[tuple[int, int], list[int]] = {}
        _run(0, chosen, lengths, ticks)
        run = {}
        for number, value in enumerate(problem.values):
            last_body = value.body if value.last_body is None else value.last_body
            if (value.body, value.first) in ticks:
                run[number] = (ticks[value.body, value.first][0], ticks[last_body, value.last][1])
        yield run


def _run(
    body: int,
    chosen: Mapping[tuple[int, int], int],
    lengths: Sequence[int],
    ticks: dict[tuple[int, int], list[int]],
    now: int = 0,
) -> int:
    """Carry out a body; write down when each step begins and ends; return the next tick."""
    for step in range(lengths[body]):
        begin = now
        now += 1
        if (body, step) in chosen:
            now = _run(chosen[body, step], chosen, lengths, ticks, now)
        ticks[body, step] = [begin, now]
        now += 1
    return now


class _Cells:
    """Memory cut at every border of a value, so that a set of bytes is a set of cells, kept as bits of a number."""

    def __init__(self, problem: PlanningProblem, result: PlanningResult) -> None:
        self.masks: list[int] = []
        self.families = [_family(problem.values, number) for number in range(len(problem.values))]
        borders: dict[int, set[int]] = {}
        for value, offset in zip(problem.values, result.offsets, strict=True):
            borders.setdefault(value.pool, set()).update((offset, offset + value.nbytes))
        places = {
            pool: {border: place for place, border in enumerate(sorted(of_pool))} for pool, of_pool in borders.items()
        }
        for value, offset in zip(problem.values, result.offsets, strict=True):
            of_pool = places[value.pool]
            self.masks.append((1 << of_pool[offset + value.nbytes]) - (1 << of_pool[offset]))


def _mark(
    problem: PlanningProblem, cells: _Cells, run: Mapping[int, tuple[int, int]], seen: set[tuple[int, int]]
) -> dict[int, int]:
    """Mark the bytes of one run, note pairs that mark one cell, and return the most live bytes of each pool."""
    events = sorted(
        [(first, 1, number) for number, (first, _) in run.items()]
        + [(last + 1, 0, number) for number, (_, last) in run.items()]
    )
    marked: dict[int, int] = {}
    live: dict[int, set[int]] = {}
    nbytes: dict[int, int] = {}
    peaks: dict[int, int] = {}
    for _, begins, number in events:
        value, mask = problem.values[number], cells.masks[number]
        pool = value.pool
        present = live.setdefault(pool, set())
        if begins:
            if marked.get(pool, 0) & mask:
                _note(number, mask, present, cells, seen)
            present.add(number)
            marked[pool] = marked.get(pool, 0) | mask
        else:
            present.remove(number)
            marked[pool] = 0
            for other in present:
                marked[pool] |= cells.masks[other]
        if value.base is None:
            nbytes[pool] = nbytes.get(pool, 0) + (value.nbytes if begins else -value.nbytes)
            peaks[pool] = max(peaks.get(pool, 0), nbytes[pool])
    return peaks


def _note(number: int, mask: int, present: set[int], cells: _Cells, seen: set[tuple[int, int]]) -> None:
    for other in present:
        if cells.masks[other] & mask and cells.families[other] != cells.families[number]:
            seen.add((min(number, other), max(number, other)))


def _family(values: Sequence[PlannedValue], number: int) -> int:
    base = values[number].base
    while base is not None:
        number = base
        base = values[number].base
    return number


def _check_places(problem: PlanningProblem, result: PlanningResult) -> Iterator[Finding]:
    for number, (value, offset) in enumerate(zip(problem.values, result.offsets, strict=True)):
        pool = problem.pools[value.pool]
        if value.base is not None:
            if offset != result.offsets[value.base] + value.base_offset:
                yield Finding("moved", f"value {number} does not lie in its base {value.base}")
        elif offset % value.alignment or offset % pool.alignment:
            yield Finding("misaligned", f"value {number} is at {offset}")
        if value.pinned is not None and value.base is None and value.pinned != offset:
            yield Finding("moved", f"value {number} is at {offset}, pinned to {value.pinned}")
        if offset < 0 or offset + value.nbytes > result.pool_nbytes.get(value.pool, 0):
            yield Finding("outside", f"value {number} is at {offset}, its pool has {result.pool_nbytes}")


def _check_bounds(result: PlanningResult, most: Mapping[int, int]) -> Iterator[Finding]:
    for pool, nbytes in result.pool_nbytes.items():
        bound = result.lower_bounds[pool]
        if not most[pool] <= nbytes or not bound <= nbytes:
            yield Finding("bound", f"pool {pool}: {nbytes} planned, {most[pool]} live at once, bound {bound}")


def check_limits(problem: PlanningProblem, result: PlanningResult) -> list[Finding]:
    """Return pools whose excess over their limit the plan does not report as it is."""
    found = []
    for number, pool in problem.pools.items():
        nbytes = result.pool_nbytes.get(number, 0)
        beyond = 0 if pool.limit is None else max(0, nbytes - pool.limit)
        if beyond != result.over_limit.get(number, 0):
            found.append(Finding("limit", f"pool {number}: {nbytes} of {pool.limit}, reported {result.over_limit}"))
    return found
