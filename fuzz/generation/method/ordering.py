"""The order of calls: any in which each call stands behind those that it reads, and writes stay where they count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from exirkit.fuzz.generation.choices import Choices
from exirkit.fuzz.programs import Call, names_in
from exirkit.fuzz.programs.aliasing import roots_of, written_by


def interleaved(choices: Choices, steps: Sequence[Call]) -> tuple[Call, ...]:
    """Return the calls of a method in another order: what belongs together lies apart, inputs come late or early.

    Args:
        choices: Decide which call is the next one.
        steps: Calls, some of which may write to what others read.
    """
    waits = _waits(steps)
    readers: dict[int, list[int]] = {}
    for at, needed in enumerate(waits):
        for one in sorted(needed):
            readers.setdefault(one, []).append(at)
    ready = [at for at, needed in enumerate(waits) if not needed]
    order: list[Call] = []
    while ready:
        at = ready.pop(choices.integer(0, len(ready) - 1))
        order.append(steps[at])
        for reader in readers.get(at, ()):
            waits[reader].discard(at)
            if not waits[reader]:
                ready.append(reader)
    return tuple(order)


def _waits(steps: Sequence[Call]) -> list[set[int]]:
    """Return, for each call, those that have to stand before it: they make, write or still read what it does."""
    waits: list[set[int]] = []
    made: dict[str, int] = {}
    shown: dict[str, frozenset[str]] = {}
    last_written: dict[str, int] = {}
    readers: dict[str, set[int]] = {}
    for at, step in enumerate(steps):
        read = list(_names_read(step))
        waits.append({made[name] for name in read if name in made})
        for name in read:
            shown.setdefault(name, frozenset({name}))
        written = {root for name in written_by(step) for root in shown[name]}
        for root in {root for name in read for root in shown[name]}:
            waits[-1] |= {last_written[root]} if root in last_written else set()
            if root in written:
                waits[-1] |= readers.pop(root, set())
                last_written[root] = at
            else:
                readers.setdefault(root, set()).add(at)
        roots = roots_of(step, shown)
        for name in filter(None, step.results):
            made[name] = at
            shown[name] = roots or frozenset({name})
    return waits


def _names_read(step: Call) -> Iterator[str]:
    yield from names_in(step.arguments)
    for body in step.bodies:
        for inner in body.steps:
            yield from _names_read(inner)
