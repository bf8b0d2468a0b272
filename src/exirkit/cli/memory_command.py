"""`exirkit memory`: its options."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import IO, Annotated

import typer

from .console import Steps, print_json
from .planners import Planner


def memory(
    target: Annotated[str, typer.Argument(metavar="MODEL.pte|FILE.pt2|MODULE:FACTORY", show_default=False)],
    method: Annotated[str | None, typer.Option("--method", help="Only this method.", show_default=False)] = None,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", metavar="FILE.yaml", help="Plan a model by a memory policy; of a file, its limits."),
    ] = None,
    planner: Annotated[
        Planner | None,
        typer.Option(help="How to plan a model that is not lowered yet; portfolio if nothing else says it."),
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Plan it with results in the place of arguments that die.")
    ] = False,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="Plan it with its instructions in a better order.")
    ] = False,
    optimize: Annotated[int, typer.Option("-O", min=0, max=2, help="Level of optimization to lower it with.")] = 1,
    rules: Annotated[
        list[str] | None,
        typer.Option("--rules", metavar="BOOK", help="Book of operators of the file, or of rules for the model."),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="How many of the largest values to list.")] = 10,
    svg: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw the arenas over time.")] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="The same as a page to explore; it needs no network.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="The same as a trace for Perfetto or chrome://tracing.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Show where the tensors of a program lie, and how much of its memory is needed.

    Of a program file, lives follow from its instructions. A model is lowered first, and its values have the names and
    source lines of its graph.
    """
    from .output_files import check_writable, write_whole

    files = {".svg": svg, ".html": html, ".json": trace}
    for suffix, path in files.items():
        if path is not None:
            check_writable(path, suffix)
    with Steps() as steps:
        with steps.phase("load", "loading torch"):
            from exirkit.pictures import picture_page, picture_svg, picture_trace

            from .memory_plans import MemoryOptions, memory_report, picture_of, pools_of

        pools = pools_of(policy)
        options = MemoryOptions(
            method, planner and planner.value, in_place, schedule, optimize, pools, tuple(rules or ())
        )
        picture = picture_of(target, options, steps)
    drawings = {".svg": picture_svg, ".html": picture_page, ".json": picture_trace}
    for suffix, path in files.items():
        if path is not None:
            text = drawings[suffix](picture).encode()
            write_whole(path, partial(_write, text))
    report = memory_report(picture, top, pools=pools, svg=svg, html=html, trace=trace)
    if json:
        print_json(report)
        return
    from .memory_plans import print_memory

    print_memory(report)


def _write(text: bytes, file: IO[bytes]) -> None:
    file.write(text)
