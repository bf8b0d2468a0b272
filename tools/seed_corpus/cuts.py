"""What is left out of programs that are to reach the same still.

Unlike where failures are reduced, numbers, sizes and runs stay as they are: programs are there to show wrong results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from exirkit.fuzz.programs import Program
from exirkit.fuzz.triage.reducing import (
    Cut,
    returning_earlier,
    tidied,
    without_dead_calls,
    without_inputs,
    without_methods,
    without_outputs,
)


def _cleaned(cut: Cut, program: Program) -> Iterator[Program]:
    """Yield what a cut leaves, without what nothing uses then."""
    for one in cut(program):
        if one.runs:
            yield tidied(_without_unused(one))


def _without_unused(program: Program) -> Program:
    left = next(without_dead_calls(program), program)
    used = {name for method in left.methods for name in (*method.names_read, *(name for name, _ in method.updates))}
    left = replace(left, stored=tuple(one for one in left.stored if one.name in used))
    while (fewer := next(without_inputs(left), None)) is not None:
        left = fewer
    return left


CUTS: tuple[Callable[[Program], Iterator[Program]], ...] = tuple(
    partial(_cleaned, one) for one in (without_methods, without_outputs, returning_earlier, without_dead_calls)
)
"""In the order in which they are tried."""
