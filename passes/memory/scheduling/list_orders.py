"""Whole orders in one go: list scheduling with a look ahead, and everything as late as it is needed."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from .order_problem import OrderProblem, Run

# So many units after one are looked at to see what running it leads to.
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
