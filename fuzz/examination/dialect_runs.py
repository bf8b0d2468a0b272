"""The runs of a program in every dialect on torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch.export import ExportedProgram

from .examination import Examination
from .graph_runs import GraphFailedError, GraphResult, GraphSession
from .metadata_agreement import MetadataTruth
from .result_comparison import ResultComparison
from .symptoms import failure_of_error
from .verdict import Failure


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
    """Run the methods of a program in memory, and examine every value on the way."""
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
                failure = failure_of_error(error, "dialect-agreement", stage)
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

    return examination.once(f"run {stage}", run, oracle="dialect-agreement", stage=stage)


def compared(
    examination: Examination,
    oracle: str,
    stage: str,
    results: Mapping[str, list[GraphResult]],
    *,
    is_lowered: bool,
) -> Iterator[Failure]:
    """Yield where results in a dialect are not those of eager torch."""
    comparison = ResultComparison(examination, oracle, stage)
    expectations = examination.lowered_expectations if is_lowered else examination.expectations
    for method, listed in results.items():
        for index, one in enumerate(listed):
            state = {**one.state, **one.inputs}
            yield from comparison.failures(method, index, one.outputs, state, expectations[method])
