"""What a rung of the ladder is, and how results are compared on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol

from exirkit.fuzz.examination.comparing import beyond_budget, difference, difference_of_types
from exirkit.fuzz.examination.examination import Examination
from exirkit.fuzz.examination.expectations import Closeness, Expectation
from exirkit.fuzz.examination.verdict import Failure
from exirkit.fuzz.programs import RunResult


class Rung(Protocol):
    """One oracle.

    Attributes:
        id: `O0` to `O13`.
        title: What it checks, for people.
    """

    id: ClassVar[str]
    title: ClassVar[str]

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold.

        Raises:
            FailedError: Something that the rung needs could not be made.
            RefusedError: The compiler declined the program.
            NotRunError: The rung cannot be asked.
        """


class ResultComparison:
    """Compares results of a method with those of eager torch.

    Args:
        examination: The program.
        rung: Id of the rung that asks.
        stage: What made the results.
        is_signed_zero_free: Take 0.0 and -0.0 for equal, where kernels are not torch's.
    """

    def __init__(self, examination: Examination, rung: str, stage: str, *, is_signed_zero_free: bool = False) -> None:
        self.examination = examination
        self.rung = rung
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
            yield Failure(self.rung, "number of outputs", message, self.stage)
            return
        for place, (got, expected) in enumerate(zip(outputs, wanted.outputs, strict=True)):
            precise = partial(self._precise_output, method, index, place)
            found = self._difference(got, expected, expectation.outputs[place], precise)
            if found is not None:
                yield self._failure("output", f"{where}, output {place}", f"output {place}", found, method, index)
        kept = {**wanted.buffers, **wanted.inputs}
        for name, got in state.items():
            if name not in kept:
                continue
            found = self._difference(
                got,
                kept[name],
                expectation.buffers.get(name, "bits"),
                partial(self._precise_state, method, index, name),
            )
            if found is not None:
                yield self._failure("state", f"{where}, {name} afterwards", name, found, method, index)

    def _precise_output(self, method: str, index: int, place: int) -> Any:
        return self.examination.precise[method][index].outputs[place]

    def _precise_state(self, method: str, index: int, name: str) -> Any:
        precise = self.examination.precise[method][index]
        return {**precise.buffers, **precise.inputs}[name]

    def _failure(self, what: str, where: str, node: str, found: tuple[str, str], method: str, index: int) -> Failure:
        kind, text = found
        details = {"method": method, "run": index}
        return Failure(self.rung, f"{what} {kind}", f"{self.stage}: {where}: {text}", self.stage, node, details)

    def _difference(
        self, got: Any, wanted: Any, closeness: Closeness, precise: Callable[[], Any]
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
        return beyond_budget(got, wanted, precise())
