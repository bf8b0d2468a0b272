"""`exirkit verify`: everything about a program file that can be known to be wrong without running it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.console import counted, print_json, print_line, print_text
from exirkit.cli.errors import CommandError, usage_error
from exirkit.cli.options import CaseAtol, CaseRtol, DataFiles, InspectedFile, Json, Libraries, OperatorBooks
from exirkit.cli.root import app

if TYPE_CHECKING:
    from exirkit.cli.bundles import TestCaseReport
    from exirkit.devtools import Bundle
    from exirkit.emit import ExecutionPlan, PteFile
    from exirkit.ir import Diagnostic
    from exirkit.program import CertificateReport
    from exirkit.runtime_ref import OperatorRegistry


LeastStatus = StrEnum("LeastStatus", {"TRIED": "tried", "BOUNDED": "bounded", "PROVED": "proved"})
"""What has to be known of a rule at least."""


@dataclass(frozen=True)
class VerifyReport:
    """The document of `exirkit verify`; `ok` is false if there is a finding.

    Attributes:
        missing_data: Names of tensors that are in data files which were not given.
        entries: Number of entries of a data file; None for a program.
        cases: How the test cases of a bundled program ended; they are run only if nothing is wrong with the program.
        rules: Rules of the certificate by what is known of them; None without `--certificate`.
        changed_rules: Rules of the certificate that have another text here, or are not here.
    """

    ok: bool
    file: str
    methods: list[str]
    diagnostics: list[Diagnostic]
    missing_data: list[str] = field(default_factory=list)
    entries: int | None = None
    cases: list[TestCaseReport] = field(default_factory=list)
    rules: dict[str, tuple[str, ...]] | None = None
    changed_rules: tuple[str, ...] = ()


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
    rtol: CaseRtol = 1e-5,
    atol: CaseAtol = 1e-8,
    official: Annotated[bool, typer.Option("--official", help="Run test cases on the official runtime too.")] = False,
    certificate: Annotated[
        bool, typer.Option("--certificate", help="Check MODEL.pte.cert: digests, verifiers, and what it says of rules.")
    ] = False,
    require: Annotated[
        LeastStatus | None,
        typer.Option(help="With --certificate: the least that is known of all applied rules.", show_default=False),
    ] = None,
    rules: OperatorBooks = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Verify a program file: its schema and semantics, and that the target has kernels that accept its calls.

    The test cases of a bundled program are run. Of a tensor data file, the schema and the layouts of its tensors are
    verified. Data that a program finds in another file is verified if that file is given with --data.
    """
    if require is not None and not certificate:
        raise usage_error("--require is about the rules of a certificate", hint="--certificate --require proved")
    tolerances = CaseTolerances(rtol, atol)
    report = verify_file(file, target, rules or (), data or (), tolerances=tolerances, official=official)
    if certificate:
        report = _with_certificate(report, file, rules or (), require)
    if json:
        print_json(report)
    else:
        for one in report.diagnostics:
            print_text(one.render() + "\n\n")
        what = counted(len(report.methods), "method") if report.entries is None else _entries_text(report.entries)
        count = len(report.diagnostics)
        print_line(f"{report.file}: {counted(count, 'finding') if count else f'nothing wrong with {what}'}")
        for line in _case_lines(report.cases):
            print_line(line)
        for line in _rule_lines(report):
            print_line(line)
        if report.missing_data:
            names = counted(len(report.missing_data), "tensor")
            print_line(f"not verified: {names} in data files; give these with --data")
    raise typer.Exit(0 if report.ok else 1)


def _with_certificate(
    report: VerifyReport, file: Path, books: Sequence[str], least: LeastStatus | None
) -> VerifyReport:
    """Check the certificate as well.

    Raises:
        OSError: There is none, or a file cannot be read.
        ModelError: A book has errors.
    """
    found = _checked_certificate(file, books, least)
    if isinstance(found, list):
        return replace(report, ok=False, diagnostics=[*report.diagnostics, *found])
    diagnostics = [*report.diagnostics, *found.findings]
    return replace(
        report, ok=not diagnostics, diagnostics=diagnostics, rules=found.statuses, changed_rules=found.changed
    )


def _checked_certificate(
    file: Path, books: Sequence[str], least: LeastStatus | None
) -> CertificateReport | list[Diagnostic]:
    from exirkit.ir import ModelError
    from exirkit.patterns import RULE_STATUSES
    from exirkit.program import certificate_file, check_certificate, read_certificate

    try:
        stated = read_certificate(certificate_file(file))
    except ModelError as error:
        return list(error.diagnostics)
    wanted = next((one for one in RULE_STATUSES if one == least), None)
    return check_certificate(file, stated, books=books, least=wanted)


def _rule_lines(report: VerifyReport) -> list[str]:
    """Return what is known of the rules of a certificate, in lines."""
    if report.rules is None:
        return []
    counts = ", ".join(f"{len(rules)} {status}" for status, rules in report.rules.items())
    lines = [f"rules that were applied: {counts or 'none'}"]
    if report.changed_rules:
        lines.append(f"not compared, because their texts differ or are not here: {', '.join(report.changed_rules)}")
    return lines


def _case_lines(cases: Sequence[TestCaseReport]) -> list[str]:
    """Return a line for each runtime: how its test cases ended."""
    lines = []
    for runtime in dict.fromkeys(one.runtime for one in cases):
        verdicts = [one.verdict for one in cases if one.runtime == runtime]
        counts = ", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(verdicts))
        lines.append(f"{counted(len(verdicts), 'test case')} on the {runtime} runtime: {counts}")
    return lines


def _entries_text(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"


@dataclass(frozen=True)
class CaseTolerances:
    """How close outputs of a test case must be to those that it expects."""

    rtol: float = 1e-5
    atol: float = 1e-8


def verify_file(
    path: Path,
    target: str = "official_host",
    rules: Sequence[str] = (),
    data: Sequence[Path] = (),
    *,
    tolerances: CaseTolerances | None = None,
    official: bool = False,
) -> VerifyReport:
    """Check form, meaning and kernels of a program, or the form of a data file; run test cases of a bundled program.

    Args:
        path: The file.
        target: Name or file of the description of the runtime that is to run it.
        rules: Books that define operators of the file; the runtime is taken to have kernels for these.
        data: Data files of the program.
        tolerances: How close outputs of test cases must be to what they expect.
        official: Whether to run test cases on the official runtime too.

    Raises:
        OSError: A file cannot be read.
        CommandError: EK738, the official runtime is not installed.
        UsageError: EK209, EK361, the description of the target is not one.
    """
    from exirkit.cli.bundles import open_program_or_bundle
    from exirkit.cli.data_files import kind_of_file
    from exirkit.cli.program_file import register_operators
    from exirkit.emit import FileKind, open_data_file
    from exirkit.ir import ModelError
    from exirkit.patterns import read_target
    from exirkit.program import kernels_of
    from exirkit.runtime_ref import OperatorRegistry, check_plan_kernels, missing_data

    register_operators(rules)
    kernels = kernels_of(read_target(target))
    found: list[Diagnostic] = []
    methods: list[str] = []
    missing: list[str] = []
    cases: list[TestCaseReport] = []
    try:
        if kind_of_file(path) is FileKind.TENSOR_DATA:
            return VerifyReport(True, os.fspath(path), [], [], entries=len(open_data_file(path).keys))
        file, bundle = open_program_or_bundle(path)
        with file:
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
            if bundle is not None and not found:
                cases, found = _run_cases(bundle, path, data, tolerances or CaseTolerances(), official)
    except ModelError as error:
        found += error.diagnostics
    return VerifyReport(not found, os.fspath(path), methods, found, missing, cases=cases)


def _run_cases(
    bundle: Bundle, path: Path, data: Sequence[Path], tolerances: CaseTolerances, official: bool
) -> tuple[list[TestCaseReport], list[Diagnostic]]:
    from exirkit.cli.bundles import run_test_cases, run_test_cases_officially

    cases, found = run_test_cases(bundle, data, tolerances.rtol, tolerances.atol)
    if official:
        from exirkit.fuzz import OfficialRuntime, official_missing_reason

        reason = official_missing_reason()
        if reason:
            raise CommandError(code="EK738", message=f"test cases did not run on the official runtime: {reason}")
        with OfficialRuntime() as runtime:
            more = run_test_cases_officially(bundle, path, runtime, tolerances.rtol, tolerances.atol)
        cases, found = [*cases, *more[0]], [*found, *more[1]]
    return cases, found


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
