"""`exirkit fuzz ...`: campaigns of generated programs, and what they have found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from .console import Steps, print_json
from .failures import WRONG_USAGE, CommandError

fuzz_app = typer.Typer(rich_markup_mode=None, invoke_without_command=True)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Database = Annotated[Path, typer.Argument(metavar="FILE.db", show_default=False)]
CampaignId = Annotated[
    str | None, typer.Option("--campaign", metavar="ID", help="Its id, or the beginning; by default the last one.")
]


@fuzz_app.callback()
def fuzz(
    context: typer.Context,
    target: Annotated[
        str, typer.Option(metavar="exirkit|official|MODULE:LOWER", help="The compiler that is tested.")
    ] = "exirkit",
    pipeline: Annotated[
        list[str] | None, typer.Option("--pipeline", metavar="FILE", help="As for `exirkit lower`; repeatable.")
    ] = None,
    rules: Annotated[
        list[str] | None, typer.Option("--rules", metavar="BOOK", help="As for `exirkit lower`; repeatable.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="N|A:B", help="So many, or from A up to before B; else 1000, or --minutes.")
    ] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="Stop after that time.", show_default=False)] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", "-j", min=1, max=1024, help="Processes; else one for each processor.")
    ] = None,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Work on the Dask cluster with this scheduler.")
    ] = None,
    db: Annotated[Path, typer.Option(metavar="FILE.db", help="Where results are kept, and where to go on.")] = Path(
        "fuzz.db"
    ),
    oracles: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Only these oracles: dialect-agreement,poisoned-run.")
    ] = None,
    rungs: Annotated[str | None, typer.Option(hidden=True, help="Deprecated name of --oracles.")] = None,
    optimize: Annotated[
        list[int] | None,
        typer.Option("-O", min=0, max=2, help="Levels; each program gets one.", show_default="all; 1 if usual"),
    ] = None,
    choices: Annotated[
        Literal["drawn", "usual"],
        typer.Option(metavar="drawn|usual", help="Planner, memory of inputs ...: drawn by seed, or as by default."),
    ] = "drawn",
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE.yaml", help="What programs are to be like.", show_default=False)
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Seeds in a unit of work; else as many as take a second.")
    ] = None,
    seed_seconds: Annotated[float, typer.Option(min=0.1, help="End a seed that takes longer.")] = 60.0,
    analyses: Annotated[int, typer.Option(min=0, help="Failures of each bucket to localize and reduce.")] = 2,
    bench: Annotated[
        str | None, typer.Option(metavar="MODULE:CLASS", help="What makes and checks programs.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Generate programs, compile them, and ask the oracles: exit code 0 if nothing is wrong, 1 otherwise.

    The same seed is the same program, and has the same result. Results are kept in a file; a campaign that was
    interrupted, or is to have more seeds, goes on where it was when the same command is given again.
    """
    if context.invoked_subcommand is not None:
        return
    if dask is not None and workers is not None:
        raise CommandError(code="EK711", message="--dask and --workers exclude each other", exit_code=WRONG_USAGE)
    with Steps() as steps:
        steps("loading torch")
        from .book_files import expand_books
        from .fuzzing import FuzzOptions, run_campaign

    options = FuzzOptions(
        target, tuple(pipeline or ()), expand_books(rules or ()), seeds, minutes, workers, dask, db, oracles or rungs,
        tuple(optimize or ()), choices, policy, batch, seed_seconds, analyses, bench,
    )  # fmt: skip
    report = run_campaign(options)
    if json:
        print_json(report)
    else:
        from .fuzz_rendering import print_campaign

        print_campaign(report)
    raise typer.Exit(0 if report.ok else 1)


@fuzz_app.command()
def report(
    file: Database,
    campaign: CampaignId = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Also write a page with plots.")] = None,
    json: Json = False,
) -> None:
    """Report what a campaign has found: verdicts, buckets of failures, time of the oracles, features of programs."""
    from .output_files import check_writable

    if html is not None:
        check_writable(html, ".html")
    with Steps() as steps:
        steps("loading torch")
        from .fuzz_looking import summarise_file

        made, summary = summarise_file(file, campaign, html)
    if json:
        print_json(made)
        return
    from .fuzz_rendering import print_summary

    print_summary(made, summary)


@fuzz_app.command()
def show(
    file: Database,
    which: Annotated[str, typer.Argument(metavar="SEED|BUCKET", show_default=False)],
    campaign: CampaignId = None,
    repro: Annotated[bool, typer.Option("--repro", help="Print the script that fails, and nothing else.")] = False,
    json: Json = False,
) -> None:
    """Print a program of a campaign, what is wrong with it, and the script that shows it."""
    with Steps() as steps:
        steps("loading torch")
        from .fuzz_looking import show_program

        made, shown = show_program(file, which, campaign, wants_repro=repro)
    if json:
        print_json(made)
        return
    from .fuzz_rendering import print_repro, print_shown

    (print_repro if repro else print_shown)(shown)


@fuzz_app.command()
def merge(
    file: Database,
    shards: Annotated[list[Path], typer.Argument(metavar="SHARD.db...", show_default=False)],
    json: Json = False,
) -> None:
    """Take over the results of other files, such as those of other machines."""
    with Steps() as steps:
        steps("loading torch")
        from .fuzz_looking import merge_files

        made = merge_files(file, shards)
    if json:
        print_json(made)
        return
    typer.echo(f"{made.database}: {made.added:,} results from {len(made.shards)} files")


@fuzz_app.command()
def mutants(
    only: Annotated[list[str] | None, typer.Option(metavar="ID", help="Only this mutant; repeatable.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="Time for each mutant.")] = 600.0,
    seeds: Annotated[int, typer.Option(min=1, help="Most programs for each mutant.")] = 100_000,
    workers: Annotated[int, typer.Option("--workers", "-j", min=1, max=1024, help="Mutants at a time.")] = 1,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Keep results here, and go on from there.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Apply known mutants to the compiler, one at a time, and report which are found: exit code 0 if all are.

    For each: whether programs reached it, whether anything came out otherwise, the oracle that found it, after how many
    programs and seconds, and which culprit was found.
    """
    if file is not None:
        from .output_files import check_writable

        check_writable(file, ".json")
    with Steps() as steps:
        steps("loading torch")
        from .fuzz_mutants import mutants_report

    made, table = mutants_report(only or (), seconds, seeds, workers, file)
    if json:
        print_json(made)
    else:
        typer.echo(table)
    raise typer.Exit(0 if made.ok else 1)
