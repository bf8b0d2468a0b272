"""`exirkit report`: one page that shows a model after every pass of its lowering."""

from __future__ import annotations

import json as json_module
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exirkit.cli.choices import Lowering, choose_partitioners, choose_pipelines
from exirkit.cli.console import Steps, counted, nbytes_text, output_to_stderr, print_json, print_line, print_table
from exirkit.cli.errors import usage_error
from exirkit.cli.files import check_writable, write_text
from exirkit.cli.model import example_leaves, export_target, parse_source
from exirkit.cli.options import (
    Json,
    Level,
    LevelTarget,
    Libraries,
    ModelTarget,
    Partitioners,
    Passes,
    Pipelines,
    Rules,
    Strict,
)
from exirkit.cli.root import app

from .gap import find_gaps, finding_of, gap_overlay

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from exirkit.fuzz import LoweringChoices
    from exirkit.passes import Partitioner
    from exirkit.program import EdgeProgramManager, ExecutorchProgramManager
    from exirkit.visualization import LoweringRecord, Measured

# Runs whose times are averaged.
_RUNS = 5


class Format(StrEnum):
    """What is written."""

    HTML = "html"
    MODEL_EXPLORER = "model-explorer"


@dataclass(frozen=True)
class StageDocument:
    """One stage that changes the program.

    Attributes:
        number: Its place in its pipeline.
        name: Its name.
        pipeline: File of the pipeline.
        nodes: How many nodes there are afterwards.
        added: Nodes that are new.
        removed: Nodes that are gone.
        changed: Nodes that are different.
        moved: Nodes that stand in another order.
        rewrites: Applications of rules.
    """

    number: str
    name: str
    pipeline: str
    nodes: int
    added: int
    removed: int
    changed: int
    moved: int
    rewrites: int


@dataclass(frozen=True)
class ReportReport:
    """The document of `exirkit report`.

    Attributes:
        ok: Whether the lowering succeeded.
        target: The model.
        file: The page.
        nbytes: Its size.
        methods: By method, the stages that change the program.
        seconds: Wall time by phase.
        failure: What ended the lowering.
        off: With `--gap`, for each method with an instruction that is off, the step that made it so.
    """

    ok: bool
    target: str
    file: str
    nbytes: int
    methods: dict[str, list[StageDocument]]
    seconds: dict[str, float]
    failure: list[str]
    off: dict[str, str]


@app.command()
def report(
    target: ModelTarget,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="REPORT.html", show_default=False)],
    rules: Rules = None,
    pipeline: Pipelines = None,
    passes: Passes = None,
    partitioner: Partitioners = None,
    optimize: Level = 1,
    runtime: LevelTarget = "official_host",
    strict: Strict = False,
    times: Annotated[
        Path | None, typer.Option(metavar="FILE.etdp|FILE.json", help="Execution trace, or nanoseconds by instruction.")
    ] = None,
    gaps: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Numeric gap by instruction or node, to be shown.")
    ] = None,
    gap: Annotated[bool, typer.Option("--gap", help="Run it, and show the numeric gap of each instruction.")] = False,
    time: Annotated[bool, typer.Option("--time", help="Run it on the reference runtime, and show times.")] = False,
    format: Annotated[
        Format, typer.Option(help="`model-explorer`: graphs for Model Explorer, and node data beside them.")
    ] = Format.HTML,
    sources: Annotated[bool, typer.Option(help="Put the files of the model into the page.")] = True,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Write one HTML page that shows the program after every pass: changes, rules, memory, sizes.

    The page needs no network and no other file. If the lowering fails, it shows the way to the failure, and the exit
    code is 1. What is run is run on the example inputs.
    """
    source = parse_source(target)
    if (gap and gaps is not None) or (time and times is not None):
        raise usage_error("--gap and --gaps, and --time and --times, exclude each other")
    check_writable(output, ".json" if format is Format.MODEL_EXPLORER else ".html")
    lowering = Lowering(optimize, rules, pipeline, passes, runtime)
    with Steps() as steps:
        with steps.phase("torch", "loading torch"):
            from exirkit.emit import open_trace
            from exirkit.visualization import (
                LoweringRecord,
                Measured,
                ReportOptions,
                read_overlay,
                report_document,
                report_page,
                times_of_trace,
                versions,
            )
        # Files are read before the model is exported, which may take long.
        choices = lowering.choices()
        with output_to_stderr():
            partitioners = choose_partitioners(partitioner, choose_pipelines(pipeline))
        trace = open_trace(times) if times is not None and times.suffix == ".etdp" else None
        measured = [{} if path is None else read_overlay(path) for path in (None if trace else times, gaps)]
        exported = export_target(source, steps, strict=strict).programs
        inputs = {name: example_leaves(one, name) for name, one in exported.items()} if gap or time else {}
        if trace is not None:
            # A trace does not say of which method it is.
            measured[0] = {"forward" if "forward" in exported else min(exported): times_of_trace(trace)}
        with steps.phase("record", "reading the exported program"):
            record = LoweringRecord(exported)
        with steps.phase("lower", "lowering"), output_to_stderr():
            manager, failure = lower_recorded(exported, choices, partitioners, record)
        facts = {**versions(), **_facts(lowering, partitioner)}
        off: dict[str, str] = {}
        if gap and manager is not None:
            found_gaps = find_gaps(steps, exported, inputs, replace(choices, partitioners=tuple(partitioners)))
            measured[1] = {
                name: [Measured(**one) for one in listed] for name, listed in gap_overlay(found_gaps).items()
            }
            off = {one.method: finding_of(one).headline() for one in found_gaps if not one.ok}
            facts |= {f"numeric gap of {name}": text for name, text in off.items()}
        if time and manager is not None:
            with steps.phase("time", "running"):
                measured[0] = _times(manager, inputs)
        options = ReportOptions(
            title=target,
            facts=facts,
            times=measured[0],
            gaps=measured[1],
            failure=failure,
            with_sources=sources,
        )
        with steps.phase("write", f"writing {output}"):
            document = report_document(record, manager, options)
            if format is Format.MODEL_EXPLORER:
                _write_graphs(document, output)
            else:
                write_text(output, report_page(document))
    found = ReportReport(
        ok=not failure,
        target=target,
        file=os.fspath(output),
        nbytes=output.stat().st_size,
        methods={method["name"]: _stages(method) for method in document["methods"]},
        seconds=dict(steps.seconds),
        failure=failure,
        off=off,
    )
    if json:
        print_json(found)
    else:
        _print(found)
    raise typer.Exit(0 if found.ok else 1)


def _times(manager: ExecutorchProgramManager, inputs: Mapping[str, Sequence[Any]]) -> dict[str, list[Measured]]:
    """Return how long each instruction takes on the reference runtime."""
    from exirkit.emit import read_trace
    from exirkit.fuzz import trace_runs
    from exirkit.visualization import times_of_trace

    data = bytes(manager.buffer)
    return {
        name: times_of_trace(read_trace(trace_runs(data, name, leaves, runs=_RUNS).etdump))
        for name, leaves in inputs.items()
    }


def _write_graphs(document: dict[str, Any], output: Path) -> None:
    """Write graphs for Model Explorer, and a file with node data for each kind of measured numbers."""
    from exirkit.visualization import model_explorer_graphs, model_explorer_node_data

    write_text(output, json_module.dumps(model_explorer_graphs(document)))
    for key in ("times", "gaps"):
        data = model_explorer_node_data(document, key)
        if data:
            write_text(output.with_name(f"{output.stem}_{key}.json"), json_module.dumps(data))


def lower_recorded(
    exported: dict[str, ExportedProgram],
    choices: LoweringChoices,
    partitioners: list[Partitioner],
    record: LoweringRecord,
) -> tuple[ExecutorchProgramManager | None, list[str]]:
    """Lower programs and record it; return the result, and what ended the lowering if something did."""
    from exirkit.ir import DiagnosticError
    from exirkit.passes import ApplyRules
    from exirkit.program import lower_to_backends, to_edge

    def transform(edge: EdgeProgramManager) -> EdgeProgramManager:
        steps: list[Any] = [*choices.passes, *choices.on_edge]
        if choices.rules:
            steps.insert(0, ApplyRules(list(choices.rules), choices.rewriting))
        return edge.transform(steps) if steps else edge

    try:
        with record.watching():
            if partitioners:
                edge = lower_to_backends(exported, partitioners, transform)
                delegated = {name: edge.exported_program(name) for name in exported}
                record.add("to-backend", delegated, "Give parts of the program to backends.")
            else:
                edge = transform(to_edge(exported, pipeline=choices.to_edge))
            return edge.to_executorch(choices.config, pipeline=choices.to_executorch), []
    except DiagnosticError as error:
        return None, [one.render() for one in error.diagnostics]


def _facts(lowering: Lowering, partitioner: list[str] | None) -> dict[str, str]:
    """Return the options of the lowering, as far as they are given."""
    given = {
        "optimization level": str(lowering.level),
        "target": lowering.target,
        "rules": ", ".join(lowering.rules or ()),
        "pipelines": ", ".join(lowering.pipelines or ()),
        "passes": ", ".join(lowering.passes or ()),
        "partitioners": ", ".join(partitioner or ()),
    }
    return {name: value for name, value in given.items() if value}


def _stages(method: dict[str, Any]) -> list[StageDocument]:
    found = []
    for at, stage in enumerate(method["stages"]):
        added, removed, changed, moved = stage["counts"]
        rewrites = len(stage.get("applications", ()))
        if at and (added or removed or changed or moved or rewrites):
            found.append(
                StageDocument(
                    number=stage["number"],
                    name=stage["name"],
                    pipeline=stage["pipeline"],
                    nodes=stage["nodes"],
                    added=added,
                    removed=removed,
                    changed=changed,
                    moved=moved,
                    rewrites=rewrites,
                )
            )
    return found


def _print(found: ReportReport) -> None:
    print_line(f"{found.target} -> {found.file} ({nbytes_text(found.nbytes)} bytes)")
    for name, stages in found.methods.items():
        print_line()
        rows = [
            (
                f"{one.number} {one.name}".strip(),
                one.nodes,
                one.added,
                one.removed,
                one.changed,
                one.moved,
                one.rewrites,
            )
            for one in stages
        ]
        columns = ["stage", ">nodes", ">added", ">removed", ">changed", ">moved", ">rewrites"]
        print_table(columns, rows, title=f"{name}: {counted(len(stages), 'stage')} that change the program")
    for name, text in found.off.items():
        print_line(f"{name}: {text}")
    for text in found.failure:
        print_line()
        print_line("the lowering failed:", style="bold")
        for line in text.splitlines():
            print_line(line)
