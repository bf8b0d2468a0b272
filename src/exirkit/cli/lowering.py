"""From a target of the command line to a program file, and what is reported of it."""

from __future__ import annotations

import json as json_module
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from .choices import ChosenPipelines, choose_partitioners, choose_pipelines, planning_pass, rules_of
from .console import Steps, counted, nbytes_text, output_to_stderr, print_line, print_table
from .files import write_text, write_whole
from .model import export_target, parse_source
from .options import Planner

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from exirkit.passes import ExecutorchBackendConfig, Partitioner, PropagationReport
    from exirkit.program import EdgeProgramManager, ExecutorchProgramManager

    from .program_file import BookOperator, BytesByKind, OperatorCount

    Transform = Callable[[EdgeProgramManager], EdgeProgramManager]


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


@dataclass(frozen=True)
class LowerOptions:
    """How a model is lowered; the fields are the options of `exirkit lower`.

    Attributes:
        planner: Memory planning algorithm; that of the policy when absent.
        memory_policy: File of the memory policy.
        in_place: Let results reuse the memory of dead arguments.
        schedule: Reorder independent instructions.
        alloc_graph_input: Plan memory for graph inputs.
        alloc_graph_output: Plan memory for graph outputs.
        alignment: Of tensors in memory, in bytes.
        segment_alignment: Of segments in the file, in bytes.
        strict: Export with TorchDynamo.
        rules: Files and names of rule books.
        rewrite_limit: Most applications of rules.
        change_interface: Rules may change what the program takes and gives.
        journal: File for the applications.
        pipelines: Files of pipelines.
        partitioners: Files and classes of partitioners.
        level: Optimization level.
        optimize_for: `speed` or `size`.
        arena_limit: Most bytes of planned memory of a method.
        search: How many rewrites are tried for sequences.
        target: Target description.
        external_constants: Write weights beside the program.
        weights: File of weights that replace the model's own.
        certificate: Write a certificate beside the program.
        etrecord: File for the record of the lowering.
    """

    planner: Planner | None = None
    memory_policy: Path | None = None
    in_place: bool = False
    schedule: bool = False
    alloc_graph_input: bool = True
    alloc_graph_output: bool = True
    alignment: int = 16
    segment_alignment: int = 128
    strict: bool = False
    rules: tuple[str, ...] = ()
    rewrite_limit: int | None = None
    change_interface: bool = False
    journal: Path | None = None
    pipelines: tuple[str, ...] = ()
    partitioners: tuple[str, ...] = ()
    level: int = 1
    optimize_for: Literal["speed", "size"] = "speed"
    arena_limit: int | None = None
    search: int = 0
    target: str = "official_host"
    external_constants: bool = False
    weights: Path | None = None
    certificate: bool = False
    etrecord: Path | None = None


def lower_target(text: str, output: Path, options: LowerOptions, steps: Steps) -> LowerReport:
    """Load the model that a target names, lower it and write the file.

    Args:
        text: `MODULE:FACTORY`, `path/to/file.py:FACTORY` or a `.pt2` file.
        output: The `.pte` file.
        options: How.
        steps: Is told of every step.

    Raises:
        CommandError: EK711 to EK718, the target gives no exported program, or an option names what there is not.
        DiagnosticError: The program cannot be lowered.
        OSError: A file cannot be read or written.
    """
    source = parse_source(text)
    with steps.phase("load", "loading torch"):
        from exirkit.passes import ExecutorchBackendConfig

    # Files are read before the model is exported, which may take long.
    pipelines = choose_pipelines(options.pipelines)
    with output_to_stderr():
        partitioners = choose_partitioners(options.partitioners, pipelines)
    config = ExecutorchBackendConfig(
        memory_planning_pass=planning_pass(
            options.planner,
            options.memory_policy,
            in_place=options.in_place,
            schedule=options.schedule,
            alloc_graph_input=options.alloc_graph_input,
            alloc_graph_output=options.alloc_graph_output,
            alignment=options.alignment,
        ),
        segment_alignment=options.segment_alignment,
        optimization_level=options.level,
        optimize_for=options.optimize_for,
        arena_limit=options.arena_limit,
        search=options.search,
        target=options.target,
        external_constants=(lambda _node: output.stem) if options.external_constants else False,
    )
    exported = export_target(source, steps, strict=options.strict).programs
    if options.weights is not None:
        exported = _with_weights(exported, options.weights, steps)
    return lower_exported(
        text,
        exported,
        output,
        steps,
        config,
        pipelines,
        partitioners,
        _transform(options, pipelines, steps),
        certificate=options.certificate,
        etrecord=options.etrecord,
    )


def _with_weights(exported: dict[str, ExportedProgram], file: Path, steps: Steps) -> dict[str, ExportedProgram]:
    from exirkit.emit import read_safetensors, tensors_of
    from exirkit.program import with_weights

    with steps.phase("weights", f"reading {file}"):
        return with_weights(exported, tensors_of(read_safetensors(file)))


def _transform(options: LowerOptions, pipelines: ChosenPipelines, steps: Steps) -> Transform:
    """Return what rewrites Edge programs by rules and runs pipelines on them."""

    def transform(edge: EdgeProgramManager) -> EdgeProgramManager:
        if options.rules:
            with steps.phase("rules", "rewriting"):
                edge = _rewritten(edge, options)
        if pipelines.on_edge:
            with steps.phase("pipelines", "running pipelines on Edge"):
                edge = edge.transform(pipelines.on_edge)
        return edge

    return transform


def _rewritten(edge: EdgeProgramManager, options: LowerOptions) -> EdgeProgramManager:
    """Apply all rules of the books at once, and write the journal if one was asked for.

    Raises:
        ModelError: A book has errors.
        ContractError: EK250, the rules rewrite in a cycle.
        OSError: A book cannot be read, or the journal not be written.
    """
    from exirkit.passes import ApplyRules, ChangeInterface
    from exirkit.patterns import RewriteOptions, read_target

    rules = rules_of(options.rules)
    if options.rewrite_limit == 0:
        return edge
    choices = RewriteOptions(limit=options.rewrite_limit, target=read_target(options.target))
    kind = ChangeInterface if options.change_interface else ApplyRules
    passes = {name: kind(rules, choices) for name in sorted(edge.methods)}
    result = edge.transform({name: [one] for name, one in passes.items()})
    for name, one in passes.items():
        for change in one.report.interface if one.report is not None else ():
            typer.echo(f"{name}: {change}", err=True)
    if options.journal is not None:
        documents = {name: one.report.document() for name, one in passes.items() if one.report is not None}
        write_text(options.journal, json_module.dumps(documents, indent=1) + "\n")
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
    from exirkit.emit import open_program
    from exirkit.passes import ExecutorchBackendConfig, counted_propagations, noted_fall_backs
    from exirkit.program import certificate_file, lower_to_backends, recording_lowering, to_edge

    from .program_file import book_operators, bytes_by_kind

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
    from .program_file import operator_counts

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
    from .program_file import arenas_text, print_book_operators, print_bytes

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
