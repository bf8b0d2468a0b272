"""`exirkit lower`: from a model to a program file."""

from __future__ import annotations

import json as json_module
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.choices import ChosenPipelines, choose_partitioners, choose_pipelines, planning_pass, require_checked
from exirkit.cli.choices import rules_of as rules_of_books
from exirkit.cli.console import Steps, counted, nbytes_text, output_to_stderr, print_json, print_line, print_table
from exirkit.cli.files import check_writable, expand_books, write_text, write_whole
from exirkit.cli.model import export_target, parse_source
from exirkit.cli.options import Json, Libraries, ModelTarget, Planner, Strict
from exirkit.cli.root import app

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from exirkit.cli.program_file import BookOperator, BytesByKind, OperatorCount
    from exirkit.passes import ExecutorchBackendConfig, Partitioner, PropagationReport
    from exirkit.program import EdgeProgramManager, ExecutorchProgramManager

    Transform = Callable[[EdgeProgramManager], EdgeProgramManager]


class Aim(StrEnum):
    """What optimization aims at."""

    SPEED = "speed"
    SIZE = "size"


@dataclass(frozen=True)
class LoweredMethod:
    """What lowering made of one method.

    Attributes:
        nodes_exported: Graph nodes of the exported program.
        nodes_edge: Graph nodes in the Edge dialect.
        nodes_lowered: Graph nodes in the ExecuTorch dialect.
        instructions: Instructions of the emitted program.
        operators: By number of calls, then by name.
        arenas: Sizes of the planned memory in bytes, arena 1 first.
        delegates: Backends of its delegates, in the order in which they are loaded.
    """

    name: str
    nodes_exported: int
    nodes_edge: int
    nodes_lowered: int
    instructions: int
    operators: list[OperatorCount]
    arenas: list[int]
    delegates: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class LowerReport:
    """The document of `exirkit lower`.

    Attributes:
        file: The file that was written.
        nbytes: Its size.
        book_operators: Operators of the file that rule books define: a runtime needs them.
        propagations: What analyses of the whole graph did, by their names.
        fall_backs: Why programs were decomposed as a whole by torch, which takes several times as long; empty as a
            rule.
        seconds: Wall time by phase: `load` (torch and the model), `export`, `to_edge`, `to_executorch`, `write`.
        data_files: Data files that were written beside it, which the program needs to run.
        certificate: Its certificate, if one was asked for.
        etrecord: The record of the lowering, if one was asked for.
    """

    target: str
    file: str
    nbytes: int
    bytes_by_kind: BytesByKind
    methods: list[LoweredMethod]
    book_operators: list[BookOperator]
    propagations: dict[str, PropagationReport]
    fall_backs: list[str]
    seconds: dict[str, float]
    data_files: list[str]
    certificate: str | None = None
    etrecord: str | None = None
    ok: bool = True


@app.command()
def lower(
    target: ModelTarget,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="MODEL.pte", show_default=False)],
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
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Lower a model to a program file.

    MODULE is a dotted module or the path of a .py file. FACTORY takes no argument and returns (model, example_inputs),
    (model, example_inputs, dynamic_shapes), an ExportedProgram, or a dict from method names to any of these. FILE.pt2
    is what torch.export.save writes.
    """
    source = parse_source(target)
    check_writable(output, ".pte")
    check_writable(report, ".json")
    check_writable(journal, ".json")
    check_writable(etrecord, ".etrecord")
    with Steps() as steps:
        with steps.phase("load", "loading torch"):
            from exirkit.passes import ExecutorchBackendConfig

        # Files are read before the model is exported, which may take long.
        pipelines = choose_pipelines(pipeline)
        books = expand_books(rules)
        require_checked(books, list(pipelines), steps, checks=check_rules)
        with output_to_stderr():
            partitioners = choose_partitioners(partitioner, pipelines)
        config = ExecutorchBackendConfig(
            memory_planning_pass=planning_pass(
                planner,
                memory_policy,
                in_place=in_place,
                schedule=schedule,
                alloc_graph_input=alloc_graph_input,
                alloc_graph_output=alloc_graph_output,
                alignment=alignment,
            ),
            segment_alignment=segment_alignment,
            optimization_level=optimize,
            optimize_for=optimize_for.value,
            arena_limit=arena_limit,
            target=runtime,
            external_constants=(lambda _node: output.stem) if external_constants else False,
        )
        exported = export_target(source, steps, strict=strict).programs
        if weights is not None:
            exported = _with_weights(exported, weights, steps)
        transform = _transform(_Rewriting(books, rewrite_limit, runtime, journal, change_interface), pipelines, steps)
        lowered = lower_exported(
            target,
            exported,
            output,
            steps,
            config,
            pipelines,
            partitioners,
            transform,
            certificate=certificate,
            etrecord=etrecord,
        )
    if report is not None:
        from pydantic_core import to_json

        write_text(report, to_json(lowered, indent=2).decode() + "\n")
    if json:
        print_json(lowered)
    else:
        print_lowered(lowered, lowered.file)


def _with_weights(exported: dict[str, ExportedProgram], file: Path, steps: Steps) -> dict[str, ExportedProgram]:
    from exirkit.emit import read_safetensors, tensors_of
    from exirkit.program import with_weights

    with steps.phase("weights", f"reading {file}"):
        return with_weights(exported, tensors_of(read_safetensors(file)))


@dataclass(frozen=True)
class _Rewriting:
    """What to do with rules.

    Attributes:
        books: Their books.
        limit: Most applications.
        target: Target description.
        journal: File for the applications.
        changes_interface: Rules may change what the program takes and gives.
    """

    books: Sequence[str]
    limit: int | None
    target: str
    journal: Path | None
    changes_interface: bool


def _transform(rewriting: _Rewriting, pipelines: ChosenPipelines, steps: Steps) -> Transform:
    """Return what rewrites Edge programs by rules and runs pipelines on them."""

    def transform(edge: EdgeProgramManager) -> EdgeProgramManager:
        if rewriting.books:
            with steps.phase("rules", "rewriting"):
                edge = _rewritten(edge, rewriting)
        if pipelines.on_edge:
            with steps.phase("pipelines", "running pipelines on Edge"):
                edge = edge.transform(pipelines.on_edge)
        return edge

    return transform


def _rewritten(edge: EdgeProgramManager, rewriting: _Rewriting) -> EdgeProgramManager:
    """Apply all rules of the books at once, and write the journal if one was asked for.

    Raises:
        ModelError: A book has errors.
        ContractError: EK250, the rules rewrite in a cycle.
        OSError: A book cannot be read, or the journal not be written.
    """
    from exirkit.passes import ApplyRules, ChangeInterface
    from exirkit.patterns import RewriteOptions, read_target

    rules = rules_of_books(rewriting.books)
    if rewriting.limit == 0:
        return edge
    choices = RewriteOptions(limit=rewriting.limit, target=read_target(rewriting.target))
    kind = ChangeInterface if rewriting.changes_interface else ApplyRules
    passes = {name: kind(rules, choices) for name in sorted(edge.methods)}
    result = edge.transform({name: [one] for name, one in passes.items()})
    for name, one in passes.items():
        for change in one.report.interface if one.report is not None else ():
            typer.echo(f"{name}: {change}", err=True)
    journal = rewriting.journal
    if journal is not None:
        documents = {name: one.report.document() for name, one in passes.items() if one.report is not None}
        write_text(journal, json_module.dumps(documents, indent=1) + "\n")
    return result


def lower_exported(
    target: str,
    exported: dict[str, ExportedProgram],
    output: Path,
    steps: Steps,
    config: ExecutorchBackendConfig | None = None,
    pipelines: ChosenPipelines | None = None,
    partitioners: Sequence[Partitioner] = (),
    transform: Transform = lambda edge: edge,
    *,
    certificate: bool = False,
    etrecord: Path | None = None,
) -> LowerReport:
    """Lower exported programs by method name and write the file, and its certificate and record if asked for.

    Raises:
        DiagnosticError: The program cannot be lowered.
        OSError: The file cannot be written.
    """
    from exirkit.cli.program_file import book_operators, bytes_by_kind
    from exirkit.emit import open_program
    from exirkit.passes import ExecutorchBackendConfig, counted_propagations, noted_fall_backs
    from exirkit.program import certificate_file, lower_to_backends, recording_lowering, to_edge

    chosen = pipelines or ChosenPipelines()
    configuration = config or ExecutorchBackendConfig()
    with (
        counted_propagations() as propagated,
        noted_fall_backs() as fall_backs,
        recording_lowering() if certificate else nullcontext() as record,
    ):
        recorded = transform if etrecord is None else lambda edge: transform(edge.recording())
        if partitioners:
            with steps.phase("to_backends"), output_to_stderr():
                edge = lower_to_backends(exported, partitioners, recorded, progress=steps)
        else:
            with steps.phase("to_edge"):
                edge = to_edge(exported, pipeline=chosen.to_edge, progress=steps)
            edge = recorded(edge)
        with steps.phase("to_executorch"):
            manager = edge.to_executorch(configuration, pipeline=chosen.to_executorch, progress=steps)
    with steps.phase("write", f"writing {output}"):
        data_files = [os.fspath(path) for path in manager.save(output, data_files=True, progress=steps)]
    if record is not None:
        with steps.phase("certify", "verifying"):
            certified = record.certificate(manager, output, list(map(Path, data_files)), configuration)
            write_text(certificate_file(output), certified.text())
    if etrecord is not None:
        with steps.phase("record", f"writing {etrecord}"):
            write_whole(etrecord, manager.get_etrecord().save)
    nbytes = output.stat().st_size
    with open_program(output) as file:
        kinds = bytes_by_kind(file, nbytes)
        defined = book_operators(file.program)
    methods = [
        _lowered_method(name, program, edge.exported_program(name), manager) for name, program in exported.items()
    ]
    return LowerReport(
        target,
        os.fspath(output),
        nbytes,
        kinds,
        methods,
        defined,
        dict(propagated),
        list(fall_backs),
        dict(steps.seconds),
        data_files,
        None if record is None else os.fspath(certificate_file(output)),
        None if etrecord is None else os.fspath(etrecord),
    )


def _lowered_method(
    name: str, exported: ExportedProgram, edge: ExportedProgram, manager: ExecutorchProgramManager
) -> LoweredMethod:
    from exirkit.cli.program_file import operator_counts

    plan = next(plan for plan in manager.executorch_program.execution_plan if plan.name == name)
    return LoweredMethod(
        name=name,
        nodes_exported=_node_count(exported),
        nodes_edge=_node_count(edge),
        nodes_lowered=_node_count(manager.exported_program(name)),
        instructions=sum(len(chain.instructions) for chain in plan.chains),
        operators=operator_counts(plan),
        delegates=[one.id for one in plan.delegates],
        arenas=list(plan.non_const_buffer_sizes[1:]),
    )


def _node_count(program: ExportedProgram) -> int:
    from exirkit.ir import called_graphs

    return sum(len(module.graph.nodes) for module in called_graphs(program.graph_module))


def print_lowered(report: LowerReport, file: str) -> None:
    """Print what was lowered to `file`."""
    from exirkit.cli.program_file import arenas_text, print_book_operators, print_bytes

    print_line(f"{report.target} -> {file} ({nbytes_text(report.nbytes)} bytes)")
    rows = [
        (
            method.name,
            f"{method.nodes_exported} -> {method.nodes_edge} -> {method.nodes_lowered}",
            method.instructions,
            arenas_text(method.arenas),
        )
        for method in report.methods
    ]
    print_line()
    print_table(["method", "nodes: exported -> edge -> lowered", ">instructions", ">arenas (bytes)"], rows)
    for method in report.methods:
        counts = Counter(method.delegates)
        if counts:
            shown = ", ".join(f"{name} ({count})" for name, count in counts.items())
            print_line(f"delegates of {method.name}: {shown}")
    print_bytes(report.bytes_by_kind)
    print_book_operators(report.book_operators)
    for name, one in report.propagations.items():
        stored = f", {counted(one.stored, 'stored tensor')} converted while lowering" if one.stored else ""
        calls, conversions = counted(one.converted_calls, "call"), counted(one.conversions, "conversion")
        print_line(f"{name}: {calls} converted, {conversions}{stored}")
    for why in report.fall_backs:
        print_line(f"decomposed as a whole by torch: {why}")
    print_line()
    seconds = ", ".join(f"{name} {value:.2f}" for name, value in report.seconds.items())
    print_line(f"seconds: {seconds}; together {sum(report.seconds.values()):.2f}")
