"""From exceptions to one line on standard error and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import typer

if TYPE_CHECKING:
    from exirkit.ir import Diagnostic

CANNOT_HANDLE = 1
WRONG_USAGE = 2
BROKEN_CONTRACT = 3
INTERNAL_ERROR = 4

# Long enough for a path and a sentence; some errors of torch quote whole graphs.
_MAX_LINE = 600


@dataclass(frozen=True)
class Finding:
    """A diagnostic of the command line itself, with the fields of `exirkit.Diagnostic`."""

    code: str
    message: str
    severity: Literal["error", "warning", "note"] = "error"
    location: dict[str, Any] = field(default_factory=dict)
    expected: str | None = None
    notes: tuple[str, ...] = ()
    hint: str | None = None


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


def usage_error(message: str, *, hint: str | None = None, file: str | None = None) -> CommandError:
    """Return EK711: the command line is wrong."""
    return CommandError(code="EK711", message=message, hint=hint, file=file, exit_code=WRONG_USAGE)


def unknown_name(what: str, name: str, known: Sequence[str]) -> CommandError:
    """Return EK711 for a name that does not exist, with the known name that is closest, or the known names."""
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    listed = ", ".join(known[:12]) + (", ..." if len(known) > 12 else "")
    hint = f"did you mean {close[0]!r}?" if close else f"it has {listed}" if known else None
    return usage_error(f"{what} {name!r}", hint=hint)


@dataclass(frozen=True)
class FailureReport:
    """What `--json` prints instead of the report of a command that failed.

    Attributes:
        exit_code: 1 the model or file cannot be handled, 2 wrong usage, 3 a pass or backend broke its contract,
            4 a bug of exirkit.
        diagnostics: All findings; the first one is also on standard error.
    """

    exit_code: int
    diagnostics: Sequence[Finding | Diagnostic]
    ok: bool = False


@dataclass(frozen=True)
class Failure:
    """What to report about an exception: the line for standard error, the whole text, and the document."""

    headline: str
    text: str
    report: FailureReport


def failure_of(error: Exception) -> Failure:
    """Return what to report about any exception that a command raises."""
    if isinstance(error, CommandError):
        return Failure(error.headline, error.headline, FailureReport(error.exit_code, [error.finding]))
    diagnostics = getattr(error, "diagnostics", None)
    # What raises a DiagnosticError has loaded the room that defines it; importing it here would load torch.
    ir = sys.modules.get("exirkit.ir")
    if ir is not None and isinstance(error, ir.DiagnosticError) and diagnostics:
        more = len(diagnostics) - 1
        tail = f" [and {more} more; `exirkit -v` shows all]" if more else ""
        report = FailureReport(_exit_code(error, ir), diagnostics)
        return Failure(diagnostics[0].headline() + tail, str(error), report)
    if isinstance(error, OSError):
        what = (error.strerror or str(error) or type(error).__name__).lower()
        file = str(error.filename) if error.filename else None
        return failure_of(CommandError(code="EK712", message=what, file=file))
    format_message = getattr(error, "format_message", None)
    if format_message is not None:
        message = one_line(format_message()).rstrip(".")
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "exirkit"
        return failure_of(usage_error(message[:1].lower() + message[1:], hint=f"see `{command} --help`"))
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
        from .console import print_json

        print_json(failure.report)


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
