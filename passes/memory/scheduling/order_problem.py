"""In which order to run things so that little memory is needed at once, as lists of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class OrderProblem:
    """Units that are run one after another, and the values that they touch.

    A value has memory from the first unit that touches it to the last one; entry i of each list describes unit i or
    value i.

    Attributes:
        sizes: Bytes of each value.
        touches: The values that each unit reads or writes, each once.
        needs: The units that have to be run before each unit.
        live_first: Values that have memory before the first unit.
        live_last: Values that keep it after the last unit.
        over: For each unit, results that may lie over a touched value if that is needed no more, with these values.
    """

    sizes: Sequence[int]
    touches: Sequence[Sequence[int]]
    needs: Sequence[Sequence[int]]
    live_first: frozenset[int] = frozenset()
    live_last: frozenset[int] = frozenset()
    over: Sequence[Sequence[tuple[int, tuple[int, ...]]]] = ()
    touched_by: list[list[int]] = field(init=False)
    needed_by: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.touched_by = [[] for _ in self.sizes]
        self.needed_by = [[] for _ in self.touches]
        self.over = self.over or [()] * len(self.touches)
        for unit, values in enumerate(self.touches):
            for value in values:
                self.touched_by[value].append(unit)
        for unit, before in enumerate(self.needs):
            for one in before:
                self.needed_by[one].append(unit)

    def __len__(self) -> int:
        return len(self.touches)


class Run:
    """A run of units, from the state before the first one.

    Attributes:
        live: Bytes of the values that have memory now.
        has_memory: Whether each value has memory.
        remaining: How many units that touch each value have not been run.
        waiting: How many units have to be run before each unit can be; -1 for one that has been run.
    """

    def __init__(self, problem: OrderProblem) -> None:
        self.problem = problem
        self.has_memory = [value in problem.live_first for value in range(len(problem.sizes))]
        self.remaining = [len(units) for units in problem.touched_by]
        self.waiting = [len(before) for before in problem.needs]
        self.live = sum(problem.sizes[value] for value in sorted(problem.live_first))

    def cost(self, unit: int) -> tuple[int, int]:
        """Return the bytes that a unit needs beyond those live now, and by how many there are more after it."""
        problem = self.problem
        fresh = dying = 0
        for value in problem.touches[unit]:
            if not self.has_memory[value]:
                fresh += problem.sizes[value]
            if self.remaining[value] == 1 and value not in problem.live_last:
                dying += problem.sizes[value]
        return fresh - self._shared(unit), fresh - dying

    def do(self, unit: int) -> list[int]:
        """Run a unit, and return the units that can be run now for the first time."""
        problem = self.problem
        _, change = self.cost(unit)
        self.live += change
        for value in problem.touches[unit]:
            self.remaining[value] -= 1
            self.has_memory[value] = self.remaining[value] > 0 or value in problem.live_last
        self.waiting[unit] = -1
        ready = []
        for follower in problem.needed_by[unit]:
            self.waiting[follower] -= 1
            if self.waiting[follower] == 0:
                ready.append(follower)
        return ready

    def undo(self, unit: int, change: int) -> None:
        """Take back the last unit that was run, which left so many bytes more; no value may have lost its memory twice.

        Args:
            unit: The unit.
            change: The second part of its cost when it was run.
        """
        problem = self.problem
        for value in problem.touches[unit]:
            self.remaining[value] += 1
            first = self.remaining[value] == len(problem.touched_by[value]) and value not in problem.live_first
            self.has_memory[value] = not first
        self.waiting[unit] = 0
        for follower in problem.needed_by[unit]:
            self.waiting[follower] += 1
        self.live -= change

    def _shared(self, unit: int) -> int:
        """Return the bytes of results that take the place of values which die here; each value gives its place once."""
        shared, taken = 0, set()
        for result, values in self.problem.over[unit]:
            if self.has_memory[result]:
                continue
            for value in values:
                if value not in taken and self.remaining[value] == 1 and value not in self.problem.live_last:
                    taken.add(value)
                    shared += self.problem.sizes[result]
                    break
        return shared


def needs_of_order(problem: OrderProblem, order: Sequence[int]) -> list[int]:
    """Return the bytes that are needed while each unit of an order runs."""
    run, found = Run(problem), []
    for unit in order:
        found.append(run.live + run.cost(unit)[0])
        run.do(unit)
    return found


def peak_of_order(problem: OrderProblem, order: Sequence[int]) -> int:
    """Return the most bytes that are needed while any unit of an order runs."""
    return max(needs_of_order(problem, order), default=0)


def is_order(problem: OrderProblem, order: Sequence[int]) -> bool:
    """Return whether an order has every unit once, each behind those that it needs."""
    place = {unit: index for index, unit in enumerate(order)}
    if len(order) != len(problem) or len(place) != len(problem):
        return False
    return all(place[before] < place[unit] for unit in order for before in problem.needs[unit])
