"""`exirkit report`: one page that shows a model after every pass of its lowering."""

from __future__ import annotations

import json as json_module
import os
from collections.abc import Sequence
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
    Partitioners,
    Passes,
    Pipelines,
    Rules,
    Strict,
)
from exirkit.cli.root import app

from .gap import find_gaps, finding_of

if TYPE_CHECKING:
    from exirkit.visualization.report.overlays import Overlay


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
    target: Annotated[str, typer.Argument(metavar="MODULE:FACTORY|FILE.pt2|FILE.pte", show_default=False)],
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
    code is 1. What is run is run on the example inputs. Of a program file the page shows the instructions; it is run
    on random inputs.
    """
    if (gap and gaps is not None) or (time and times is not None):
        raise usage_error("--gap and --gaps, and --time and --times, exclude each other")
    check_writable(output, ".json" if format is Format.MODEL_EXPLORER else ".html")
    if target.endswith((".pte", ".bpte")):
        if gap or any((rules, pipeline, passes, partitioner)):
            raise usage_error("a program file is not lowered again, and does not have the program to compare it with")
        _report_file(target, output, times, gaps, time, format, sources, json)
        return
    source = parse_source(target)
    lowering = Lowering(optimize, rules, pipeline, passes, runtime)
    with Steps() as steps:
        with steps.phase("torch", "loading torch"):
            from exirkit.fuzz import lower_recorded, measured_gaps, measured_times
            from exirkit.visualization import LoweringRecord, ReportOptions, report_document, versions
        # Files are read before the model is exported, which may take long.
        choices = lowering.choices()
        with output_to_stderr():
            choices = replace(choices, partitioners=tuple(choose_partitioners(partitioner, choose_pipelines(pipeline))))
        given = _Given(times, gaps)
        exported = export_target(source, steps, strict=strict).programs
        inputs = {name: example_leaves(one, name) for name, one in exported.items()} if gap or time else {}
        measured = given.of(list(exported))
        with steps.phase("record", "reading the exported program"):
            record = LoweringRecord(exported)
        with steps.phase("lower", "lowering"), output_to_stderr():
            manager, failure = lower_recorded(exported, choices, record)
        facts = {**versions(), **_facts(lowering, partitioner)}
        off: dict[str, str] = {}
        if gap and manager is not None:
            found_gaps = find_gaps(steps, exported, inputs, choices)
            measured[1] = measured_gaps(found_gaps)
            off = {one.method: finding_of(one).headline() for one in found_gaps if not one.ok}
            facts |= {f"numeric gap of {name}": text for name, text in off.items()}
        if time and manager is not None:
            with steps.phase("time", "running"):
                measured[0] = measured_times(bytes(manager.buffer), inputs)
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
            _write(document, output, format)
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


class _Given:
    """Measured numbers from files, which are read before anything that takes long."""

    def __init__(self, times: Path | None, gaps: Path | None) -> None:
        from exirkit.emit import open_trace
        from exirkit.visualization import read_overlay

        self._trace = open_trace(times) if times is not None and times.suffix == ".etdp" else None
        paths = (None if self._trace is not None else times, gaps)
        self._read: list[Overlay] = [{} if path is None else read_overlay(path) for path in paths]

    def of(self, methods: Sequence[str]) -> list[Overlay]:
        """Return times and gaps of a program with these methods."""
        from exirkit.visualization import times_of_trace

        if self._trace is None:
            return list(self._read)
        # A trace does not say of which method it is.
        return [{"forward" if "forward" in methods else min(methods): times_of_trace(self._trace)}, self._read[1]]


def _report_file(
    target: str,
    output: Path,
    times: Path | None,
    gaps: Path | None,
    time: bool,
    format: Format,
    sources: bool,
    json: bool,
) -> None:
    """Write the page of a program file."""
    with Steps() as steps:
        with steps.phase("torch", "loading torch"):
            import torch

            from exirkit.cli.bundles import open_program_or_bundle
            from exirkit.cli.input_files import make_inputs
            from exirkit.fuzz import measured_times
            from exirkit.visualization import ReportOptions, file_document, versions
        file, bundle = open_program_or_bundle(Path(target))
        with file:
            plans = file.program.execution_plan
            measured = _Given(times, gaps).of([plan.name for plan in plans])
            if time:
                inputs = {plan.name: make_inputs(plan, "random", torch.Generator().manual_seed(0)) for plan in plans}
                with steps.phase("time", "running"):
                    data = Path(target).read_bytes() if bundle is None else bytes(bundle.table.program)
                    measured[0] = measured_times(data, inputs)
            options = ReportOptions(target, versions(), measured[0], measured[1], with_sources=sources)
            with steps.phase("write", f"writing {output}"):
                document = file_document(file, options)
                _write(document, output, format)
    found = ReportReport(
        ok=True,
        target=target,
        file=os.fspath(output),
        nbytes=output.stat().st_size,
        methods={method["name"]: [] for method in document["methods"]},
        seconds=dict(steps.seconds),
        failure=[],
        off={},
    )
    if json:
        print_json(found)
    else:
        _print(found)


def _write(document: dict[str, Any], output: Path, format: Format) -> None:
    """Write a page, or graphs for Model Explorer and a file with node data for each kind of measured numbers."""
    from exirkit.visualization import model_explorer_graphs, model_explorer_node_data, report_page

    if format is Format.HTML:
        write_text(output, report_page(document))
        return
    write_text(output, json_module.dumps(model_explorer_graphs(document)))
    for key in ("times", "gaps"):
        data = model_explorer_node_data(document, key)
        if data:
            write_text(output.with_name(f"{output.stem}_{key}.json"), json_module.dumps(data))


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
        if not stages:
            continue
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
