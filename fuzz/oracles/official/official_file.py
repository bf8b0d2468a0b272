"""Our interpreter on the file of the official exporter."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.compilers import LoweringTrace, OfficialCompiler, OfficialExportError
from exirkit.fuzz.examination import Examination, Failure, NotRunError, ResultComparison, failure_of_error, run_file
from exirkit.fuzz.oracles.oracle import Oracle
from exirkit.ir import DiagnosticError


class OfficialFile(Oracle):
    """Our interpreter takes the official exporter's file and gives what eager torch gives."""

    name = "official-file"
    title = "our interpreter on the official exporter's file"
    cost = 140
    is_default = False
    needs = ("official wheel",)
    suspects = ("earlier oracles", "allocation", "stage")
    former_name = "O11x"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what differs."""
        try:
            lowering = OfficialCompiler().lower_program(examination.program, LoweringTrace())
        except OfficialExportError as error:
            raise NotRunError(f"the official exporter fails: {error.kind} at {error.where}") from error
        comparison = ResultComparison(examination, self.name, "official-exporter")
        for method in examination.methods:
            try:
                results = run_file(lowering.data, method, examination.inputs[method])
            except DiagnosticError as error:
                yield failure_of_error(error, self.name, "official-exporter")
                return
            for index, one in enumerate(results):
                yield from comparison.failures(method, index, one.outputs, {}, examination.expectations[method])
