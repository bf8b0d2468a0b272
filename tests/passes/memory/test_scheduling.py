"""Orders of units: possible, never worse, and the best there is where all orders can be tried."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.passes.memory.test_scaling import count_lines

from exirkit.passes.memory.scheduling.orders import (
    OrderProblem,
    best_order,
    find_schedule,
    is_order,
    late_order,
    list_order,
    needs_of_order,
    peak_of_order,
)


def drawn(seed: int, count: int, *, width: int = 4) -> OrderProblem:
    """Draw units with up to two arguments from the last few values, and up to two results."""
    draw = random.Random(seed)
    inputs = draw.randrange(3)
    sizes = [draw.randrange(1, 20) for _ in range(inputs)]
    producer: list[int | None] = [None] * inputs
    touches, needs, over = [], [], []
    for unit in range(count):
        near = range(max(0, len(sizes) - 2 * width), len(sizes))
        arguments = sorted(set(draw.choices(near, k=draw.randrange(3)))) if near else []
        results = []
        for _ in range(draw.choice([0, 1, 1, 1, 1, 2])):
            results.append(len(sizes))
            sizes.append(draw.choice([1, 2, 3, 4, 8, 16]))
            producer.append(unit)
        touches.append([*arguments, *results])
        needs.append(sorted({one for value in arguments if (one := producer[value]) is not None}))
        alike = tuple(value for value in arguments if results and sizes[value] == sizes[results[0]])
        over.append([(results[0], alike)] if alike and seed % 2 else [])
    kept = frozenset(draw.sample(range(len(sizes)), min(len(sizes), draw.randrange(3))))
    return OrderProblem(sizes, touches, needs, frozenset(range(inputs)), kept, over)


def every_order(problem: OrderProblem, begun: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    if len(begun) == len(problem):
        yield begun
    for unit in range(len(problem)):
        if unit not in begun and all(before in begun for before in problem.needs[unit]):
            yield from every_order(problem, (*begun, unit))


def plain_needs(problem: OrderProblem, order: tuple[int, ...] | list[int]) -> list[int]:
    """Return the bytes that each unit of an order needs, from the first and last place of every value."""
    needs = [0] * len(order)
    spans = {}
    for value, size in enumerate(problem.sizes):
        places = [place for place, unit in enumerate(order) if value in problem.touches[unit]]
        first = 0 if value in problem.live_first else min(places, default=len(order))
        kept = value in problem.live_last or (value in problem.live_first and not places)
        last = len(order) - 1 if kept and (places or value in problem.live_first) else max(places, default=-1)
        spans[value] = first, last
        for place in range(first, last + 1):
            needs[place] += size
    for place, unit in enumerate(order):
        given: set[int] = set()
        for result, values in problem.over[unit]:
            free = [v for v in values if v not in given and spans[v][1] == place and v not in problem.live_last]
            if spans[result][0] == place and free:
                given.add(free[0])
                needs[place] -= problem.sizes[result]
    return needs


@pytest.mark.parametrize("seed", range(50))
def test_small_problems_are_solved(seed: int) -> None:
    problem = drawn(seed, random.Random(seed).randrange(1, 8))
    orders = list(every_order(problem))
    for order in orders[:20]:
        assert needs_of_order(problem, order) == plain_needs(problem, order)
    best = min(max(plain_needs(problem, order)) for order in orders)
    found = find_schedule(problem)
    assert is_order(problem, found.order)
    assert (found.peak, found.is_best) == (best, True)
    assert max(plain_needs(problem, found.order)) == best
    # The search alone as well, and it says so where there is nothing below a bound.
    assert best_order(problem, bound=best, floor=0, most_steps=10**6).order is None
    exact = best_order(problem, bound=best + 1, floor=0, most_steps=10**6)
    assert exact.order is not None
    assert exact.is_exact
    assert peak_of_order(problem, exact.order) == best


def test_below_the_best_order_the_search_finds_nothing() -> None:
    for seed in range(300):
        problem = drawn(seed, 14, width=6)
        found = best_order(problem, bound=10**9, floor=0, most_steps=10**6)
        assert found.order is not None
        peak = peak_of_order(problem, found.order)
        assert best_order(problem, bound=peak, floor=0, most_steps=10**6).order is None, seed


@pytest.mark.parametrize("seed", range(5))
def test_larger_problems_never_get_worse(seed: int) -> None:
    problem = drawn(seed, 100, width=2 + seed)
    given = list(range(100))
    found = find_schedule(problem)
    assert is_order(problem, found.order)
    assert found.peak == max(plain_needs(problem, found.order)) <= peak_of_order(problem, given)
    for order in (list_order(problem), late_order(problem, given)):
        assert is_order(problem, order)
    assert find_schedule(problem) == found
    assert find_schedule(problem, effort=3).peak <= found.peak


def fan(count: int) -> OrderProblem:
    """So many large values first, each turned into a small one later, and these joined."""
    sizes = [1] + [100] * count + [1] * count + [count]
    touches = [[0, 1 + index] for index in range(count)] + [[1 + index, 1 + count + index] for index in range(count)]
    touches.append([*range(1 + count, 1 + 2 * count), 1 + 2 * count])
    needs: list[list[int]] = [[] for _ in range(count)] + [[index] for index in range(count)]
    needs.append(list(range(count, 2 * count)))
    return OrderProblem(sizes, touches, needs, frozenset([0]), frozenset([2 * count + 1]))


@pytest.mark.parametrize("count", [3, 30, 1000])
def test_large_values_are_made_when_they_are_needed(count: int) -> None:
    problem = fan(count)
    assert peak_of_order(problem, list(range(len(problem)))) >= 100 * count
    assert find_schedule(problem).peak == max(100 + count, 2 * count)


def test_a_search_that_is_cut_short_says_so() -> None:
    problem = drawn(4, 60, width=12)
    found = best_order(problem, bound=10**9, floor=0, most_steps=3)
    assert (found.order, found.is_exact) == (None, False)


def test_orders_that_are_none() -> None:
    problem = OrderProblem([1], [[0], [0]], [[], [0]])
    assert is_order(problem, [0, 1])
    for order in ([1, 0], [0], [0, 0], [0, 1, 1]):
        assert not is_order(problem, order)
    empty = OrderProblem([], [], [])
    assert find_schedule(empty).order == []


def test_work_is_near_linear() -> None:
    small, large = (count_lines(lambda count=count: find_schedule(fan(count))) for count in (300, 1200))  # type: ignore[misc]
    assert large < 4 * 1.6 * small
