"""What a person sees of the `exirkit fuzz` commands."""

from __future__ import annotations

import typer

from exirkit import Diagnostic
from exirkit.fuzz import Bucket, CampaignSummary, FeatureCount, Shown

from .console import stdout_console, table
from .failures import one_line, printable
from .fuzz_reports import FuzzReport, FuzzSummaryReport


def print_campaign(report: FuzzReport) -> None:
    """Print what a campaign has found."""
    last = report.first_seed + report.seeds if report.seeds is not None else ""
    rate = report.new / report.seconds if report.seconds else 0.0
    typer.echo(
        f"seeds {report.first_seed}:{last}: {report.done:,} programs, {report.new:,} of them now in "
        f"{report.seconds:.1f} s ({rate:.1f}/s on {report.workers} workers)"
    )
    typer.echo(", ".join(f"{verdict} {count:,}" for verdict, count in report.verdicts.items()) or "nothing was run")
    _print_tested(report)
    if report.buckets:
        rows = [[f"{one.failures:,}", one.first_seed, one.bucket] for one in report.buckets]
        stdout_console().print(table([">failures", ">first seed", "bucket"], rows))
        shown = report.buckets[0].first_seed
        typer.echo(f"\nexirkit fuzz show {printable(report.database)} {shown}    the program, and a script that fails")
    typer.echo(f"exirkit fuzz report {printable(report.database)} --html report.html")
    for one in report.diagnostics:
        typer.echo("\n" + "\n".join(map(printable, Diagnostic.model_validate(one.model_dump()).render().splitlines())))


def _print_tested(report: FuzzReport) -> None:
    """Print what was under test, and in how many programs it did anything."""
    has_rules = any(one.kind == "rule" for one in report.tested)
    columns = ["under test", "", ">programs it changed", *([">with its pattern", ">nearly"] if has_rules else [])]
    rows = []
    for one in report.tested:
        patterns = [f"{one.with_pattern:,}", f"{one.near:,}"] if one.kind == "rule" else ["", ""]
        rows.append([one.kind, one.name, f"{one.changed:,} of {report.done:,}", *(patterns if has_rules else [])])
    if rows:
        stdout_console().print(table(columns, rows))


def print_summary(report: FuzzSummaryReport, summary: CampaignSummary) -> None:
    """Print a campaign as a whole."""
    first, last = summary.seeds or (0, 0)
    bitwise = "-" if summary.bitwise is None else f"{summary.bitwise:.1%}"
    console = stdout_console()
    facts = [
        ["campaign", summary.campaign],
        ["target", summary.config["target"]],
        ["engine", summary.engine],
        ["seeds", f"{first} to {last}"],
        ["programs", f"{summary.programs:,}, {summary.distinct:,} different, {summary.steps:g} operators (median)"],
        ["verdicts", ", ".join(f"{verdict} {count:,}" for verdict, count in summary.verdicts.items())],
        ["not supported", ", ".join(f"{code} {count:,}" for code, count in summary.unsupported.items()) or "-"],
        *([f"not run, {count:,} times", reason] for reason, count in summary.not_run.items()),
        ["bit for bit", f"{bitwise} of {summary.compared:,} comparisons"],
        ["speed", f"{summary.per_second:.1f} programs/s, {summary.per_core:.1f} for each worker"],
    ]
    console.print(table(["", ""], facts))
    if summary.oracles:
        rows = [
            [
                one.oracle,
                f"{one.programs:,}",
                f"{one.mean:.2f}",
                f"{one.median:.2f}",
                f"{one.p95:.2f}",
                f"{one.share:.1%}",
            ]
            for one in summary.oracles
        ]
        console.print(
            table(["oracle", ">programs", ">mean ms", ">median", ">95 %", ">of the time"], rows, title="\nOracles")
        )
    if summary.features:
        rows = [[one.feature, f"{one.programs:,}", f"{one.share:.1%}", _quota(one)] for one in summary.features]
        console.print(table(["feature", ">programs", ">share", "quota"], rows, title="\nFeatures"))
    if summary.operators:
        most, least = summary.operators[0], summary.operators[-1]
        typer.echo(
            f"\nOperators: {len(summary.operators)}, from {most.feature} in {most.programs:,} programs "
            f"to {least.feature} in {least.programs:,}"
        )
    typer.echo(f"\nBuckets of failures: {len(summary.buckets)}")
    for bucket in summary.buckets:
        _print_bucket(bucket)
    if report.html is not None:
        typer.echo(f"\nwritten: {printable(report.html)}")


def print_shown(shown: Shown) -> None:
    """Print a program and all that is known of it."""
    typer.echo(f"# campaign {shown.campaign}, seed {shown.seed}, -O{shown.level}: {shown.verdict}")
    _print_text(shown.program or "# the generator did not get as far as a program")
    for found in shown.failures:
        typer.echo(f"\n# {found.oracle} {one_line(found.bucket)}")
        place = ", ".join(part for part in (found.stage, found.node) if part)
        _print_text("\n".join(f"#   {line}" for line in [*([place] if place else []), *found.message.splitlines()]))
    for made in shown.analyses:
        typer.echo(f"\n# failure {made.number}: {one_line(made.bucket)}")
        if made.culprit:
            rule = f", rule {made.rule}" if made.rule else ""
            typer.echo(f"# culprit: {one_line(made.culprit)}{rule}")
        if made.note:
            typer.echo(f"# note: {one_line(made.note)}")
        for title, text in (("reduced", made.reduced), ("repro.py", made.repro)):
            if text:
                typer.echo(f"\n# {title}")
                _print_text(text)


def print_repro(shown: Shown) -> None:
    """Print the first script of a program."""
    _print_text(next(one.repro for one in shown.analyses if one.repro))


def _quota(one: FeatureCount) -> str:
    if one.quota is None:
        return ""
    return f"{one.quota:.1%}" + ("" if one.share >= one.quota else "  NOT MET")


def _print_bucket(bucket: Bucket) -> None:
    typer.echo(f"\n{bucket.failures:>6,}  {one_line(bucket.bucket)}")
    typer.echo(f"        seeds {', '.join(map(str, bucket.seeds))}")
    for one in bucket.culprit:
        typer.echo(f"        culprit: {one_line(one)}")
    for one in bucket.causes:
        typer.echo(f"        reduced: {one_line(one)}")
    typer.echo(f"        {one_line(bucket.message)[:200]}")


def _print_text(text: str) -> None:
    typer.echo("\n".join(printable(line) for line in text.splitlines()))
