"""`exirkit fuzz mutants`: the bench of mutants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from exirkit.fuzz import MutantResult, MutationBenchOptions, mutant, mutant_table, run_mutation_bench

from .fuzz_reports import FuzzMutantsReport


def mutants_report(
    only: Sequence[str], seconds: float, seeds: int, workers: int, file: Path | None
) -> tuple[FuzzMutantsReport, str]:
    """Try to find mutants; each result is printed on standard error as it comes.

    Returns:
        The report, and the same as a table of text.

    Raises:
        UsageError: EK880, there is no mutant of that name.
    """
    for name in only:
        mutant(name)
    options = MutationBenchOptions(seconds=seconds, seeds=seeds)
    results = run_mutation_bench(options, only=only, file=file, listen=_say, workers=workers)
    killed = [one for one in results if one.killed_by]
    report = FuzzMutantsReport(
        ok=len(killed) == len(results),
        killed=len(killed),
        blamed_right=sum(bool(one.is_blame_right) for one in killed),
        mutants=[one.model_dump(mode="json") for one in results],
    )
    return report, mutant_table(results)


def _say(one: MutantResult) -> None:
    found = f"killed by {one.killed_by} after {one.programs} programs" if one.killed_by else "not killed"
    typer.echo(f"{one.id}: {found}", err=True)
