"""`exirkit partition` and `exirkit new-backend`: their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import Steps, print_json


def partition(
    target: Annotated[str, typer.Argument(metavar="MODULE:FACTORY|FILE.pt2", show_default=False)],
    partitioner: Annotated[Path, typer.Option("--partitioner", metavar="FILE.yaml", help="What a backend takes.")],
    method: Annotated[str | None, typer.Option("--method", help="Only this method.", show_default=False)] = None,
    why_not: Annotated[
        bool, typer.Option("--why-not", help="List the calls that are not taken, by operator and reason.")
    ] = False,
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Say all about one call that is not taken.", show_default=False)
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Export with TorchDynamo.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Show what a partitioning takes of a model, and why not the rest.

    No backend is needed: nothing is compiled. The model is lowered to Edge, with the operators whole that the
    partitioning wants whole.
    """
    from .model_source import parse_source

    source = parse_source(target)
    with Steps() as steps:
        with steps.phase("load", "loading torch"):
            from .partitioning import PartitionOptions, partition_source, print_partitions

        options = PartitionOptions(partitioner, method, node, strict)
        report, texts = partition_source(source, options, steps)
    if json:
        print_json(report)
        return
    print_partitions(report, texts, lists_all=why_not)


def new_backend(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As a class is called: TinyNpu.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Where to; else a directory like the package.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Write a small package with a backend that works, to start from.

    It has rewrite rules, a partitioning, a compiler, a runtime in Python, tests and a README, and passes its own tests.
    """
    from .new_backend import write_backend

    report = write_backend(name, output)
    if json:
        print_json(report)
        return
    for file in report.files:
        typer.echo(f"{report.directory}/{file}")
    typer.echo(f"\ntests: cd {report.directory} && pytest")
