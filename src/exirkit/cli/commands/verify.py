"""`exirkit verify`: everything about a program file that can be known to be wrong without running it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.console import counted, print_json, print_line, print_text
from exirkit.cli.options import DataFiles, InspectedFile, Json, Libraries, OperatorBooks
from exirkit.cli.root import app

if TYPE_CHECKING:
    from exirkit.emit import ExecutionPlan, PteFile
    from exirkit.ir import Diagnostic
    from exirkit.runtime_ref import OperatorRegistry


@dataclass(frozen=True)
class VerifyReport:
    """The document of `exirkit verify`; `ok` is false if there is a finding.

    Attributes:
        missing_data: Names of tensors that are in data files which were not given.
        entries: Number of entries of a data file; None for a program.
    """

    ok: bool
    file: str
    methods: list[str]
    diagnostics: list[Diagnostic]
    missing_data: list[str] = field(default_factory=list)
    entries: int | None = None


@app.command()
def verify(
    file: InspectedFile,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="FILE",
            help="Target description, which lists its kernels: a file, a shipped one, or `any`.",
        ),
    ] = "official_host",
    data: DataFiles = None,
    rules: OperatorBooks = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Verify a program file: its schema and semantics, and that the target has kernels that accept its calls.

    Of a tensor data file, the schema and the layouts of its tensors. Data that a program finds in another file is
    verified if that file is given with --data.
    """
    report = verify_file(file, target, rules or (), data or ())
    if json:
        print_json(report)
    else:
        for one in report.diagnostics:
            print_text(one.render() + "\n\n")
        what = counted(len(report.methods), "method") if report.entries is None else _entries_text(report.entries)
        count = len(report.diagnostics)
        print_line(f"{report.file}: {counted(count, 'finding') if count else f'nothing wrong with {what}'}")
        if report.missing_data:
            names = counted(len(report.missing_data), "tensor")
            print_line(f"not verified: {names} in data files; give these with --data")
    raise typer.Exit(0 if report.ok else 1)


def _entries_text(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"


def verify_file(
    path: Path, target: str = "official_host", rules: Sequence[str] = (), data: Sequence[Path] = ()
) -> VerifyReport:
    """Check form, meaning and kernels of a program file, or the form of a data file.

    Args:
        path: The file.
        target: Name or file of the description of the runtime that is to run it.
        rules: Books that define operators of the file; the runtime is taken to have kernels for these.
        data: Data files of the program.

    Raises:
        OSError: A file cannot be read.
        UsageError: EK209, EK361, the description of the target is not one.
    """
    from exirkit.cli.data_files import kind_of_file
    from exirkit.cli.program_file import register_operators
    from exirkit.emit import FileKind, open_data_file, open_program
    from exirkit.ir import ModelError
    from exirkit.patterns import read_target
    from exirkit.program import kernels_of
    from exirkit.runtime_ref import OperatorRegistry, check_plan_kernels, missing_data

    register_operators(rules)
    kernels = kernels_of(read_target(target))
    found: list[Diagnostic] = []
    methods: list[str] = []
    missing: list[str] = []
    entries: int | None = None
    try:
        if kind_of_file(path) is FileKind.TENSOR_DATA:
            entries = len(open_data_file(path).keys)
            return VerifyReport(True, os.fspath(path), [], [], entries=entries)
        with open_program(path) as file:
            file.attach([open_data_file(one) for one in data])
            missing = list(
                dict.fromkeys(name for plan in file.program.execution_plan for name in missing_data(file, plan))
            )
            methods = [plan.name for plan in file.program.execution_plan]
            registry = OperatorRegistry()
            found = [*_program_findings(file, registry), *_unknown_kernels(file, registry)]
            if kernels is not None and not found:
                for plan in file.program.execution_plan:
                    found += _without_book_operators(check_plan_kernels(plan, registry, kernels), plan, rules)
    except ModelError as error:
        found += error.diagnostics
    return VerifyReport(not found, os.fspath(path), methods, found, missing)


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
        verify_program(file, registry=registry, needs_data=False)
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
