"""Diagnostics about a pass that violated its contract: its name, and the file and line of its author's code."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from exirkit.ir import (
    ContractError,
    Diagnostic,
    DiagnosticError,
    Location,
    RawEdit,
    UsageError,
    is_users_file,
    line_of_definition,
    line_that_raised,
    locate,
)

_SHOWN = 3


def name_of_pass(one: Any) -> str:
    """Return how messages name a pass of any kind."""
    if isinstance(one, functools.partial):
        return name_of_pass(one.func)
    name = getattr(one, "name", None)
    return name if isinstance(name, str) else str(getattr(one, "__name__", type(one).__name__))


def code_of_pass(one: Any) -> Location:
    """Return where the work of a pass is defined: the method, the function, or else the class."""
    if isinstance(one, functools.partial):
        return code_of_pass(one.func)
    if hasattr(one, "__code__") or hasattr(one, "__func__"):
        return line_of_definition(one)
    for method in ("edit", "call", "__call__"):
        found = getattr(type(one), method, None)
        code = getattr(found, "__code__", None)
        if found is not None and code is not None and is_users_file(code.co_filename):
            return line_of_definition(found)
    return line_of_definition(type(one))


def place_of(location: Location) -> str | None:
    """Return a place in a file in one word, `passes.py:12`."""
    return None if location.file is None else f"{location.file}:{location.line}"


def is_shipped(one: Any) -> bool:
    """Return whether a pass is one of exirkit's own, for whose edits the tests vouch."""
    return type(one).__module__.partition(".")[0] == "exirkit"


def nameless(one: Any) -> UsageError:
    """Describe a pass without a name."""
    kind = type(one).__name__
    return UsageError(
        Diagnostic(
            code="EK444",
            message=f"the pass {kind} has no name",
            location=line_of_definition(type(one)),
            expected="a class attribute `name`, in kebab case; reports and messages use it",
            hint=f'write `name = "{_kebab(kind)}"` in the class',
        )
    )


def _kebab(name: str) -> str:
    return "".join(f"-{each.lower()}" if each.isupper() and at else each.lower() for at, each in enumerate(name))


def raised(
    one: Any, error: Exception, code: str, notes: tuple[str, ...] = (), hint: str | None = None
) -> ContractError:
    """Describe a pass that raised something other than a diagnostic.

    Args:
        one: The pass.
        error: What it raised.
        code: Code of the finding.
        notes: What the caller knows.
        hint: What to do, if there is anything to say.
    """
    location = line_that_raised(error)
    if location.file is None:
        location = code_of_pass(one)
    # What follows the first line is often a report of torch about the graph; the cause has all of it.
    text = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}".rstrip(": ")
    message = f"pass {name_of_pass(one)} failed: {text}"
    return ContractError(Diagnostic(code=code, message=message, location=location, notes=notes, hint=hint))


def blame(one: Any, error: DiagnosticError) -> None:
    """Add to the findings of an edit which pass made it, and where."""
    place = place_of(line_that_raised(error)) or place_of(code_of_pass(one))
    error.annotate(f"raised in pass {name_of_pass(one)}" + (f", {place}" if place else ""))


def check_edits(one: Any, found: Sequence[RawEdit]) -> None:
    """Raise if a pass edited the program itself instead of telling the editor.

    Raises:
        ContractError: EK445.
    """
    if not found:
        return
    shown = "; ".join(edit.what for edit in found[:_SHOWN])
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    node = next((edit.node for edit in found if edit.node is not None and not edit.node._erased), None)
    place = code_of_pass(one)
    location = place if node is None else locate(node).model_copy(update={"file": place.file, "line": place.line})
    methods = ", ".join(dict.fromkeys(f"`{method}`" for edit in found for method in edit.methods))
    raise ContractError(
        Diagnostic(
            code="EK445",
            message=f"pass {name_of_pass(one)} edited the program without its editor: {shown}{more}",
            location=location,
            expected=f"edits by methods of the editor; here: {methods}",
            notes=("the editor cannot undo, report or check other edits",),
            hint="a pass that edits a graph module is a function of the module, a PassBase or an ExportPass",
        )
    )
