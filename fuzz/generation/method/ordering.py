"""The order of calls: any in which each call stands behind those that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from exirkit.fuzz.generation.choices import Choices
from exirkit.fuzz.programs import Call, names_in


def interleaved(choices: Choices, steps: Sequence[Call]) -> tuple[Call, ...]:
    """Return the calls of a method in another order: what belongs together lies apart, inputs come late or early.

    Args:
        choices: Decide which call is the next one.
        steps: Calls without effects beside their results.
    """
    made = {name: at for at, step in enumerate(steps) for name in step.results if name is not None}
    waits = [{made[name] for name in _names_read(step) if name in made} for step in steps]
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


def _names_read(step: Call) -> Iterator[str]:
    yield from names_in(step.arguments)
    for body in step.bodies:
        for inner in body.steps:
            yield from _names_read(inner)
