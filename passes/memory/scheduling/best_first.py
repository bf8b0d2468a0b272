"""The order that needs least, found by looking at every set of units that can have been run."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from .order_problem import OrderProblem


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has found.

    Attributes:
        order: An order that needs less than the bound; None if there is none, or none was found.
        steps: How many sets of units were looked at.
        is_exact: Whether the search was not cut short: the order is the best one, or there is none below the bound.
    """

    order: list[int] | None
    steps: int
    is_exact: bool


def best_order(problem: OrderProblem, *, bound: int, floor: int, most_steps: int) -> Found:
    """Return an order that needs least memory, if that is less than a bound.

    What is live depends only on the set of units that have been run, not on their order. So this looks for the way
    from the empty to the full set whose highest point is lowest, from set to set, lowest first. From each set all units
    are run at once that leave no more bytes than before and do not raise the highest point: to run them earlier never
    makes others need more, so that one of the best ways leads through them.

    Args:
        problem: The units.
        bound: Only orders that need less than this many bytes are of use.
        floor: Below this many bytes orders are equally good.
        most_steps: How many sets to look at before giving up.
    """
    return _Search(problem, bound, floor, most_steps).found()


class _Search:
    """Sets of units are bits of integers; a state is a set with the most bytes needed on the way to it."""

    def __init__(self, problem: OrderProblem, bound: int, floor: int, most_steps: int) -> None:
        self._problem = problem
        self._bound = bound
        self._floor = floor
        self._most_steps = most_steps
        self._needs = [_bits(before) for before in problem.needs]
        self._touched_by = [_bits(units) for units in problem.touched_by]
        # Way to each set: the set before it, and the units run in between.
        self._before: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._least: dict[int, int] = {}

    def found(self) -> Found:
        problem = self._problem
        live = sum(problem.sizes[value] for value in sorted(problem.live_first))
        everything = (1 << len(problem)) - 1
        heap: list[tuple[int, int, int, int, int]] = []
        expanded: set[int] = set()
        steps = 0
        if self._floor < self._bound:
            heap.append((self._floor, 0, 0, live, 0))
        serial = 0
        while heap:
            most, _, _, live, done = heapq.heappop(heap)
            if most > self._least.get(done, most):
                continue
            steps += 1
            if steps > self._most_steps:
                return Found(None, steps, False)
            done, live = self._closed(done, live, most)
            if done in expanded:
                continue
            expanded.add(done)
            if done == everything:
                return Found(self._way_to(done), steps, True)
            for unit in self._ready(done):
                need, change = self._cost(unit, done)
                higher, then = max(most, live + need), done | 1 << unit
                if higher < min(self._bound, self._least.get(then, self._bound)):
                    self._least[then] = higher
                    self._before[then] = (done, (unit,))
                    serial += 1
                    # Of equally high ones the furthest first; then the order of the units decides.
                    heapq.heappush(heap, (higher, -then.bit_count(), serial, live + change, then))
        return Found(None, steps, True)

    def _closed(self, done: int, live: int, most: int) -> tuple[int, int]:
        """Run every unit that does no harm, and return the set and the live bytes after that."""
        start, run = done, []
        changed = True
        while changed:
            changed = False
            for unit in self._ready(done):
                need, change = self._cost(unit, done)
                if change <= 0 and live + need <= most:
                    done |= 1 << unit
                    live += change
                    run.append(unit)
                    changed = True
        if run and most < self._least.get(done, self._bound):
            self._least[done] = most
            self._before[done] = (start, tuple(run))
        return done, live

    def _ready(self, done: int) -> list[int]:
        return [unit for unit, before in enumerate(self._needs) if not done >> unit & 1 and before & done == before]

    def _cost(self, unit: int, done: int) -> tuple[int, int]:
        """Return the bytes that a unit needs beyond those live, and by how many there are more after it."""
        problem = self._problem
        fresh = dying = shared = 0
        for value in problem.touches[unit]:
            if self._is_fresh(value, done):
                fresh += problem.sizes[value]
            if self._dies(value, unit, done):
                dying += problem.sizes[value]
        taken: set[int] = set()
        for result, values in problem.over[unit]:
            if self._is_fresh(result, done):
                place = next((one for one in values if one not in taken and self._dies(one, unit, done)), None)
                if place is not None:
                    taken.add(place)
                    shared += problem.sizes[result]
        return fresh - shared, fresh - dying

    def _is_fresh(self, value: int, done: int) -> bool:
        return not self._touched_by[value] & done and value not in self._problem.live_first

    def _dies(self, value: int, unit: int, done: int) -> bool:
        return not self._touched_by[value] & ~(done | 1 << unit) and value not in self._problem.live_last

    def _way_to(self, done: int) -> list[int]:
        order: list[int] = []
        while done:
            done, units = self._before[done]
            order.extend(reversed(units))
        return order[::-1]


def _bits(units: Iterable[int]) -> int:
    found = 0
    for unit in units:
        found |= 1 << unit
    return found
