"""`exirkit verify`: everything about a program file that can be known to be wrong without running it."""

from __future__ import annotations

import os
from pathlib import Path

from exirkit.emit import PteFile, open_program
from exirkit.ir import Diagnostic, Location, ModelError
from exirkit.runtime_ref import OperatorRegistry, verify_program

from .inspection import operator_label
from .reports import Finding, VerifyReport


def verify_file(path: Path) -> tuple[VerifyReport, list[str]]:
    """Check form, meaning and kernels of a program file.

    Returns:
        The report, and the text of every finding.

    Raises:
        OSError: The file cannot be read.
    """
    found: list[Diagnostic] = []
    methods: list[str] = []
    try:
        with open_program(path) as file:
            methods = [plan.name for plan in file.program.execution_plan]
            registry = OperatorRegistry()
            found += _program_findings(file, registry)
            found += _unknown_kernels(file, registry)
    except ModelError as error:
        found += error.diagnostics
    findings = [Finding.model_validate(each.model_dump()) for each in found]
    report = VerifyReport(ok=not findings, file=os.fspath(path), methods=methods, diagnostics=findings)
    return report, [each.render() for each in found]


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
                    hint=f"did you mean {near}?" if near else None,
                )
            )
    return found
