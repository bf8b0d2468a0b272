"""Planning problems out of a seed: the same number gives the same problem, in a few dozen microseconds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from exirkit.passes import Body, PlannedValue, PlanningProblem, Pool

_ALIGNMENTS = (1, 2, 16, 16, 16, 64)
_COUNTS = (1, 2, 3, 4, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 12, 12)
_HUGE = (1 << 31, (1 << 31) + 16, (1 << 40) + 1, (1 << 44) - 1)
# Enough runs for every choice of the nested calls drawn here.
_MAX_BODIES = 6


@dataclass(frozen=True, slots=True)
class Instance:
    """A problem, with what it has of the rarer things.

    Attributes:
        number: Its number under the seed.
        problem: What is to be placed.
        has_aliases: Whether values lie in others.
        has_bodies: Whether there are branches or loop bodies.
    """

    number: int
    problem: PlanningProblem
    has_aliases: bool
    has_bodies: bool


def draw_instance(seed: int, number: int) -> Instance:
    """Return a problem of a few values, one in twenty of them of up to a hundred.

    One in ten has aliases, bodies, or both; one in ten pinned values, one in ten several pools, one in ten limits, one
    in ten values of different alignment.
    """
    draw = random.Random((seed << 40) + number)
    alignment = draw.choice(_ALIGNMENTS)
    kind = draw.random()
    count = draw.choice(_COUNTS) if draw.random() < 0.95 else draw.randrange(13, 100)
    bodies = _bodies(draw) if kind < 0.09 else (Body(-1, 0),)
    steps = draw.choice((1, 3, 6, 12, 12, 2 * count))
    size = _sizes(draw, alignment)
    values = [_value(draw, size(), bodies, steps) for _ in range(count)]
    has_aliases = 0.05 < kind < 0.125
    if has_aliases:
        values.extend(_aliases(draw, values))
    _vary(draw, values, alignment)
    pools = {number: Pool(alignment, _limit(draw, values)) for number in sorted({value.pool for value in values})}
    return Instance(number, PlanningProblem(values, pools, bodies), has_aliases, len(bodies) > 1)


def _sizes(draw: random.Random, alignment: int) -> Callable[[], int]:
    """Return a source of sizes: odd ones around the alignment, powers of two, one model's few sizes, or huge ones."""
    style = draw.randrange(5)
    some = [draw.randrange(1, 5000) for _ in range(3)]
    around = (0, 1, max(alignment - 1, 0), alignment, alignment + 1, 3 * alignment, 5 * alignment)
    if style == 0:
        return lambda: draw.choice(around)
    if style == 1:
        return lambda: 1 << draw.randrange(14)
    if style == 2:
        return lambda: draw.choice(some)
    if style == 3:
        return lambda: draw.choice(_HUGE) if draw.random() < 0.2 else draw.randrange(1 << 12)
    return lambda: draw.randrange(1, 100) * alignment


def _value(draw: random.Random, nbytes: int, bodies: tuple[Body, ...], steps: int) -> PlannedValue:
    first = int(draw.random() * steps)
    length = draw.random()
    last = min(steps - 1, first + int(length * length * length * steps))
    if len(bodies) == 1:
        return PlannedValue(nbytes, first, last)
    body = draw.randrange(len(bodies))
    if body and draw.random() < 0.3:
        around = bodies[body].parent
        return PlannedValue(nbytes, first, bodies[body].step + draw.randrange(4), body=body, last_body=around)
    return PlannedValue(nbytes, first, last, body=body)


def _bodies(draw: random.Random) -> tuple[Body, ...]:
    """Return a tree of bodies: calls of one, two or three alternatives, some inside of others."""
    bodies = [Body(-1, 0)]
    while len(bodies) < _MAX_BODIES and draw.random() < 0.7:
        parent = draw.randrange(len(bodies))
        step = draw.randrange(4)
        bodies.extend(Body(parent, step) for _ in range(draw.choice((1, 2, 2, 3))))
    return tuple(bodies)


def _aliases(draw: random.Random, values: list[PlannedValue]) -> list[PlannedValue]:
    """Return views of values and of other views, some of which outlive what they show."""
    known = list(values)
    for _ in range(draw.randrange(1, 5)):
        base = draw.randrange(len(known))
        whole = known[base]
        start = draw.randrange(whole.nbytes + 1)
        size = draw.randrange(whole.nbytes - start + 1)
        last_body = whole.body if whole.last_body is None else whole.last_body
        least = whole.first if last_body == whole.body else whole.last
        last = max(whole.last + draw.randrange(-1, 4), least)
        known.append(replace(whole, nbytes=size, last=last, base=base, base_offset=start))
    return known[len(values) :]


def _vary(draw: random.Random, values: list[PlannedValue], alignment: int) -> None:
    """Give some problems alignments of single values, several pools, or pinned values, which must not overlap."""
    style = draw.randrange(10)
    if style == 0:
        for index, value in enumerate(values):
            if value.base is None:
                values[index] = replace(value, alignment=draw.choice((1, 4, 16, 64, 128)))
    elif style == 1:
        for index, value in enumerate(values):
            pool = values[value.base].pool if value.base is not None else draw.randrange(1, 4)
            values[index] = replace(value, pool=pool)
    elif style == 2:
        end = 0
        for index, value in enumerate(values):
            if value.base is None and draw.random() < 0.3:
                offset = end + draw.choice((0, 0, 1, 7)) * alignment
                values[index] = replace(value, pinned=offset)
                end = offset + value.nbytes + -value.nbytes % alignment


def _limit(draw: random.Random, values: list[PlannedValue]) -> int | None:
    if draw.random() < 0.9:
        return None
    return draw.choice((0, max(value.nbytes for value in values), sum(value.nbytes for value in values)))
