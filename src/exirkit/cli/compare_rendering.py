"""What `exirkit compare` and `exirkit bisect` found, as text."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from exirkit.ir import Diagnostic

from .compare_reports import BisectReport, ComparedMethodReport, CompareReport, OutputGapReport
from .console import stdout_console, table
from .failures import printable

_COLUMNS = ["executor", ">run", ">output", "type", ">largest error", ">relative", ">allowed", "verdict", ""]

# Of outputs that agree, the worst of each executor is enough to see how near they are.
_MOST_ROWS = 12


def print_compared(report: CompareReport, findings: Sequence[Diagnostic]) -> None:
    """Print the outputs that are farthest off, the findings and a verdict for every method."""
    console = stdout_console()
    file = f" and {report.file}" if report.file else ""
    runs = "; ".join(f"run {at}: {text}" for at, text in enumerate(report.inputs, 1))
    typer.echo(printable(f"{report.target}{file}, against eager PyTorch; {runs}"))
    for method in report.methods:
        typer.echo("")
        rows = [_row(one) for one in _shown(method)]
        if rows:
            console.print(table(_COLUMNS, rows))
    _print_findings(findings)
    for method in report.methods:
        for note in method.notes:
            typer.echo(printable(f"{method.name}: {note}"))
    for method in report.methods:
        typer.echo(printable(f"{method.name}: {_verdict(method)}"))


def print_bisected(report: BisectReport, findings: Sequence[Diagnostic]) -> None:
    """Print the findings and a verdict for every method."""
    runs = "; ".join(f"run {at}: {text}" for at, text in enumerate(report.inputs, 1))
    typer.echo(printable(f"{report.target}, against the exported program; {runs}"))
    _print_findings(findings)
    for method in report.methods:
        count = f"{len(method.steps)} step{'s' if len(method.steps) != 1 else ''} that change the program"
        typer.echo(printable(f"{method.name}: {count}, " + ("none of them wrong" if method.ok else "see above")))


def _print_findings(findings: Sequence[Diagnostic]) -> None:
    typer.echo("")
    for one in findings:
        typer.echo("\n".join(printable(line) for line in one.render().splitlines()) + "\n")


def _shown(method: ComparedMethodReport) -> list[OutputGapReport]:
    if len(method.outputs) <= _MOST_ROWS:
        return method.outputs
    wrong = [one for one in method.outputs if _is_wrong(one)]
    executors = list(dict.fromkeys(one.executor for one in method.outputs))
    worst = [
        max((one for one in method.outputs if one.executor == name), key=lambda one: one.gap.relative)
        for name in executors
    ]
    return (wrong or worst)[:_MOST_ROWS]


def _is_wrong(one: OutputGapReport) -> bool:
    return one.gap.kind not in ("equal", "within")


def _row(one: OutputGapReport) -> list[object]:
    gap = one.gap
    verdict = "WRONG" if _is_wrong(one) else "equal" if gap.kind == "equal" else "within"
    return [
        one.executor, one.run, one.output, one.type, f"{gap.absolute:.3g}", f"{gap.relative:.3g}",
        f"{gap.allowed:.2g}" if gap.kind != "equal" else "", verdict, gap.text if _is_wrong(one) else "",
    ]  # fmt: skip


def _verdict(method: ComparedMethodReport) -> str:
    executors = list(dict.fromkeys([*(one.executor for one in method.outputs), *method.failures]))
    said = []
    for name in executors:
        outputs = [one for one in method.outputs if one.executor == name]
        wrong = sum(map(_is_wrong, outputs))
        if name in method.failures:
            said.append(f"{name} FAILED")
        else:
            said.append(f"{name}: {wrong} of {len(outputs)} outputs WRONG" if wrong else f"{name} agrees")
    said += [f"{name} NOT COMPARED" for name in method.missing]
    return "; ".join(said)
