"""Bundled programs on the command line: the program in a file, and its test cases on both runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from exirkit.devtools import Bundle
from exirkit.emit import FileKind, PteFile, open_program
from exirkit.ir import Diagnostic, Location, ModelError, UsageError

from .data_files import kind_of_file

if TYPE_CHECKING:
    from exirkit.fuzz import OfficialRuntime

RUNTIMES = ("reference", "official")
_DIFFERS = "status 32"
_NOTHING_EXPECTED = "status 16"


@dataclass(frozen=True)
class TestCaseReport:
    """How a test case ended on one runtime.

    Attributes:
        runtime: `reference` or `official`.
        verdict: `as expected`, `differs`, `failed`, or `ran` if the case expects nothing.
    """

    method: str
    index: int
    runtime: str
    verdict: str


def open_program_or_bundle(path: Path) -> tuple[PteFile, Bundle | None]:
    """Open a program file, or a bundled program with the program in it.

    Raises:
        ProgramFormatError: The file is damaged or of another kind.
        OSError: It cannot be read.
    """
    if kind_of_file(path) is not FileKind.BUNDLED_PROGRAM:
        return open_program(path), None
    bundle = Bundle.open(path)
    return bundle.file, bundle


def run_test_cases(
    bundle: Bundle, data: Sequence[Path], rtol: float, atol: float
) -> tuple[list[TestCaseReport], list[Diagnostic]]:
    """Run all test cases on the reference runtime; return how each ended, and the findings."""
    cases: list[TestCaseReport] = []
    found: list[Diagnostic] = []
    for method, index in bundle.cases:
        try:
            result = bundle.run(method, index, rtol=rtol, atol=atol, data_path=list(data))
        except (ModelError, UsageError) as error:
            found += error.diagnostics
            cases.append(TestCaseReport(method, index, RUNTIMES[0], "failed"))
            continue
        found += result.differences
        verdict = "ran" if not result.is_compared else "as expected" if result.ok else "differs"
        cases.append(TestCaseReport(method, index, RUNTIMES[0], verdict))
    return cases, found


def run_test_cases_officially(
    bundle: Bundle, path: Path, runtime: OfficialRuntime, rtol: float, atol: float
) -> tuple[list[TestCaseReport], list[Diagnostic]]:
    """Run all test cases on the official runtime; return how each ended, and the findings."""
    data = path.read_bytes()
    cases: list[TestCaseReport] = []
    found: list[Diagnostic] = []
    for method, index in bundle.cases:
        failure = runtime.test_case(data, method, index, rtol=rtol, atol=atol).failure
        if failure is None:
            verdict = "as expected"
        elif _NOTHING_EXPECTED in failure.text.splitlines()[0] and not bundle.expected_outputs(method, index):
            verdict = "ran"
        else:
            verdict = "differs" if _DIFFERS in failure.text.splitlines()[0] else "failed"
            where = Location(method=method, node=f"test case {index}")
            notes = tuple(failure.text.strip().splitlines()[:4])
            text = "an output differs" if verdict == "differs" else f"the case ended with a {failure.kind}"
            found.append(Diagnostic.of("EK728", f"{text} on the official runtime", location=where, notes=notes))
        cases.append(TestCaseReport(method, index, RUNTIMES[1], verdict))
    return cases, found
