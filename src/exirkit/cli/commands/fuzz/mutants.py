"""`exirkit fuzz mutants`: which mutants of the compiler are found."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.console import Steps, print_json, print_line
from exirkit.cli.files import check_writable
from exirkit.cli.options import Json

if TYPE_CHECKING:
    from exirkit.fuzz import MutantResult


def mutants(
    only: Annotated[list[str] | None, typer.Option(metavar="ID", help="Only this mutant; repeatable.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Time limit per mutant, in seconds.")] = 600.0,
    seeds: Annotated[int, typer.Option(min=1, help="Maximum number of programs per mutant.")] = 100_000,
    workers: Annotated[int, typer.Option("--workers", "-j", min=1, max=1024, help="Number of mutants at a time.")] = 1,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Keep results in this file, and continue from it.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Apply known mutants to the compiler, one at a time, and report which are found: exit code 0 if all are.

    For each: whether programs reached it, whether any result differed, the oracle that found it, after how many
    programs and seconds, and which culprit was found.
    """
    check_writable(file, ".json")
    with Steps() as steps:
        steps("loading torch")
        from exirkit.fuzz import MutationBenchOptions, mutant, mutant_table, run_mutation_bench

    for name in only or ():
        mutant(name)
    options = MutationBenchOptions(seconds=seconds, seeds=seeds)
    results = run_mutation_bench(options, only=only or (), file=file, listen=_print_result, workers=workers)
    killed = [one for one in results if one.killed_by]
    ok = len(killed) == len(results)
    if json:
        right = sum(bool(one.is_blame_right) for one in killed)
        print_json({"ok": ok, "killed": len(killed), "blamed_right": right, "mutants": results})
    else:
        typer.echo(mutant_table(results))
    raise typer.Exit(0 if ok else 1)


def _print_result(one: MutantResult) -> None:
    found = f"killed by {one.killed_by} after {one.programs} programs" if one.killed_by else "not killed"
    print_line(f"{one.id}: {found}", err=True)
