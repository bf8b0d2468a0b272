"""Checks of what callers hand to the lowering chain, shared by its entry points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.export import ExportedProgram

from exirkit.ir import Diagnostic, UsageError
from exirkit.passes import Pipeline

Programs = ExportedProgram | Mapping[str, ExportedProgram]
Progress = Callable[[str], None]


def by_method(programs: Programs) -> dict[str, ExportedProgram]:
    """Return programs by method name; one program alone is `forward` (raises EK702 for anything else)."""
    named = dict(programs) if isinstance(programs, Mapping) else {"forward": programs}
    for name, program in named.items():
        if not isinstance(program, ExportedProgram) or not isinstance(name, str):
            raise UsageError(
                Diagnostic(
                    code="EK702",
                    message=f"method {name!r} is a {type(program).__name__}",
                    expected="a torch.export.ExportedProgram",
                    hint="export the module first: torch.export.export(module, example_inputs)",
                )
            )
    return named


def method_of(programs: Mapping[str, ExportedProgram], name: str) -> ExportedProgram:
    """Return the program of a method (raises EK703 if there is none)."""
    if name not in programs:
        known = ", ".join(sorted(programs))
        raise UsageError(Diagnostic(code="EK703", message=f"there is no method {name}", notes=(f"methods: {known}",)))
    return programs[name]


def reject(value: Any, option: str) -> None:
    """Raise EK701 if an option that is not supported yet was given a value."""
    if value:
        raise not_yet(option)


def not_yet(what: str) -> UsageError:
    """Return the error EK701: documented, and not supported yet."""
    return UsageError(Diagnostic(code="EK701", message=f"{what} is not supported yet"))


def say(progress: Progress | None, line: str) -> None:
    """Tell the caller what comes next, if it wants to know."""
    if progress is not None:
        progress(line)


def pipeline_between(given: Pipeline | None, usual: str) -> Pipeline:
    """Return a pipeline for a step of the chain.

    Args:
        given: What the caller wants; the one that comes with exirkit when absent.
        usual: Name of that.

    Raises:
        UsageError: EK705, it takes or makes another dialect than the step.
    """
    shipped = Pipeline.shipped(usual)
    if given is None:
        return shipped
    if given.model.dialect != shipped.model.dialect:
        here, wanted = given.model.dialect, shipped.model.dialect
        raise UsageError(
            Diagnostic(
                code="EK705",
                message=f"pipeline {given.name} leads from {here.from_} to {here.to}",
                expected=f"one from {wanted.from_} to {wanted.to} for {usual}",
                hint="give pipelines from edge to edge to `transform`",
            )
        )
    return given
