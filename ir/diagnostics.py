"""One value for everything that can be wrong, and the four exceptions that carry it.

A diagnostic says what is wrong, where, why and what to do next; it is rendered in the manner of rustc. Which exception
carries it states who has to act: the author of the model or file (`ModelError`), the caller (`UsageError`), the author
of a pass, rule or backend (`ContractError`), or us (`InternalError`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Literal, TypedDict, Unpack

import yaml
from pydantic import BaseModel, ConfigDict, Field

_LISTED = 16

Severity = Literal["error", "warning", "note"]

# Where the texts of codes are, by their first digit.
_PACKAGES = {
    "1": "exirkit.ir",
    "2": "exirkit.patterns",
    "3": "exirkit.verifiers",
    "4": "exirkit.passes",
    "5": "exirkit.emit",
    "6": "exirkit.runtime_ref",
    "7": "exirkit",
    "8": "exirkit.fuzz",
}


class Location(BaseModel):
    """Where a diagnostic points: in a graph, in a file, or in the source of the model.

    Attributes:
        method: Name of the method (`forward`), if a program is meant.
        node: Name of the graph node, or a value or instruction of an emitted program (`step 7`).
        text: One line of program or file text at that place.
        source: `file:line in function`, a line of the user's own source.
        module: Path of the module of the model that the node comes from, `features.3.conv`.
        file: Path of the file, with `line` and `column` counted from 1, or `offset_bytes` counted from 0.
        span: How many characters of `text`, from `column` on, are meant; they are underlined.
    """

    model_config = ConfigDict(frozen=True)

    method: str | None = None
    node: str | None = None
    text: str | None = None
    source: str | None = None
    module: str | None = None
    file: str | None = None
    line: int | None = None
    column: int | None = None
    offset_bytes: int | None = None
    span: int | None = None

    def render(self) -> list[str]:
        """Return the lines that follow the headline, without indentation of their own."""
        places = [part for part in (self._file_place(), self.method, self.node) if part]
        head = ", ".join(places)
        if self.span is not None and self.text is not None and self.column is not None:
            return [f"   --> {head}", *self._underlined(self.text, self.column, self.span)]
        lines = [f"   --> {head}{'   ' + self.text if self.text else ''}"] if head or self.text else []
        if self.source:
            lines.append(f"       {self.source}")
        if self.module:
            lines.append(f"       in module {self.module}")
        return lines

    def origin(self) -> str | None:
        """Return source line and module in one line, `model.py:12 in forward:  x + y, in module features.3`."""
        parts = [self.source, self.module and f"in module {self.module}"]
        return ", ".join(part for part in parts if part) or None

    def _underlined(self, text: str, column: int, span: int) -> list[str]:
        number = str(self.line or "")
        # A tab is as wide as its terminal likes; the same tab above the caret is always right.
        lead = "".join(each if each == "\t" else " " for each in text[: column - 1])
        carets = "^" * max(1, min(span, len(text) - column + 1))
        return [f"{number:>4} | {text}", f"     | {lead}{carets}"]

    def _file_place(self) -> str | None:
        if self.file is None:
            return f"byte {self.offset_bytes}" if self.offset_bytes is not None else None
        place = self.file
        if self.line is not None:
            place += f":{self.line}" + (f":{self.column}" if self.column is not None else "")
        if self.offset_bytes is not None:
            place += f" at byte {self.offset_bytes}"
        return place


class Diagnostic(BaseModel):
    """One finding.

    Attributes:
        code: `EK` and three digits; the first digit names the room, see `exirkit explain`.
        severity: `error` stops, `warning` and `note` do not.
        message: One searchable fact, lower case, no final full stop.
        location: Where it is.
        expected: What would have been right.
        notes: How we got here.
        hint: One action that fixes it.
    """

    model_config = ConfigDict(frozen=True)

    code: str = Field(pattern=r"^EK[1-8]\d\d$")
    message: str
    severity: Severity = "error"
    location: Location = Location()
    expected: str | None = None
    notes: tuple[str, ...] = ()
    hint: str | None = None

    @classmethod
    def of(
        cls,
        code: str,
        message: str,
        *,
        severity: Severity = "error",
        location: Location | None = None,
        expected: str | None = None,
        notes: tuple[str, ...] = (),
        hint: str | None = None,
    ) -> Diagnostic:
        """Return a diagnostic, by default with the `expected` and `hint` of its code in `codes.yaml`."""
        usual = _texts(_PACKAGES[code[2]]).get(code, {})
        return cls(
            code=code,
            message=message,
            severity=severity,
            location=location or Location(),
            expected=expected or usual.get("expected"),
            notes=notes,
            hint=hint or usual.get("hint"),
        )

    def render(self) -> str:
        """Return the whole diagnostic as text of several lines."""
        lines = [f"{self.severity}[{self.code}]: {self.message}", *self.location.render()]
        if self.expected:
            lines.append(f"   = expected: {self.expected}")
        lines += [f"   = note: {note}" for note in self.notes]
        if self.hint:
            lines.append(f"   = hint: {self.hint}")
        return "\n".join(lines)

    def headline(self) -> str:
        """Return the diagnostic on one line, for a terminal or a log."""
        where = self.location._file_place() or self.location.node
        advice = self.hint or (f"expected: {self.expected}" if self.expected else None)
        hint = f" ({advice})" if advice else ""
        return f"{self.severity}[{self.code}]: {where + ': ' if where else ''}{self.message}{hint}"


@cache
def _texts(package: str) -> Mapping[str, Mapping[str, str]]:
    """Return what the file of a room says of its codes."""
    text = files(package).joinpath("codes.yaml").read_text(encoding="utf-8")
    found: dict[str, dict[str, str]] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return found


def choices_hint(wanted: str, known: Iterable[str], what: str = "there is") -> str | None:
    """Return a hint for a name that is not there: what may have been meant, and what there is.

    Args:
        wanted: The name.
        known: Names that are there, in the order in which they are listed.
        what: How the list begins.
    """
    names = list(known)
    if not names:
        return None
    close = difflib.get_close_matches(wanted, names, n=1)
    if close == names:
        return f"did you mean {close[0]}?"
    shown = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
    return (f"did you mean {close[0]}? " if close else "") + f"{what} {shown}"


class FindingFields(TypedDict, total=False):
    """The fields of a `Diagnostic`, to raise an error with one finding."""

    code: str
    message: str
    severity: Severity
    location: Location
    expected: str | None
    notes: tuple[str, ...]
    hint: str | None


class DiagnosticError(Exception):
    """Base of the exceptions that carry diagnostics; catch one of its four subclasses.

    Args:
        diagnostics: The findings.
        finding: Fields of the only finding, if no findings are given.

    Attributes:
        diagnostics: All findings, never empty, in the order in which they were found.
    """

    def __init__(
        self, diagnostics: Diagnostic | Iterable[Diagnostic] | None = None, **finding: Unpack[FindingFields]
    ) -> None:
        given = Diagnostic.of(**finding) if diagnostics is None else diagnostics
        found = (given,) if isinstance(given, Diagnostic) else tuple(given)
        assert found, "an error without a diagnostic"
        self.diagnostics: Sequence[Diagnostic] = found
        super().__init__("\n\n".join(diagnostic.render() for diagnostic in found))

    @property
    def code(self) -> str:
        """Code of the first finding."""
        return self.diagnostics[0].code

    def annotate(self, *notes: str) -> None:
        """Add notes to every finding that does not have them, on the way to the user."""
        self.diagnostics = tuple(
            each.model_copy(update={"notes": (*each.notes, *(note for note in notes if note not in each.notes))})
            for each in self.diagnostics
        )
        self.args = ("\n\n".join(diagnostic.render() for diagnostic in self.diagnostics),)

    def __reduce__(self) -> tuple[type[DiagnosticError], tuple[tuple[Diagnostic, ...]]]:
        """Rebuild from the diagnostics, so that the error crosses process borders whole."""
        return type(self), (tuple(self.diagnostics),)


class ModelError(DiagnosticError):
    """The model, program or file cannot be handled as it is."""


class UsageError(DiagnosticError, ValueError):
    """The library was called with something it does not take."""


class ContractError(DiagnosticError):
    """A pass, rule or backend broke its word; the diagnostic names it."""


class InternalError(DiagnosticError):
    """A bug of exirkit; the diagnostic says what to attach to a report."""
