"""What importing a name without a counterpart raises."""

from __future__ import annotations

from exirkit.ir import Diagnostic, UsageError, choices_hint

from .names import Absence


class AbsentNameError(UsageError, ImportError):
    """A name of the official package has no counterpart (EK757)."""


class UnknownNameError(UsageError, AttributeError):
    """The table has no such name (EK757); also an `AttributeError`, so that `hasattr` works."""


def absent(module: str, name: str, absence: Absence) -> AbsentNameError:
    """Return the error for a name of which the table says why it is missing.

    Args:
        module: The official module.
        name: The name in it.
        absence: Why.
    """
    message = f"{module}.{name} has no counterpart: {absence.reason}"
    return AbsentNameError(Diagnostic.of("EK757", message, hint=absence.instead))


def unknown(module: str, name: str, known: list[str]) -> UnknownNameError:
    """Return the error for a name of which the table says nothing.

    Args:
        module: The official module.
        name: The name in it.
        known: Names in the module that have counterparts.
    """
    message = f"{module}.{name} has no counterpart"
    return UnknownNameError(Diagnostic.of("EK757", message, hint=choices_hint(name, known)))
