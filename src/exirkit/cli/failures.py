"""From exceptions to one line on standard error and an exit code."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

import typer

from .reports import FailureReport, Finding

CANNOT_HANDLE = 1
WRONG_USAGE = 2
BROKEN_CONTRACT = 3
INTERNAL_ERROR = 4

# Long enough for a path and a sentence; some errors of torch quote whole graphs.
_MAX_LINE = 600


class CommandError(Exception):
    """What the command line itself finds wrong; unlike `exirkit.DiagnosticError` it can be raised without torch."""

    def __init__(
        self,
        *,
        code: str,
        message: str,
        hint: str | None = None,
        exit_code: int = CANNOT_HANDLE,
        file: str | None = None,
        line: int | None = None,
    ) -> None:
        place = {key: value for key, value in (("file", file), ("line", line)) if value is not None}
        self.finding = Finding(code=code, message=one_line(message), hint=hint, location=place)
        self.exit_code = exit_code
        super().__init__(self.headline)

    @property
    def headline(self) -> str:
        """The error on one line, in the form of `exirkit.Diagnostic.headline`."""
        finding = self.finding
        place = ":".join(str(part) for part in finding.location.values())
        hint = f" ({finding.hint})" if finding.hint else ""
        return f"error[{finding.code}]: {place + ': ' if place else ''}{finding.message}{hint}"


@dataclass(frozen=True)
class Failure:
    """What becomes of an exception: the line for standard error, the whole text, the findings, the exit code."""

    headline: str
    text: str
    findings: list[Finding]
    exit_code: int

    def report(self) -> FailureReport:
        """Return the document for `--json`."""
        return FailureReport(exit_code=self.exit_code, diagnostics=self.findings)


def failure_of(error: Exception) -> Failure:
    """Return what to tell about any exception that a command lets out."""
    if isinstance(error, CommandError):
        return Failure(error.headline, error.headline, [error.finding], error.exit_code)
    diagnostics = getattr(error, "diagnostics", None)
    # Whoever raises a DiagnosticError has loaded the room that defines it; asking for it here would load torch.
    ir = sys.modules.get("exirkit.ir")
    if ir is not None and isinstance(error, ir.DiagnosticError) and diagnostics:
        more = len(diagnostics) - 1
        tail = f" [and {more} more; `exirkit -v` shows all]" if more else ""
        findings = [Finding.model_validate(each.model_dump()) for each in diagnostics]
        return Failure(diagnostics[0].headline() + tail, str(error), findings, _exit_code(error, ir))
    if isinstance(error, OSError):
        return failure_of(_file_error(error))
    format_message = getattr(error, "format_message", None)
    if format_message is not None:
        message = one_line(format_message()).rstrip(".")
        usage = CommandError(
            code="EK711", message=message[:1].lower() + message[1:], hint=_help_hint(error), exit_code=WRONG_USAGE
        )
        return failure_of(usage)
    return failure_of(
        CommandError(
            code="EK791",
            message=f"exirkit failed: {type(error).__name__}: {error}",
            hint="this is a bug; EXIRKIT_TRACEBACK=1 shows where, please report it with that",
            exit_code=INTERNAL_ERROR,
        )
    )


def report_failure(failure: Failure, *, as_json: bool, verbose: bool) -> None:
    """Print the failure: one line on standard error (all of it if `verbose`), and the document if asked for."""
    text = "\n".join(printable(line) for line in failure.text.splitlines())
    typer.echo(text if verbose else one_line(failure.headline), err=True)
    if as_json:
        typer.echo(failure.report().model_dump_json(indent=2))


def wants_traceback() -> bool:
    """Return whether errors are to be shown with their traceback: the environment has `EXIRKIT_TRACEBACK=1`."""
    return os.environ.get("EXIRKIT_TRACEBACK", "") not in ("", "0")


def one_line(text: str) -> str:
    """Return text of any origin on one line of sane length, without control characters."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 3] + "..."


def printable(text: str) -> str:
    """Return text with control characters escaped: names come from files, and terminals obey."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _exit_code(error: Exception, ir: Any) -> int:
    kinds = (
        (ir.UsageError, WRONG_USAGE),
        (ir.ContractError, BROKEN_CONTRACT),
        (ir.InternalError, INTERNAL_ERROR),
    )
    return next((code for kind, code in kinds if isinstance(error, kind)), CANNOT_HANDLE)


def _file_error(error: OSError) -> CommandError:
    what = (error.strerror or str(error) or type(error).__name__).lower()
    return CommandError(code="EK712", message=what, file=str(error.filename) if error.filename else None)


def _help_hint(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "exirkit"
    return f"see `{command} --help`"
