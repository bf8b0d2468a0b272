"""The official exporter as a black box: it works in a process of its own, which is sent the text of a program."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from torch.export import ExportedProgram

from exirkit.fuzz.official import VARIANTS, WorkerDiedError, WorkerProcess, failure_of, missing_reason
from exirkit.fuzz.programs import Program, program_text
from exirkit.ir import Diagnostic, UsageError

from .compilers import Lowering
from .lowering_trace import LoweringTrace


class OfficialExportError(Exception):
    """The official exporter raised, or its process died.

    Attributes:
        kind: Type of what it raised, or how the process ended.
        where: Its innermost own frames, without line numbers.
    """

    def __init__(self, kind: str, where: str, text: str) -> None:
        self.kind = kind
        self.where = where
        super().__init__(text)


def require_official() -> None:
    """Make sure that the official package is there.

    Raises:
        UsageError: EK832, the wheel is not installed.
    """
    reason = missing_reason()
    if reason:
        raise UsageError(
            Diagnostic(code="EK832", message=reason, expected="the official exporter in the same environment")
        )


class OfficialCompiler:
    """The official exporter.

    Args:
        timeout_s: Seconds for one program.
        variant: A way through it, one of `exirkit.fuzz.official.VARIANTS`; the usual one if empty.

    Raises:
        UsageError: EK831, there is no such way; EK832, the wheel is not installed.
    """

    def __init__(self, timeout_s: float = 120.0, variant: str = "") -> None:
        if variant not in VARIANTS:
            raise UsageError(
                Diagnostic(
                    code="EK831",
                    message=f"there is no compiler official:{variant}",
                    expected=f"official, or official: with {', '.join(filter(None, VARIANTS))}",
                )
            )
        require_official()
        self.timeout_s = timeout_s
        self.variant = variant

    @property
    def is_black_box(self) -> bool:
        """Whether nothing but the file can be examined."""
        return True

    def lower(self, programs: Mapping[str, ExportedProgram], trace: LoweringTrace) -> Lowering:
        """Reject: the worker makes the exported programs itself, see `lower_program`."""
        raise NotImplementedError("the official exporter is given programs as data")

    def lower_program(self, program: Program, trace: LoweringTrace) -> Lowering:
        """Lower a program as data.

        Raises:
            OfficialExportError: The exporter raised, or its process died.
        """
        trace.see_part("official-exporter")
        try:
            request = {"op": "lower", "text": program_text(program), "variant": self.variant}
            answer, blobs = _worker().request(request, timeout_s=self.timeout_s)
        except WorkerDiedError as died:
            failure = failure_of(died)
            raise OfficialExportError(failure.kind, "", failure.text) from died
        if "failure" in answer:
            raise OfficialExportError(answer["failure"], answer["where"], answer["text"])
        trace.see_part(None)
        return Lowering(blobs[0])

    def describe(self) -> str:
        """Return the Python expression that makes this compiler."""
        return f"OfficialCompiler(variant={self.variant!r})" if self.variant else "OfficialCompiler()"


@functools.cache
def _worker() -> WorkerProcess:
    return WorkerProcess("exirkit.fuzz.official.export_worker")
