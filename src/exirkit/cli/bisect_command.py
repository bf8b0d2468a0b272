"""`exirkit bisect`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from .console import Steps, print_json


def bisect(
    target: Annotated[str, typer.Argument(metavar="MODULE:FACTORY|FILE.pt2", show_default=False)],
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
    method: Annotated[str | None, typer.Option("--method", help="Only this method.", show_default=False)] = None,
    optimize: Annotated[int, typer.Option("-O", min=0, max=2, help="Level of optimization.")] = 1,
    runtime: Annotated[
        str, typer.Option("--target", metavar="FILE", help="Target description of -O2: a file or a shipped one.")
    ] = "official_host",
    strict: Annotated[bool, typer.Option("--strict", help="Export with TorchDynamo.")] = False,
    runs: Annotated[int, typer.Option(min=1, help="Runs: the first on the example inputs, others on drawn ones.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Of drawn inputs.")] = 0,
    rtol: Annotated[
        float | None,
        typer.Option(min=0, help="Of the largest value; 1e-4 for float32.", show_default=False),
    ] = None,
    atol: Annotated[float | None, typer.Option(min=0, help="Added to that; 1e-6.", show_default=False)] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Find the first pass, rule and application that changes what a model computes: exit code 1 if there is one.

    The model is lowered with the given rules, passes and pipelines; after every pass that changes it, it is run on
    torch and compared with the exported program. Without any, the passes of exirkit are tried.
    """
    from .model_source import parse_source

    source = parse_source(target)
    with Steps() as steps:
        with steps.phase("torch", "loading torch"):
            from exirkit.fuzz import Tolerances

            from .bisecting import BisectOptions, bisect_source
            from .chosen_lowering import ChosenLowering
            from .compare_rendering import print_bisected

        lowering = ChosenLowering(
            optimize, tuple(rules or ()), tuple(pipeline or ()), tuple(passes or ()), runtime, strict
        )
        report, findings = bisect_source(
            source, BisectOptions(lowering, method, runs, seed, Tolerances(rtol, atol)), steps
        )
    if json:
        print_json(report)
    else:
        print_bisected(report, findings)
    raise typer.Exit(0 if report.ok else 1)
