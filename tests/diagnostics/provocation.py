"""A table from diagnostic codes to functions that provoke them, filled by the modules of `provocations/`."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from exirkit import Diagnostic, DiagnosticError
from exirkit.cli.errors import CommandError

ROOT = Path(__file__).resolve().parents[2]

# Raises the error that carries the code, or returns the findings. The path is an empty directory.
Provocation = Callable[[Path], object]

PROVOCATIONS: dict[str, Provocation] = {}

# Codes that only a peer of the official package gives.
NEEDING_EXECUTORCH: set[str] = set()

# Codes that no test can reach, and why; their texts still are for users.
UNREACHABLE: dict[str, str] = {}


def provokes(code: str) -> Callable[[Provocation], Provocation]:
    """Register the decorated function as the way to provoke a code."""

    def register(function: Provocation) -> Provocation:
        assert code not in PROVOCATIONS, f"{code} is provoked twice"
        PROVOCATIONS[code] = function
        return function

    return register


def rendered(code: str, scratch: Path) -> str:
    """Provoke a code and return its diagnostic as text, without anything that differs between machines."""
    text = _text(code, scratch)
    assert text is not None, f"{PROVOCATIONS[code].__name__} does not provoke {code}"
    text = text.replace(str(scratch), "SCRATCH").replace(str(ROOT), ".")
    # Where the function that provokes something stands in its file is of no interest.
    text = re.sub(r"(tests/diagnostics/provocations/[\w/]+\.py):\d+", r"\1:LINE", text)
    text = re.sub(r"\b0x[0-9a-f]{6,}\b", "0x...", text)
    return re.sub(r"<eval_with_key>\.\d+", "<eval_with_key>", text) + "\n"


def _text(code: str, scratch: Path) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            findings = PROVOCATIONS[code](scratch)
    except (DiagnosticError, CommandError) as error:
        return _text_of(code, error)
    listed = [findings] if isinstance(findings, Diagnostic) else findings
    assert isinstance(listed, list), f"provoking {code} raised nothing"
    return _first(code, listed)


def _text_of(code: str, error: BaseException | None) -> str | None:
    """Return the diagnostic that an error carries, or the one that caused it."""
    if error is None:
        return None
    found = None
    if isinstance(error, CommandError) and error.finding.code == code:
        found = error.headline
    elif isinstance(error, DiagnosticError):
        found = _first(code, error.diagnostics)
    return found or _text_of(code, error.__cause__)


def _first(code: str, findings: Sequence[Diagnostic]) -> str | None:
    return next((each.render() for each in findings if each.code == code), None)
