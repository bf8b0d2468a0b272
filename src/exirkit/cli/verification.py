"""`exirkit verify`: everything about a program file that can be known to be wrong without running it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from exirkit.emit import ExecutionPlan, PteFile, open_program
from exirkit.ir import Diagnostic, Location, ModelError
from exirkit.patterns import read_target
from exirkit.program import kernels_of
from exirkit.runtime_ref import UNKNOWN_KERNEL_HINT, OperatorRegistry, check_plan_kernels, verify_program

from .book_operators import book_of, register_operators
from .inspection import operator_label
from .reports import Finding, VerifyReport


def verify_file(path: Path, target: str = "official_host", rules: Sequence[str] = ()) -> tuple[VerifyReport, list[str]]:
    """Check form, meaning and kernels of a program file.

    Args:
        path: The file.
        target: Name or file of the description of the runtime that is to run it.
        rules: Books that define operators of the file; the runtime is taken to have kernels for these.

    Returns:
        The report, and the text of every finding.

    Raises:
        OSError: A file cannot be read.
        UsageError: EK209, EK361, the description of the target is not one.
    """
    register_operators(rules)
    kernels = kernels_of(read_target(target))
    found: list[Diagnostic] = []
    methods: list[str] = []
    try:
        with open_program(path) as file:
            methods = [plan.name for plan in file.program.execution_plan]
            registry = OperatorRegistry()
            wrong = _program_findings(file, registry)
            unknown = _unknown_kernels(file, registry)
            found += [*wrong, *unknown]
            if kernels is not None and not wrong and not unknown:
                for plan in file.program.execution_plan:
                    found += _unless_of_books(check_plan_kernels(plan, registry, kernels), plan, rules)
    except ModelError as error:
        found += error.diagnostics
    findings = [Finding.model_validate(each.model_dump()) for each in found]
    report = VerifyReport(ok=not findings, file=os.fspath(path), methods=methods, diagnostics=findings)
    return report, [each.render() for each in found]


def _unless_of_books(findings: list[Diagnostic], plan: ExecutionPlan, rules: Sequence[str]) -> list[Diagnostic]:
    """Leave out that the target lacks an operator of a book: whoever names the book brings its kernels along."""
    if not rules:
        return findings
    brought = {
        f"operator {index}" for index in range(len(plan.operators)) if book_of(operator_label(plan, index)) is not None
    }
    return [one for one in findings if one.location.node not in brought]


def _program_findings(file: PteFile, registry: OperatorRegistry) -> list[Diagnostic]:
    try:
        verify_program(file, registry=registry)
    except ModelError as error:
        return list(error.diagnostics)
    return []


def _unknown_kernels(file: PteFile, registry: OperatorRegistry) -> list[Diagnostic]:
    found: list[Diagnostic] = []
    for plan in file.program.execution_plan:
        for index in range(len(plan.operators)):
            name = operator_label(plan, index)
            if registry.find(name) is not None:
                continue
            near = registry.suggest(name)
            found.append(
                Diagnostic(
                    code="EK731",
                    message=f"no kernel is called {name}",
                    location=Location(method=plan.name, node=f"operator {index}"),
                    hint=f"did you mean {near}?" if near else UNKNOWN_KERNEL_HINT,
                )
            )
    return found
