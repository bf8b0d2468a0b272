"""Comparing the results of a method with those of eager torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from exirkit.fuzz.programs import RunResult

from .comparing import Budget, beyond_budget, difference, difference_of_types
from .examination import Examination
from .expectations import Closeness, Expectation
from .verdict import Failure


class ResultComparison:
    """Compares results of a method with those of eager torch.

    Args:
        examination: The program.
        oracle: Name of the oracle that asks.
        stage: What made the results.
        is_signed_zero_free: Take 0.0 and -0.0 for equal, where kernels are not torch's.
    """

    def __init__(self, examination: Examination, oracle: str, stage: str, *, is_signed_zero_free: bool = False) -> None:
        self.examination = examination
        self.oracle = oracle
        self.stage = stage
        self.is_signed_zero_free = is_signed_zero_free

    def failures(
        self,
        method: str,
        index: int,
        outputs: Sequence[Any],
        state: Mapping[str, Any],
        expectation: Expectation,
    ) -> Iterator[Failure]:
        """Yield what differs in one run.

        Args:
            method: Name of the method.
            index: Which run of the method.
            outputs: What it returned.
            state: Buffers and inputs afterwards, as far as they can be seen.
            expectation: How closely they must agree.
        """
        wanted: RunResult = self.examination.reference[method][index]
        where = f"{method}, run {index + 1}"
        if len(outputs) != len(wanted.outputs):
            message = f"{where}: {len(outputs)} outputs instead of {len(wanted.outputs)}"
            yield Failure(self.oracle, "number of outputs", message, self.stage)
            return
        for place, (got, expected) in enumerate(zip(outputs, wanted.outputs, strict=True)):
            budget = partial(self.examination.budget_of_output, method, index, place)
            found = self._difference(got, expected, expectation.outputs[place], budget)
            if found is not None:
                yield self._failure("output", f"{where}, output {place}", f"output {place}", found, method, index)
        kept = {**wanted.buffers, **wanted.inputs}
        for name, got in state.items():
            if name not in kept:
                continue
            budget = partial(self.examination.budget_of_state, method, index, name)
            found = self._difference(got, kept[name], expectation.buffers.get(name, "bits"), budget)
            if found is not None:
                yield self._failure("state", f"{where}, {name} afterwards", name, found, method, index)

    def _failure(self, what: str, where: str, node: str, found: tuple[str, str], method: str, index: int) -> Failure:
        kind, text = found
        details = {"method": method, "run": index}
        return Failure(self.oracle, f"{what} {kind}", f"{self.stage}: {where}: {text}", self.stage, node, details)

    def _difference(
        self, got: Any, wanted: Any, closeness: Closeness, budget: Callable[[], Budget]
    ) -> tuple[str, str] | None:
        counts = self.examination.comparisons
        if closeness == "type":
            counts.undecided += 1
            return difference_of_types(got, wanted)
        if closeness == "bits":
            counts.bitwise += 1
        else:
            counts.tolerant += 1
        # Rules are exact but for the sign of zeros.
        is_free = self.is_signed_zero_free or self.examination.leaves_signs_open or bool(self.examination.trace.applied)
        found = difference(got, wanted, is_signed_zero_free=is_free)
        if found is None or closeness == "bits":
            return found
        return beyond_budget(got, wanted, *budget())


def file_differences(
    examination: Examination, oracle: str, is_compared: Callable[[int, bool], bool]
) -> Iterator[Failure]:
    """Yield what differs in some runs of the file on our interpreter.

    Args:
        examination: The program.
        oracle: Name of the oracle that asks.
        is_compared: Whether a run is compared, from its number and whether its sizes differ from the run before.
    """
    comparison = ResultComparison(examination, oracle, "file")
    for method, results in examination.results.items():
        runs = examination.runs_of(method)
        for index, one in enumerate(results):
            is_new_shape = index > 0 and dict(runs[index].sizes) != dict(runs[index - 1].sizes)
            if is_compared(index, is_new_shape):
                expectation = examination.lowered_expectations[method]
                yield from comparison.failures(method, index, one.outputs, one.state, expectation)
