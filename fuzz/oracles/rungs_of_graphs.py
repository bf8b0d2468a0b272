"""O0 to O3: the program itself, the chain with its verifiers, and the programs of every dialect on torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch.export import ExportedProgram

from exirkit.fuzz.examination.examination import Examination, FailedError
from exirkit.fuzz.examination.graph_runs import GraphFailedError, GraphResult, GraphSession
from exirkit.fuzz.examination.metadata_agreement import MetadataTruth
from exirkit.fuzz.examination.symptoms import failure_of_error
from exirkit.fuzz.examination.verdict import Failure

from .rung import ResultComparison


@dataclass(frozen=True)
class DialectRun:
    """The runs of all methods in one dialect.

    Attributes:
        results: By method.
        findings: Values that are not what the metadata says, the first of each node.
        error: What raised.
    """

    results: Mapping[str, list[GraphResult]]
    findings: tuple[Failure, ...]
    error: Failure | None = None


def run_dialect(
    examination: Examination, stage: str, programs: Mapping[str, ExportedProgram], *, is_layout_promised: bool
) -> DialectRun:
    """Run the methods of a program in memory, and look at every value on the way."""
    results: dict[str, list[GraphResult]] = {}
    findings: dict[str | None, Failure] = {}
    for method in examination.methods:
        session = GraphSession(programs[method])
        truth = MetadataTruth(programs[method], stage, is_layout_promised=is_layout_promised)
        results[method] = []
        for inputs in examination.inputs[method]:
            truth.begin()
            try:
                results[method].append(session.run(inputs, truth.observe))
            except GraphFailedError as error:
                failure = failure_of_error(error, "O3", stage)
                return DialectRun(results, tuple(findings.values()), failure)
        for one in truth.failures:
            findings.setdefault(one.node, one)
    return DialectRun(results, tuple(findings.values()))


def dialect_runs(examination: Examination) -> Iterator[tuple[str, DialectRun]]:
    """Yield the runs in every dialect, from the export on; each is made once."""
    yield "export", _run(examination, "export", examination.exported)
    lowering = examination.lowering
    if lowering.edge:
        yield "edge", _run(examination, "edge", lowering.edge)
    if lowering.planned:
        yield "executorch", _run(examination, "executorch", lowering.planned)


def _run(examination: Examination, stage: str, programs: Mapping[str, ExportedProgram]) -> DialectRun:
    def run() -> DialectRun:
        return run_dialect(examination, stage, programs, is_layout_promised=stage == "executorch")

    return examination.once(f"run {stage}", run, rung="O3", stage=stage)


class EagerRuns:
    """O0: the program can be run, and be built."""

    id: ClassVar[str] = "O0"
    title: ClassVar[str] = "eager torch runs the program"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold."""
        for make in (lambda: examination.reference, lambda: examination.exported):
            try:
                make()
            except FailedError as error:
                yield error.failure
                return


class ChainWithVerifiers:
    """O1: the chain takes the program, and its verifiers find nothing after any pass."""

    id: ClassVar[str] = "O1"
    title: ClassVar[str] = "the chain works, with verifiers after every pass"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold."""
        try:
            examination.lowering  # noqa: B018 - it is made when it is asked for
        except FailedError as error:
            yield error.failure


class TrueMetadata:
    """O2: every value has the dtype, shape and layout that its node says, in every dialect."""

    id: ClassVar[str] = "O2"
    title: ClassVar[str] = "metadata against execution, at every node of every dialect"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold."""
        for _, run in dialect_runs(examination):
            if run.findings:
                yield from run.findings
                return


class EqualDialects:
    """O3: the program computes the same in every dialect."""

    id: ClassVar[str] = "O3"
    title: ClassVar[str] = "every dialect against eager torch"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold."""
        for stage, run in dialect_runs(examination):
            if run.error is not None:
                yield run.error
                return
            failures = list(compared(examination, self.id, stage, run.results, is_lowered=stage != "export"))
            if failures:
                yield from failures
                return


def compared(
    examination: Examination,
    rung: str,
    stage: str,
    results: Mapping[str, list[GraphResult]],
    *,
    is_lowered: bool,
) -> Iterator[Failure]:
    """Yield where results in a dialect are not those of eager torch."""
    comparison = ResultComparison(examination, rung, stage)
    expectations = examination.lowered_expectations if is_lowered else examination.expectations
    for method, listed in results.items():
        for index, one in enumerate(listed):
            state = {**one.state, **one.inputs}
            yield from comparison.failures(method, index, one.outputs, state, expectations[method])
