"""What a planner is asked and what it answers, in plain numbers: no graph, no tensors.

Time is a tree. A body is a run of steps; a branch or a loop body is a body that runs at one step of another one, and
bodies that run at the same step of the same body are alternatives: in one run only one of them runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

DEFAULT_POOL = 1


@dataclass(frozen=True, slots=True)
class PlannedValue:
    """Bytes that are needed from one step to another.

    Attributes:
        nbytes: Size in bytes, 0 or more.
        first: First step that needs them, counted in `body`.
        last: Last step that needs them, counted in `last_body`.
        alignment: Their offset in the pool is a multiple of this many bytes.
        pool: The memory in which they lie.
        pinned: The offset at which they must lie; None to leave it to the planner.
        body: The body that computes the value.
        last_body: The body of the last use: `body`, or one around it for a result that outlives the call.
        base: The value in whose bytes this one lies, so that it needs none of its own; None for an owner of bytes.
        base_offset: First byte of this value in its base.
    """

    nbytes: int
    first: int
    last: int
    alignment: int = 1
    pool: int = DEFAULT_POOL
    pinned: int | None = None
    body: int = 0
    last_body: int | None = None
    base: int | None = None
    base_offset: int = 0


@dataclass(frozen=True, slots=True)
class Body:
    """Steps that run at one step of another body, in which they begin with 0.

    Attributes:
        parent: Number of the body around this one, which is listed before it; -1 for the outermost.
        step: The step of the parent at which it runs.
    """

    parent: int
    step: int


OUTERMOST = Body(-1, 0)


@dataclass(frozen=True, slots=True)
class Pool:
    """A memory.

    Attributes:
        alignment: Every offset and size in it is a multiple of this many bytes.
        limit: Its size in bytes, None if it has no limit.
    """

    alignment: int = 1
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class PlanningProblem:
    """What has to be placed.

    Attributes:
        values: The values; their place in the list is their number.
        pools: The pools by number; one that is not listed has alignment 1 and no limit.
        bodies: The bodies; number 0 is the outermost.
        official_nbytes: Size of each value by which the official planner orders values of one size; empty if it is not
            known.
    """

    values: Sequence[PlannedValue]
    pools: Mapping[int, Pool] = field(default_factory=dict)
    bodies: Sequence[Body] = (OUTERMOST,)
    official_nbytes: Sequence[int] = ()


@dataclass(slots=True)
class PlanningResult:
    """A plan, with what is known about smaller ones.

    Attributes:
        offsets: First byte of each value in its pool.
        pool_nbytes: Bytes used of each pool, by number.
        lower_bounds: Bytes of each pool below which no plan exists: the most that is live at once, or more where a
            planner has proved more.
        over_limit: Pools whose limit the plan exceeds, with the number of bytes that are missing.
    """

    offsets: list[int]
    pool_nbytes: dict[int, int]
    lower_bounds: dict[int, int]
    over_limit: dict[int, int]

    @property
    def is_proved_smallest(self) -> bool:
        """Whether no plan needs fewer bytes of any pool."""
        return all(nbytes <= self.lower_bounds[pool] for pool, nbytes in self.pool_nbytes.items())


class Timeline:
    """The steps of all bodies in one line, in which the bodies that run at a step follow it.

    Two values are in each other's way if their spans on the line overlap and they do not belong to alternatives. A
    result that outlives its branch seems to be there during later alternatives of the branch too, but never is in the
    way of their values, for they are alternatives.
    """

    def __init__(self, bodies: Sequence[Body], values: Iterable[PlannedValue]) -> None:
        self._steps = _lengths(bodies, values)
        self._calls: list[list[tuple[int, int]]] = [[] for _ in bodies]
        self._base = [0] * len(bodies)
        if len(bodies) > 1:
            self._lay_out(bodies)

    def begin(self, body: int, step: int) -> int:
        """Return the place of a step, before the bodies that run at it."""
        return self._base[body] + step + sum(length for at, length in self._calls[body] if at < step)

    def end(self, body: int, step: int) -> int:
        """Return the place of a step, after the bodies that run at it."""
        return self._base[body] + step + sum(length for at, length in self._calls[body] if at <= step)

    def span(self, value: PlannedValue) -> tuple[int, int]:
        """Return first and last place at which a value is needed."""
        if len(self._base) == 1:
            return value.first, value.last
        last_body = value.body if value.last_body is None else value.last_body
        return self.begin(value.body, value.first), self.end(last_body, value.last)

    def _lay_out(self, bodies: Sequence[Body]) -> None:
        total = list(self._steps)
        for number in range(len(bodies) - 1, 0, -1):
            body = bodies[number]
            self._calls[body.parent].append((body.step, total[number]))
            total[body.parent] += total[number]
        used: dict[tuple[int, int], int] = {}
        for number, body in enumerate(bodies):
            if number:
                key = (body.parent, body.step)
                before = used.get(key, 0)
                self._base[number] = self.begin(body.parent, body.step) + 1 + before
                used[key] = before + total[number]


class Alternatives:
    """Which bodies never run together.

    Attributes:
        excluded: For each body, the set of bodies that are alternatives to it or lie inside of one, as bits.
        parent: For each body, the one around it.
        groups: For each body, its calls: the numbers of the bodies of which one runs.
        group_of: For each body, the place of its call in `groups` of its parent.
    """

    def __init__(self, bodies: Sequence[Body]) -> None:
        calls: dict[tuple[int, int], list[int]] = {}
        for number, body in enumerate(bodies):
            if number:
                calls.setdefault((body.parent, body.step), []).append(number)
        inside = [1 << number for number in range(len(bodies))]
        for number in range(len(bodies) - 1, 0, -1):
            inside[bodies[number].parent] |= inside[number]
        self.parent = [body.parent for body in bodies]
        self.groups: list[list[list[int]]] = [[] for _ in bodies]
        self.group_of = [0] * len(bodies)
        self.excluded = [0] * len(bodies)
        for (parent, _), members in calls.items():
            for member in members:
                self.group_of[member] = len(self.groups[parent])
            self.groups[parent].append(members)
        for number, body in enumerate(bodies):
            if number:
                for other in calls[body.parent, body.step]:
                    if other != number:
                        self.excluded[number] |= inside[other]
                self.excluded[number] |= self.excluded[body.parent]

    def __bool__(self) -> bool:
        return any(self.excluded)


def storage_roots(values: Sequence[PlannedValue]) -> list[tuple[int, int]]:
    """Return, for each value, the value that owns its bytes and its first byte there.

    The bases must not form a cycle.
    """
    found: list[tuple[int, int]] = []
    for number, value in enumerate(values):
        offset = 0
        while value.base is not None:
            offset += value.base_offset
            number, value = value.base, values[value.base]
        found.append((number, offset))
    return found


def _lengths(bodies: Sequence[Body], values: Iterable[PlannedValue]) -> list[int]:
    """Return how many steps each body has: as many as are mentioned."""
    lengths = [1] * len(bodies)
    if len(bodies) == 1:
        return lengths
    for body in bodies[1:]:
        lengths[body.parent] = max(lengths[body.parent], body.step + 1)
    for value in values:
        lengths[value.body] = max(lengths[value.body], value.first + 1)
        last_body = value.body if value.last_body is None else value.last_body
        lengths[last_body] = max(lengths[last_body], value.last + 1)
    return lengths
