"""`exirkit lower`: from models to program files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from exirkit.cli.batches import (
    BatchEntry,
    BatchReport,
    FailedModel,
    batch_entries,
    lowered_in_processes,
    lowered_in_turn,
)
from exirkit.cli.choices import choose_pipelines, require_checked
from exirkit.cli.console import Steps, counted, nbytes_text, print_json, print_line
from exirkit.cli.errors import Failure, report_failure, usage_error
from exirkit.cli.files import check_writable, expand_books, write_text
from exirkit.cli.lowering import LowerOptions, LowerReport, lower_target, print_lowered
from exirkit.cli.model import parse_source
from exirkit.cli.options import Json, Libraries, Planner, Strict
from exirkit.cli.root import app


class Aim(StrEnum):
    """What optimization aims at."""

    SPEED = "speed"
    SIZE = "size"


@app.command()
def lower(
    context: typer.Context,
    targets: Annotated[list[str], typer.Argument(metavar="MODULE:FACTORY|FILE.pt2", show_default=False)],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="MODEL.pte|FOLDER", help="File, or folder for several models.", show_default=False
        ),
    ],
    alloc_graph_input: Annotated[bool, typer.Option(help="Include graph inputs in the memory plan.")] = True,
    alloc_graph_output: Annotated[bool, typer.Option(help="Include graph outputs in the memory plan.")] = True,
    planner: Annotated[
        Planner | None, typer.Option(help="Memory planning algorithm; default: that of the policy, or portfolio.")
    ] = None,
    memory_policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.yaml", help="Memory policy: pools, and the values that go to each.", show_default=False
        ),
    ] = None,
    alignment: Annotated[int, typer.Option(min=1, help="Alignment of tensors in memory, in bytes.")] = 16,
    segment_alignment: Annotated[int, typer.Option(min=1, help="Alignment of segments in the file, in bytes.")] = 128,
    strict: Strict = False,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Let results reuse the memory of dead arguments where kernels allow it.")
    ] = False,
    schedule: Annotated[
        bool, typer.Option("--schedule", help="Reorder independent instructions to reduce peak memory.")
    ] = False,
    rules: Annotated[
        list[str] | None,
        typer.Option("--rules", metavar="BOOK", help="Apply a rule book: a file or a shipped one; repeatable."),
    ] = None,
    check_rules: Annotated[
        bool, typer.Option("--check", help="Check rules of --rules that are not accepted yet; stop if one is wrong.")
    ] = False,
    rewrite_limit: Annotated[int | None, typer.Option(min=0, help="Stop after this many rule applications.")] = None,
    change_interface: Annotated[
        bool, typer.Option("--change-interface", help="Let rules change what the program takes and gives.")
    ] = False,
    journal: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Write all rule applications to this file.")
    ] = None,
    pipeline: Annotated[
        list[str] | None,
        typer.Option(
            "--pipeline", metavar="FILE", help="Pipeline that replaces or adds a step of lowering; repeatable."
        ),
    ] = None,
    partitioner: Annotated[
        list[str] | None,
        typer.Option("--partitioner", metavar="FILE", help="Partitioner: a YAML file or MODULE:CLASS; repeatable."),
    ] = None,
    optimize: Annotated[
        int,
        typer.Option(
            "-O", min=0, max=2, help="Optimization: 0 none; 1 results unchanged; 2 results within tolerances."
        ),
    ] = 1,
    optimize_for: Annotated[Aim, typer.Option(help="Goal of -O2; size: no arena larger than with -O0.")] = Aim.SPEED,
    arena_limit: Annotated[
        int | None,
        typer.Option(
            min=0, help="Maximum bytes of planned memory per method; at -O2 twice those of -O1.", show_default=False
        ),
    ] = None,
    search: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Rewrites to try at -O2 for sequences chosen by cost; 1000 is plenty."),
    ] = 0,
    runtime: Annotated[
        str, typer.Option("--target", metavar="FILE", help="Target description: a file, a shipped one, or `any`.")
    ] = "official_host",
    external_constants: Annotated[
        bool, typer.Option("--external-constants", help="Write weights to MODEL.ptd beside the program.")
    ] = False,
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE.safetensors", help="Take the weights from there, by the names of the model's own."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Also write the report to this file.")
    ] = None,
    certificate: Annotated[
        bool, typer.Option("--certificate", help="Also write MODEL.pte.cert: passes, rules, verifiers.")
    ] = False,
    etrecord: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.etrecord", help="Also write the record of the lowering, for `profile` and Inspectors."
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, max=1024, help="Models that are lowered at a time, in processes.")
    ] = 1,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Lower models to program files.

    MODULE is a dotted module or the path of a .py file. FACTORY takes no argument and returns (model, example_inputs),
    (model, example_inputs, dynamic_shapes), an ExportedProgram, or a dict from method names to any of these. FILE.pt2
    is what torch.export.save writes. Several models share the time that torch takes to start; each is written to a
    file of its name, and one that fails does not keep the others from being lowered.
    """
    for target in targets:
        parse_source(target)
    check_writable(report, ".json")
    check_writable(journal, ".json")
    check_writable(etrecord, ".etrecord")
    is_batch = len(targets) > 1 or (output.is_dir() and output.suffix != ".pte")
    if len(targets) > 1:
        _require_one_model({"--journal": journal, "--etrecord": etrecord, "--weights": weights})
    if is_batch:
        entries = batch_entries(targets, output)
    else:
        check_writable(output, ".pte")
    options = LowerOptions(
        planner=planner,
        memory_policy=memory_policy,
        in_place=in_place,
        schedule=schedule,
        alloc_graph_input=alloc_graph_input,
        alloc_graph_output=alloc_graph_output,
        alignment=alignment,
        segment_alignment=segment_alignment,
        strict=strict,
        rules=expand_books(rules),
        rewrite_limit=rewrite_limit,
        change_interface=change_interface,
        journal=journal,
        pipelines=tuple(pipeline or ()),
        partitioners=tuple(partitioner or ()),
        level=optimize,
        optimize_for=optimize_for.value,
        arena_limit=arena_limit,
        search=search,
        target=runtime,
        external_constants=external_constants,
        weights=weights,
        certificate=certificate,
        etrecord=etrecord,
    )
    with Steps() as steps:
        require_checked(options.rules, list(choose_pipelines(pipeline)), steps, checks=check_rules)
        if not is_batch:
            lowered = lower_target(targets[0], output, options, steps)
    if not is_batch:
        _write_report(lowered, report)
        if json:
            print_json(lowered)
        else:
            print_lowered(lowered, lowered.file)
        return
    entries[0].file.parent.mkdir(exist_ok=True)
    if jobs == 1:
        outcomes = lowered_in_turn(entries, options)
    else:
        outcomes = lowered_in_processes(entries, options, jobs, tuple(libraries or ()))
    is_verbose = context.parent is not None and bool(context.parent.params.get("verbose"))
    batch = _told(entries, outcomes, is_verbose=is_verbose, is_quiet=json)
    _write_report(batch, report)
    if json:
        print_json(batch)
    raise typer.Exit(batch.exit_code)


def _require_one_model(files: dict[str, Path | None]) -> None:
    for option, file in files.items():
        if file is not None:
            message = f"{option} names one file, and several models are lowered"
            raise usage_error(message, hint="lower this model alone", file=str(file))


def _told(
    entries: Sequence[BatchEntry], outcomes: Iterable[LowerReport | Failure], *, is_verbose: bool, is_quiet: bool
) -> BatchReport:
    """Say of each model what became of it as soon as that is known, and return the document."""
    models: list[LowerReport | FailedModel] = []
    for entry, outcome in zip(entries, outcomes, strict=True):
        if isinstance(outcome, Failure):
            named = replace(
                outcome, headline=f"{entry.target}: {outcome.headline}", text=f"{entry.target}: {outcome.text}"
            )
            report_failure(named, as_json=False, verbose=is_verbose)
            models.append(FailedModel(entry.target, outcome.report.exit_code, outcome.report.diagnostics))
            continue
        models.append(outcome)
        if not is_quiet:
            seconds = sum(outcome.seconds.values())
            print_line(f"{outcome.target} -> {outcome.file} ({nbytes_text(outcome.nbytes)} bytes), {seconds:.2f} s")
    failed = sum(not one.ok for one in models)
    if not is_quiet:
        print_line(f"{counted(len(models) - failed, 'model')} lowered" + (f", {failed} failed" if failed else ""))
    return BatchReport(models, not failed)


def _write_report(document: LowerReport | BatchReport, file: Path | None) -> None:
    if file is not None:
        from pydantic_core import to_json

        write_text(file, to_json(document, indent=2).decode() + "\n")
