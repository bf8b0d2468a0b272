"""What to say of rules that are used without ever having been tested."""

from __future__ import annotations

from collections.abc import Sequence

from exirkit.ir import Diagnostic, Location

_SHOWN = 3


def unchecked_book(file: str, rules: Sequence[str], total: int) -> Diagnostic:
    """Return a warning about rules that no check has accepted with the text that they have now.

    Args:
        file: The book.
        rules: Their ids.
        total: How many rules the book has.
    """
    more = f" and {len(rules) - _SHOWN} more" if len(rules) > _SHOWN else ""
    return Diagnostic(
        code="EK814",
        severity="warning",
        message=f"{len(rules)} of {total} rules were never checked, or have changed since: "
        f"{', '.join(rules[:_SHOWN])}{more}",
        location=Location(file=file),
        hint=f"`exirkit rule check {file}`, or --check here",
    )


def rejected_rules(file: str, rules: Sequence[str], found: Sequence[Diagnostic]) -> list[Diagnostic]:
    """Return what is wrong with rules that were checked before they were to be used, and that they are not used.

    Args:
        file: The book.
        rules: Ids of those that were rejected.
        found: What the check has found.
    """
    message = f"rejected, so that nothing is lowered with it: {', '.join(rules[:_SHOWN])}"
    summary = Diagnostic(
        code="EK815", message=message, location=Location(file=file), hint=f"`exirkit rule check {file}` says more"
    )
    return [summary, *(one for one in found if one.severity == "error")]
