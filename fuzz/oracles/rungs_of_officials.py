"""O11: the official runtime on our file, and our interpreter on the official exporter's file."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import ClassVar

from exirkit.fuzz.official import Failure as OfficialFailure
from exirkit.fuzz.official import OfficialRuntime, missing_reason
from exirkit.ir import DiagnosticError

from .examination import Examination, NotRunError
from .file_runs import run_file
from .lowering_trace import LoweringTrace
from .official_compiler import OfficialCompiler, OfficialExportError
from .rung import ResultComparison
from .symptoms import failure_of_error
from .verdict import Failure

TIMEOUT_S = 20.0

# The official build has no such kernel, or a kernel that says that it does not take what it is given.
_LIMITS = re.compile(r"Missing operator|missing operator|not implemented for|Unhandled dtype|NotSupported|0x14\b")


@functools.cache
def _runtime() -> OfficialRuntime:
    """One warm worker for the whole process; it ends with it."""
    return OfficialRuntime()


class OfficialRuntimeAgrees:
    """O11: the official C++ runtime takes our file and gives what eager torch gives."""

    id: ClassVar[str] = "O11"
    title: ClassVar[str] = "the official runtime on the file"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold."""
        reason = missing_reason()
        if reason:
            raise NotRunError(reason)
        data = examination.lowering.data
        comparison = ResultComparison(examination, self.id, "official-runtime", is_signed_zero_free=True)
        for method in examination.methods:
            calls = [list(inputs) for inputs in examination.inputs[method]]
            answer = _runtime().run(data, calls, method=method, timeout_s=TIMEOUT_S)
            if answer.failure is not None:
                if _LIMITS.search(answer.failure.text):
                    raise NotRunError(f"the official runtime does not claim to: {brief(answer.failure)}")
                yield Failure(
                    self.id,
                    f"official runtime {answer.failure.kind} {brief(answer.failure)}",
                    f"{method}: {answer.failure.text}"[:4000],
                    "official-runtime",
                )
                return
            for index, outputs in enumerate(answer.outputs):
                expectation = examination.lowered_expectations[method]
                yield from comparison.failures(method, index, outputs, {}, expectation)


class OfficialFileAgrees:
    """O11x: our interpreter takes the official exporter's file and gives what eager torch gives."""

    id: ClassVar[str] = "O11x"
    title: ClassVar[str] = "our interpreter on the official exporter's file"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what does not hold."""
        reason = missing_reason()
        if reason:
            raise NotRunError(reason)
        try:
            lowering = OfficialCompiler().lower_program(examination.program, LoweringTrace())
        except OfficialExportError as error:
            raise NotRunError(f"the official exporter fails: {error.kind} at {error.where}") from error
        comparison = ResultComparison(examination, self.id, "official-exporter")
        for method in examination.methods:
            try:
                results = run_file(lowering.data, method, examination.inputs[method])
            except DiagnosticError as error:
                yield failure_of_error(error, self.id, "official-exporter")
                return
            for index, one in enumerate(results):
                yield from comparison.failures(method, index, one.outputs, {}, examination.expectations[method])


def brief(failure: OfficialFailure) -> str:
    """Return the one line of a failure that says what it is, without numbers and places."""
    lines = [line for line in failure.text.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("E ", "F "))] or lines[:1]
    text = re.sub(r"^[EF] \d+:[\d:.]+ \S+:\d+\] ?", "", telling[0] if telling else "")
    text = re.sub(r"0x[0-9a-f]+|\d+", "#", text)
    return re.sub(r"\s+", " ", text).strip()[:100]
