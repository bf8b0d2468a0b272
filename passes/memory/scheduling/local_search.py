"""A good order of many units: several whole orders, and the best one made better around its highest points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .best_first import best_order
from .list_orders import late_order, list_order
from .order_problem import OrderProblem, Run, peak_of_order

# Units around the highest point that are put into a better order, in this sequence of sizes.
_WINDOWS = (16, 40, 96)
# Sets of units that a search in one window looks at, at most.
_WINDOW_STEPS = 1500
# All searches in windows together, for each unit of the problem and in any case.
_STEPS_PER_UNIT, _LEAST_STEPS = 4, 20_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """An order of units.

    Attributes:
        order: The units in their order.
        peak: The most bytes that are needed while any of them runs.
        is_best: Whether it is known that no order needs less.
    """

    order: list[int]
    peak: int
    is_best: bool


def find_schedule(problem: OrderProblem, *, effort: int = 1) -> Schedule:
    """Return an order that needs no more memory than the units in their given order, and often less.

    What it does is counted in steps, not in seconds, so that the order does not depend on the machine. Up to 40 units
    the order is usually the best one, and it is said so.

    Args:
        problem: The units; their given order must be possible.
        effort: How many times the usual number of steps to take.
    """
    given = list(range(len(problem)))
    least = _lower_bound(problem)
    best, peak = given, peak_of_order(problem, given)
    if peak > least:
        for order in (late_order(problem, given), list_order(problem)):
            needed = peak_of_order(problem, order)
            best, peak = (order, needed) if needed < peak else (best, peak)
    return _Improver(problem, best, max(_LEAST_STEPS, _STEPS_PER_UNIT * len(problem)) * effort, least).improved()


def _lower_bound(problem: OrderProblem) -> int:
    """Return bytes that every order needs: what a unit touches, and what is there before and after all of them."""
    most = max(
        (sum(problem.sizes[value] for value in values) - _most_shared(problem, unit))
        for unit, values in enumerate([*problem.touches, ()])
    )
    ends = (problem.live_first, problem.live_last)
    return max(most, *(sum(problem.sizes[value] for value in sorted(end)) for end in ends))


def _most_shared(problem: OrderProblem, unit: int) -> int:
    pairs = problem.over[unit] if unit < len(problem) else ()
    return sum(problem.sizes[result] for result, values in pairs if values)


class _Improver:
    """Takes the highest point of an order down as long as it can; works on windows only, not on the whole order."""

    def __init__(self, problem: OrderProblem, order: list[int], steps: int, least: int) -> None:
        self._problem = problem
        self._order = order
        self._steps = steps
        self._least = least
        self._place = [0] * len(order)
        for place, unit in enumerate(order):
            self._place[unit] = place
        run = Run(problem)
        # Bytes that are needed while the unit at each place runs, and those that are live before it.
        self._needs: list[int] = []
        self._live: list[int] = []
        for unit in order:
            self._live.append(run.live)
            self._needs.append(run.live + run.cost(unit)[0])
            run.do(unit)

    def improved(self) -> Schedule:
        """Return the last order that could be found."""
        peak, is_best = max(self._needs, default=0), False
        while peak > self._least and self._steps > 0:
            better, is_best = self._lower(self._needs.index(peak), peak)
            if not better:
                break
            peak = max(self._needs)
        return Schedule(self._order, peak, is_best or peak <= self._least)

    def _lower(self, at: int, peak: int) -> tuple[bool, bool]:
        """Find a better order around a place; return whether there is one, and whether it is known that there is none.

        That is known if the window was everything.
        """
        floor = max(filter(peak.__gt__, self._needs), default=0)
        for size in _WINDOWS:
            first = max(min(at - size // 2, len(self._order) - size), 0)
            last = min(first + size, len(self._order))
            part, other_nbytes = self._part(first, last)
            found = best_order(
                part,
                bound=peak - other_nbytes,
                floor=max(floor - other_nbytes, 0),
                most_steps=min(_WINDOW_STEPS, self._steps),
            )
            self._steps -= found.steps
            if found.order is not None:
                self._take(part, found.order, first, other_nbytes)
                return True, False
            if last - first == len(self._order):
                return False, found.is_exact
            if self._steps <= 0:
                break
        return False, False

    def _part(self, first: int, last: int) -> tuple[OrderProblem, int]:
        """Return the problem of the units at some places, all others staying where they are.

        Returns:
            The problem of what these units touch, and the bytes of everything else that is live there.
        """
        problem, place = self._problem, self._place
        units = self._order[first:last]
        inside = {unit: index for index, unit in enumerate(units)}
        listed: dict[int, int] = {}
        before: set[int] = set()
        after: set[int] = set()
        for unit in units:
            for value in problem.touches[unit]:
                if value in listed:
                    continue
                index = listed[value] = len(listed)
                places = [place[one] for one in problem.touched_by[value]]
                if value in problem.live_first or min(places) < first:
                    before.add(index)
                if value in problem.live_last or max(places) >= last:
                    after.add(index)
        sizes = [problem.sizes[value] for value in listed]
        part = OrderProblem(
            sizes,
            [[listed[value] for value in problem.touches[unit]] for unit in units],
            [[inside[one] for one in problem.needs[unit] if one in inside] for unit in units],
            frozenset(before),
            frozenset(after),
            [
                [(listed[result], tuple(listed[value] for value in values)) for result, values in problem.over[unit]]
                for unit in units
            ],
        )
        return part, self._live[first] - sum(sizes[index] for index in before)

    def _take(self, part: OrderProblem, order: Sequence[int], first: int, other_nbytes: int) -> None:
        """Put the units of a window into another order."""
        window = self._order[first : first + len(order)]
        run = Run(part)
        for place, index in enumerate(order, first):
            unit = window[index]
            self._order[place] = unit
            self._place[unit] = place
            self._live[place] = other_nbytes + run.live
            self._needs[place] = other_nbytes + run.live + run.cost(index)[0]
            run.do(index)
