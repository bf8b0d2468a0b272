"""Orders of independent instructions that need little memory: exact for few units, found by search for many."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
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


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has found.

    Attributes:
        order: An order that needs less than the bound; None if there is none, or none was found.
        steps: How many sets of units were examined.
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
        most_steps: How many sets to examine before giving up.
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


# So many units after one are examined to see what running it leads to.
_AHEAD = 6


def list_order(problem: OrderProblem) -> list[int]:
    """Return an order that always takes the ready unit after which, a few units further on, least is live.

    A unit that leaves no more bytes than before, and needs no more than has been needed already, is run at once: to
    run it earlier never makes anything else need more.
    """
    run = Run(problem)
    heap = [(*_promise(run, unit), unit) for unit, waiting in enumerate(run.waiting) if waiting == 0]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        *promised, unit = heapq.heappop(heap)
        if run.waiting[unit] < 0:
            continue
        now = _promise(run, unit)
        if now > tuple(promised) and heap and now > heap[0][:-1]:
            heapq.heappush(heap, (*now, unit))
            continue
        order.append(unit)
        ready = run.do(unit)
        for other in dict.fromkeys([*ready, *_cheaper(run, unit)]):
            heapq.heappush(heap, (*_promise(run, other), other))
    return order


def late_order(problem: OrderProblem, order: Sequence[int]) -> list[int]:
    """Return an order like another one, in which units that leave more bytes than before wait until they are needed."""
    run = Run(problem)
    found: list[int] = []
    delayed: set[int] = set()
    for unit in order:
        has_followers = bool(problem.needed_by[unit])
        if has_followers and (run.waiting[unit] > 0 or run.cost(unit)[1] > 0):
            delayed.add(unit)
            continue
        _run_with_needed(problem, run, unit, delayed, found)
    # What only units without effect on anything else need.
    for unit in order:
        if run.waiting[unit] >= 0:
            _run_with_needed(problem, run, unit, delayed, found)
    return found


def _run_with_needed(problem: OrderProblem, run: Run, unit: int, delayed: set[int], found: list[int]) -> None:
    """Run a unit behind the delayed ones that it needs, at any depth."""
    waiting = [unit]
    while waiting:
        one = waiting[-1]
        missing = [before for before in problem.needs[one] if before in delayed]
        if missing:
            waiting.extend(reversed(missing))
            continue
        waiting.pop()
        if run.waiting[one] < 0:
            continue
        delayed.discard(one)
        run.do(one)
        found.append(one)


def _cheaper(run: Run, unit: int) -> list[int]:
    """Return the ready units that are now the last to touch a value, so that running them frees it."""
    found = []
    for value in run.problem.touches[unit]:
        if run.remaining[value] == 1:
            found += [other for other in run.problem.touched_by[value] if run.waiting[other] == 0]
    return found


def _promise(run: Run, unit: int) -> tuple[int, int]:
    """Return how many more bytes are live a few units after a unit, at best, and how many are needed until then."""
    need, change = run.cost(unit)
    if change <= 0:
        return change, need
    done = [(unit, change)]
    best = (change, need)
    total, most, start = change, need, run.live
    ready = run.do(unit)
    while ready and len(done) < _AHEAD:
        costs = [(*reversed(run.cost(one)), one) for one in ready]
        change, need, follower = min(costs)
        most = max(most, run.live - start + need)
        total += change
        done.append((follower, change))
        ready = [one for one in ready if one != follower] + run.do(follower)
        best = min(best, (total, most))
    for one, change in reversed(done):
        run.undo(one, change)
    return best


# Units around the highest point that are put into a better order, in this sequence of sizes.
_WINDOWS = (16, 40, 96)
# Sets of units that a search in one window visits, at most.
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
