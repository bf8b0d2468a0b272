"""`exirkit compare`: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .console import Steps, print_json


def compare(
    target: Annotated[str, typer.Argument(metavar="MODULE:FACTORY|FILE.pt2", show_default=False)],
    file: Annotated[Path | None, typer.Argument(metavar="[FILE.pte]", show_default=False)] = None,
    method: Annotated[str | None, typer.Option("--method", help="Only this method.", show_default=False)] = None,
    optimize: Annotated[int, typer.Option("-O", min=0, max=2, help="Level of optimization.")] = 1,
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
    runtime: Annotated[
        str, typer.Option("--target", metavar="FILE", help="Target description of -O2: a file or a shipped one.")
    ] = "official_host",
    strict: Annotated[bool, typer.Option("--strict", help="Export with TorchDynamo.")] = False,
    runs: Annotated[int, typer.Option(min=1, help="Runs: the first on the example inputs, others on drawn ones.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Of drawn inputs.")] = 0,
    rtol: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Of the largest value; 1e-4 for float32, see docs/reference/command_line.md.",
            show_default=False,
        ),
    ] = None,
    atol: Annotated[float | None, typer.Option(min=0, help="Added to that; 1e-6.", show_default=False)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Compare eager PyTorch, the reference runtime and the official runtime: exit code 1 if results differ.

    Where they differ, the program is run after every pass, and the first wrong pass, rule, application and node are
    named, or the first instruction at which a runtime departs. The official runtime runs in a process of its own.
    """
    from .model_source import parse_source

    source = parse_source(target)
    with Steps() as steps:
        with steps.phase("torch", "loading torch"):
            from exirkit.fuzz import Tolerances

            from .chosen_lowering import ChosenLowering
            from .compare_rendering import print_compared
            from .comparing import CompareOptions, compare_source

        lowering = ChosenLowering(
            optimize, tuple(rules or ()), tuple(pipeline or ()), tuple(passes or ()), runtime, strict
        )
        options = CompareOptions(lowering, file, method, runs, seed, Tolerances(rtol, atol))
        report, findings = compare_source(source, options, steps)
    if json:
        print_json(report)
    else:
        print_compared(report, findings)
    raise typer.Exit(0 if report.ok else 1)
