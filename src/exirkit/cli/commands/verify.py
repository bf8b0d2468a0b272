"""`exirkit verify`: everything about a program file that can be known to be wrong without running it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.console import counted, print_json, print_line, print_text
from exirkit.cli.options import Json, Libraries, OperatorBooks, ProgramFile
from exirkit.cli.root import app

if TYPE_CHECKING:
    from exirkit.emit import ExecutionPlan, PteFile
    from exirkit.ir import Diagnostic
    from exirkit.runtime_ref import OperatorRegistry


@dataclass(frozen=True)
class VerifyReport:
    """The document of `exirkit verify`; `ok` is false if there is a finding."""

    ok: bool
    file: str
    methods: list[str]
    diagnostics: list[Diagnostic]


@app.command()
def verify(
    file: ProgramFile,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="FILE",
            help="Target description, which lists its kernels: a file, a shipped one, or `any`.",
        ),
    ] = "official_host",
    rules: OperatorBooks = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Verify a program file: its schema and semantics, and that the target has kernels that accept its calls."""
    report = verify_file(file, target, rules or ())
    if json:
        print_json(report)
    else:
        for one in report.diagnostics:
            print_text(one.render() + "\n\n")
        methods = counted(len(report.methods), "method")
        count = len(report.diagnostics)
        print_line(f"{report.file}: {counted(count, 'finding') if count else f'nothing wrong with {methods}'}")
    raise typer.Exit(0 if report.ok else 1)


def verify_file(path: Path, target: str = "official_host", rules: Sequence[str] = ()) -> VerifyReport:
    """Check form, meaning and kernels of a program file.

    Args:
        path: The file.
        target: Name or file of the description of the runtime that is to run it.
        rules: Books that define operators of the file; the runtime is taken to have kernels for these.

    Raises:
        OSError: A file cannot be read.
        UsageError: EK209, EK361, the description of the target is not one.
    """
    from exirkit.cli.program_file import register_operators
    from exirkit.emit import open_program
    from exirkit.ir import ModelError
    from exirkit.patterns import read_target
    from exirkit.program import kernels_of
    from exirkit.runtime_ref import OperatorRegistry, check_plan_kernels

    register_operators(rules)
    kernels = kernels_of(read_target(target))
    found: list[Diagnostic] = []
    methods: list[str] = []
    try:
        with open_program(path) as file:
            methods = [plan.name for plan in file.program.execution_plan]
            registry = OperatorRegistry()
            found = [*_program_findings(file, registry), *_unknown_kernels(file, registry)]
            if kernels is not None and not found:
                for plan in file.program.execution_plan:
                    found += _without_book_operators(check_plan_kernels(plan, registry, kernels), plan, rules)
    except ModelError as error:
        found += error.diagnostics
    return VerifyReport(not found, os.fspath(path), methods, found)


def _without_book_operators(findings: list[Diagnostic], plan: ExecutionPlan, rules: Sequence[str]) -> list[Diagnostic]:
    """Leave out that the target lacks an operator of a book: the runtime is taken to have its kernels."""
    from exirkit.cli.program_file import book_of, operator_label

    if not rules:
        return findings
    defined = {
        f"operator {index}" for index in range(len(plan.operators)) if book_of(operator_label(plan, index)) is not None
    }
    return [one for one in findings if one.location.node not in defined]


def _program_findings(file: PteFile, registry: OperatorRegistry) -> list[Diagnostic]:
    from exirkit.ir import ModelError
    from exirkit.runtime_ref import verify_program

    try:
        verify_program(file, registry=registry)
    except ModelError as error:
        return list(error.diagnostics)
    return []


def _unknown_kernels(file: PteFile, registry: OperatorRegistry) -> list[Diagnostic]:
    from exirkit.cli.program_file import operator_label
    from exirkit.ir import Diagnostic, Location
    from exirkit.runtime_ref import UNKNOWN_KERNEL_HINT

    found: list[Diagnostic] = []
    for plan in file.program.execution_plan:
        for index in range(len(plan.operators)):
            name = operator_label(plan, index)
            if registry.find(name) is not None:
                continue
            near = registry.suggest(name)
            found.append(
                Diagnostic.of(
                    "EK731",
                    f"no kernel is called {name}",
                    location=Location(method=plan.name, node=f"operator {index}"),
                    hint=f"did you mean {near}?" if near else UNKNOWN_KERNEL_HINT,
                )
            )
    return found
