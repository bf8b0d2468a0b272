"""O5 to O8, O10 and O12: the file on our interpreter, and its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from exirkit.emit import lay_out, read_program, restore, restore_mutable_data, restore_named_data
from exirkit.fuzz.compilers.compilers import ExirkitCompiler
from exirkit.fuzz.examination.comparing import beyond_budget
from exirkit.fuzz.examination.examination import Examination, FailedError, NotRunError
from exirkit.fuzz.examination.symptoms import failure_of_error
from exirkit.fuzz.examination.verdict import Failure
from exirkit.ir import DiagnosticError
from exirkit.program import ExecutorchProgramManager

from .rung import ResultComparison


class PoisonedRun:
    """O5: the first run of every method gives what eager torch gives, in arenas full of rubbish."""

    id: ClassVar[str] = "O5"
    title: ClassVar[str] = "our interpreter, in poisoned arenas"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold."""
        try:
            examination.results  # noqa: B018 - it is made when it is asked for
        except FailedError as error:
            if error.failure.rung == self.id:
                yield error.failure
                return
            raise
        yield from _compared(examination, self.id, lambda index, is_new_shape: index == 0)


class KnowingRun:
    """O6: every read sees the latest version of its own value, and nothing that is still needed is overwritten."""

    id: ClassVar[str] = "O6"
    title: ClassVar[str] = "the knowing interpreter"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold."""
        try:
            examination.results  # noqa: B018 - it is made when it is asked for
        except FailedError as error:
            if error.failure.rung != self.id:
                raise
            yield error.failure


class RunsInARow:
    """O7: the second and later runs of one loaded method, with the state that it keeps."""

    id: ClassVar[str] = "O7"
    title: ClassVar[str] = "several runs in a row, with state"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold."""
        yield from _compared(examination, self.id, lambda index, is_new_shape: index > 0 and not is_new_shape)


class ShapeSchedule:
    """O8: runs whose sizes differ from those of the run before."""

    id: ClassVar[str] = "O8"
    title: ClassVar[str] = "a schedule of shapes in one loaded method"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold."""
        yield from _compared(examination, self.id, lambda index, is_new_shape: index > 0 and is_new_shape)


def _compared(examination: Examination, rung: str, is_asked: object) -> Iterator[Failure]:
    assert callable(is_asked)
    comparison = ResultComparison(examination, rung, "file")
    for method, results in examination.results.items():
        runs = examination.runs_of(method)
        for index, one in enumerate(results):
            is_new_shape = index > 0 and dict(runs[index].sizes) != dict(runs[index - 1].sizes)
            if is_asked(index, is_new_shape):
                expectation = examination.lowered_expectations[method]
                yield from comparison.failures(method, index, one.outputs, one.state, expectation)


class SameBytes:
    """O10: the file, read and written again, and the program, emitted again, are the same bytes."""

    id: ClassVar[str] = "O10"
    title: ClassVar[str] = "bytes read and written again"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold."""
        lowering = examination.lowering
        if lowering.manager is None or not isinstance(examination.compiler, ExirkitCompiler):
            raise NotRunError("the file is not ours")
        config = examination.compiler.config(has_names=examination.trace.has_state)
        try:
            file = read_program(lowering.data)
            again = lay_out(
                restore(file),
                mutable_data=restore_mutable_data(file),
                named_data=restore_named_data(file),
                segment_alignment=config.segment_alignment,
                constant_tensor_alignment=config.constant_tensor_alignment,
            ).to_bytes()
        except DiagnosticError as error:
            yield failure_of_error(error, self.id, "emitter")
            return
        if again != lowering.data:
            yield Failure(self.id, "bytes of the file read again", _first_byte(again, lowering.data), "emitter")
        emitted = ExecutorchProgramManager(lowering.planned, backend_config=config).buffer
        if emitted != lowering.data:
            yield Failure(self.id, "bytes of the program emitted again", _first_byte(emitted, lowering.data), "emitter")


def _first_byte(got: bytes, wanted: bytes) -> str:
    place = next((at for at, (one, other) in enumerate(zip(got, wanted, strict=False)) if one != other), None)
    if place is None:
        return f"{len(got)} bytes instead of {len(wanted)}"
    return f"byte {place} is {got[place]:#04x} instead of {wanted[place]:#04x}"


class ErrorBudget:
    """O12: results are about as close to those of float64 as eager torch is."""

    id: ClassVar[str] = "O12"
    title: ClassVar[str] = "float64, with an error budget"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold."""
        for method, results in examination.results.items():
            closeness = examination.lowered_expectations[method].outputs
            for index, one in enumerate(results):
                wanted = examination.reference[method][index].outputs
                for place, (got, expected) in enumerate(zip(one.outputs, wanted, strict=False)):
                    if closeness[place] != "budget":
                        continue
                    found = beyond_budget(got, expected, examination.precise[method][index].outputs[place])
                    if found is not None:
                        message = f"file: {method}, run {index + 1}, output {place}: {found[1]}"
                        yield Failure(self.id, f"output {found[0]}", message, "file", f"output {place}")
