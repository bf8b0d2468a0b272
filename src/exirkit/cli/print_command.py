"""`exirkit print`: its options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from .console import Steps, print_json


class PrintedDialect(StrEnum):
    """Dialects that a program can be printed in."""

    ATEN = "aten"
    EDGE = "edge"
    EXECUTORCH = "executorch"


def print_program(
    target: Annotated[str, typer.Argument(metavar="MODULE:FACTORY|FILE.pt2", show_default=False)],
    dialect: Annotated[PrintedDialect, typer.Option(help="How far to lower it.")] = PrintedDialect.EDGE,
    after: Annotated[
        str | None, typer.Option(metavar="PASS", help="Print it after this pass.", show_default=False)
    ] = None,
    method: Annotated[str | None, typer.Option("--method", help="Only this method.", show_default=False)] = None,
    module: Annotated[
        str | None, typer.Option(metavar="PATH", help="Only calls of this module: features.3.", show_default=False)
    ] = None,
    around: Annotated[
        str | None, typer.Option(metavar="NODE", help="Only this call and those near it.", show_default=False)
    ] = None,
    distance: Annotated[int, typer.Option(min=0, help="How many steps from that call.")] = 2,
    numbers: Annotated[bool, typer.Option("--numbers", help="Sizes of `vars` as numbers, not as names.")] = False,
    rules: Annotated[
        list[str] | None, typer.Option("--rules", metavar="BOOK", help="As for `exirkit lower`; repeatable.")
    ] = None,
    pipeline: Annotated[
        list[str] | None, typer.Option("--pipeline", metavar="FILE", help="As for `exirkit lower`; repeatable.")
    ] = None,
    passes: Annotated[
        list[str] | None,
        typer.Option("--passes", metavar="MODULE:NAME", help="Passes on Edge: a class, function or list; repeatable."),
    ] = None,
    optimize: Annotated[int, typer.Option("-O", min=0, max=2, help="Level of optimization.")] = 1,
    runtime: Annotated[
        str, typer.Option("--target", metavar="FILE", help="Target description: a file or a shipped one.")
    ] = "official_host",
    strict: Annotated[bool, typer.Option("--strict", help="Export with TorchDynamo.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Print a program in the notation of rules: what is printed can be copied into `vars` and `match` of a rule.

    Every call has its type, and its module and source line above it. With --module or --around, what the calls use from
    elsewhere stands under `vars`, and what is used elsewhere is returned.
    """
    from .model_source import parse_source

    source = parse_source(target)
    with Steps() as steps:
        with steps.phase("torch", "loading torch"):
            from .chosen_lowering import ChosenLowering
            from .printing import PrintOptions, print_printed, print_source

        lowering = ChosenLowering(
            optimize, tuple(rules or ()), tuple(pipeline or ()), tuple(passes or ()), runtime, strict
        )
        options = PrintOptions(lowering, dialect.value, after, method, module, around, distance, numbers)
        report = print_source(source, options, steps)
    if json:
        print_json(report)
        return
    print_printed(report)
