"""Options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Planner(StrEnum):
    """Algorithms for planning memory."""

    PORTFOLIO = "portfolio"
    GREEDY = "greedy"
    NAIVE = "naive"
    EXACT = "exact"


class Executor(StrEnum):
    """Runtimes that run programs."""

    REFERENCE = "reference"
    OFFICIAL = "official"


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
ModelTarget = Annotated[str, typer.Argument(metavar="MODULE:FACTORY|FILE.pt2", show_default=False)]
ProgramFile = Annotated[Path, typer.Argument(metavar="MODEL.pte", show_default=False)]
InspectedFile = Annotated[Path, typer.Argument(metavar="MODEL.pte|MODEL.bpte|DATA.ptd", show_default=False)]
DataFiles = Annotated[
    list[Path] | None,
    typer.Option("--data", metavar="DATA.ptd", help="File with tensors that are not in the program; repeatable."),
]
MethodName = Annotated[str | None, typer.Option("--method", help="Only this method.", show_default=False)]
OperatorBooks = Annotated[
    list[str] | None,
    typer.Option("--rules", metavar="BOOK", help="Rule book that defines operators of the file; repeatable."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Export in strict mode, with TorchDynamo.")]

ExecutorName = Annotated[
    Executor, typer.Option("--runtime", help="Who runs the program; `official` in a process of its own.")
]

# How a model is lowered by commands that examine its lowering.
Rules = Annotated[list[str] | None, typer.Option("--rules", metavar="BOOK", help="As for `exirkit lower`; repeatable.")]
Pipelines = Annotated[
    list[str] | None, typer.Option("--pipeline", metavar="FILE", help="As for `exirkit lower`; repeatable.")
]
Passes = Annotated[
    list[str] | None,
    typer.Option("--passes", metavar="MODULE:NAME", help="Passes on Edge: a class, function or list; repeatable."),
]
Partitioners = Annotated[
    list[str] | None, typer.Option("--partitioner", metavar="FILE", help="As for `exirkit lower`; repeatable.")
]
Level = Annotated[int, typer.Option("-O", min=0, max=2, help="Optimization level, as for `exirkit lower`.")]
LevelTarget = Annotated[
    str, typer.Option("--target", metavar="FILE", help="What is lowered for: a file, a shipped one, or any.")
]

# What results are compared on, and how close they have to be.
Runs = Annotated[
    int, typer.Option(min=1, help="Number of runs: the first with the example inputs, others with random ones.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of random inputs.")]
Rtol = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Relative tolerance, of the largest value; 1e-4 for float32, see docs/reference/command_line.md.",
        show_default=False,
    ),
]
Atol = Annotated[
    float | None, typer.Option(min=0, help="Absolute tolerance, which is added; 1e-6.", show_default=False)
]
CaseRtol = Annotated[float, typer.Option("--rtol", min=0, help="Relative tolerance of test cases.")]
CaseAtol = Annotated[float, typer.Option("--atol", min=0, help="Absolute tolerance of test cases.")]


def _import(names: list[str] | None) -> list[str] | None:
    """Import modules before the command begins: books, pipelines and passes may name what these register."""
    if names:
        from exirkit.patterns import import_libraries

        import_libraries(names)
    return names


# Read before all others, so that everything else can name what the modules register.
Libraries = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE",
        callback=_import,
        is_eager=True,
        help="Import this Python module first: it registers operators, predicates, builders or passes; repeatable.",
    ),
]
