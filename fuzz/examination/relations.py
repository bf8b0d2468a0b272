"""Comparing what a file computes with what the file of a related program does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from exirkit.fuzz.programs import Program

from .comparing import Budget, beyond_budget, difference, difference_of_types
from .examination import Examination, FailedError
from .expectations import Closeness
from .verdict import Failure


def failures_of_relative(oracle: str, examination: Examination, changed: Program, note: str) -> Iterator[Failure]:
    """Yield what a program that must compute the same computes differently, or why it cannot be compiled.

    Args:
        oracle: Name of the oracle that asks.
        examination: Of the program.
        changed: The other one; it has the same methods and runs.
        note: In which way it is another one.

    Raises:
        RejectedError: The compiler does not support the other program.
    """
    other = Examination(changed, examination.compiler, examination.seed)
    try:
        results = other.results
    except FailedError as error:
        failure = error.failure
        yield Failure(oracle, f"equivalent {failure.symptom}", f"{note}: {failure.message}", failure.stage)
        return
    exact = examination if other.lowering.is_exact else other
    for method, listed in results.items():
        closeness = exact.lowered_expectations[method].outputs
        for index, one in enumerate(listed):
            wanted = examination.results[method][index].outputs
            where = f"{method}, run {index + 1}"
            budget = partial(examination.budget_of_output, method, index)
            yield from differing_outputs(oracle, one.outputs, wanted, closeness, budget, where, note)


def differing_outputs(
    oracle: str,
    outputs: Sequence[Any],
    wanted: Sequence[Any],
    closeness: Sequence[Closeness],
    budget: Callable[[int], Budget],
    where: str,
    note: str,
) -> Iterator[Failure]:
    """Yield where outputs of a run are not those that are wanted.

    Args:
        oracle: Name of the oracle that asks.
        outputs: Of the run.
        wanted: What they must be.
        closeness: How close each has to be: `bits`, `budget` or `type`.
        budget: Gives what an output of the run is compared with within a budget, from its place.
        where: Method and number of the run.
        note: What is different.
    """
    for place, (got, one, close) in enumerate(zip(outputs, wanted, closeness, strict=True)):
        found = difference_of_types(got, one) if close == "type" else difference(got, one)
        if found is not None and close == "budget":
            found = beyond_budget(got, one, *budget(place))
        if found is not None:
            message = f"{where}, output {place}, with {note}: {found[1]}"
            yield Failure(oracle, f"equivalent {found[0]}", message, "file", f"output {place}")
