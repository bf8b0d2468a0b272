"""`exirkit lower`: from a model to a program file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from torch.export import ExportedProgram

from exirkit.emit import open_program
from exirkit.ir import called_graphs
from exirkit.passes import ExecutorchBackendConfig, MemoryPlanningPass, Partitioner, exact, greedy, naive, portfolio
from exirkit.program import EdgeProgramManager, ExecutorchProgramManager, lower_to_backends, to_edge

from .book_operators import book_operators
from .console import Steps, output_to_stderr
from .exporting import export_methods, load_exported
from .inspection import bytes_by_kind, operator_counts
from .model_source import ModelSource, call_factory
from .partitioners import choose_partitioners
from .pipelines import ChosenPipelines, choose_pipelines
from .reports import LoweredMethod, LowerReport
from .rewriting import rewritten
from .rule_acceptance import require_checked


@dataclass(frozen=True)
class Optimization:
    """Choices about speed and size; see `ExecutorchBackendConfig`.

    Attributes:
        level: 0, 1 or 2.
        aim: `speed` or `size`.
        arena_limit: Most bytes of planned memory of a method.
        target: File or name of a target description.
    """

    level: int = 1
    aim: Literal["speed", "size"] = "speed"
    arena_limit: int | None = None
    target: str = "official_host"


PLANNERS = {"exact": exact, "greedy": greedy, "naive": naive, "portfolio": portfolio}


@dataclass(frozen=True)
class LowerOptions:
    """Choices of `exirkit lower`.

    Attributes:
        output: Where to write the program; ends in `.pte`.
        alloc_graph_input: Plan memory of inputs; without, the caller supplies it.
        alloc_graph_output: Plan memory of outputs.
        planner: `portfolio`, `greedy`, `naive` or `exact`; what the policy says, or `portfolio`, when absent.
        alignment: Of planned tensors, in bytes.
        segment_alignment: Of the parts of the file, in bytes.
        strict: Whether `torch.export` traces with TorchDynamo.
        rules: Books whose rules rewrite the Edge program: files, or names of shipped ones.
        rewrite_limit: Stop rewriting a method after so many applications.
        journal: Where to write what every application did; ends in `.json`.
        pipelines: Files of pipelines that stand for steps of lowering.
        optimization: How to make the program fast or small.
        in_place: Let results take the place of arguments that nothing needs any more.
        schedule: Put independent instructions into an order in which less is live at once.
        partitioners: What goes to backends: files of partitionings, or partitioners as `MODULE:NAME`.
        memory_policy: File that says which memories there are and what lies in which.
        check_rules: Check rules that were never accepted, instead of warning of them.
    """

    output: Path
    alloc_graph_input: bool = True
    alloc_graph_output: bool = True
    planner: str | None = None
    alignment: int = 16
    segment_alignment: int = 128
    strict: bool = False
    rules: tuple[str, ...] = ()
    rewrite_limit: int | None = None
    journal: Path | None = None
    pipelines: tuple[str, ...] = ()
    optimization: Optimization = field(default_factory=Optimization)
    in_place: bool = False
    schedule: bool = False
    memory_policy: Path | None = None
    partitioners: tuple[str, ...] = ()
    check_rules: bool = False


def lower_source(source: ModelSource, options: LowerOptions, steps: Steps) -> LowerReport:
    """Lower the model of a target and write the file.

    Raises:
        CommandError: EK714 to EK718, the target gives no exported program.
        ModelError: A book has errors, or EK815, one of its rules was rejected.
        DiagnosticError: The program cannot be lowered.
        OSError: The file cannot be written.
    """
    # Before the model is exported, which may take long.
    pipelines = choose_pipelines(options.pipelines)
    require_checked(options.rules, list(pipelines), steps, checks=options.check_rules)
    with output_to_stderr():
        partitioners = choose_partitioners(options.partitioners, pipelines)
        exported = exported_methods(source, steps, strict=options.strict)
    return lower_exported(source.text, exported, options, steps, pipelines, partitioners)


def lower_exported(
    target: str,
    exported: dict[str, ExportedProgram],
    options: LowerOptions,
    steps: Steps,
    pipelines: ChosenPipelines | None = None,
    partitioners: Sequence[Partitioner] = (),
) -> LowerReport:
    """Lower exported programs by method name and write the file."""
    chosen = pipelines or ChosenPipelines()

    def transform(edge: EdgeProgramManager) -> EdgeProgramManager:
        if options.rules:
            with steps.phase("rules", "rewriting"):
                edge = rewritten(edge, options)
        if chosen.on_edge:
            with steps.phase("pipelines", "running pipelines on Edge"):
                edge = edge.transform(chosen.on_edge)
        return edge

    if partitioners:
        with steps.phase("to_backends"), output_to_stderr():
            edge = lower_to_backends(exported, partitioners, transform, progress=steps)
    else:
        with steps.phase("to_edge"):
            edge = to_edge(exported, pipeline=chosen.to_edge, progress=steps)
        edge = transform(edge)
    with steps.phase("to_executorch"):
        manager = edge.to_executorch(backend_config(options), pipeline=chosen.to_executorch, progress=steps)
    with steps.phase("write", f"writing {options.output}"):
        manager.save(options.output)
        manager.write_tensor_data_to_file(options.output.parent)
    nbytes = options.output.stat().st_size
    with open_program(options.output) as file:
        kinds = bytes_by_kind(file, nbytes)
        defined = book_operators(file.program)
    methods = [
        _lowered_method(name, program, edge.exported_program(name), manager) for name, program in exported.items()
    ]
    return LowerReport(
        target=target,
        file=os.fspath(options.output),
        nbytes=nbytes,
        bytes_by_kind=kinds,
        methods=methods,
        book_operators=defined,
        seconds=dict(steps.seconds),
    )


def exported_methods(source: ModelSource, steps: Steps, *, strict: bool = False) -> dict[str, ExportedProgram]:
    """Return the exported programs of a target by method name.

    Raises:
        CommandError: EK714 to EK718, the target gives no exported program.
    """
    with steps.phase("load", f"loading {source.text}"):
        made: Any = load_exported(source.file) if source.factory is None and source.file else call_factory(source)
    with steps.phase("export"):
        return export_methods(made, strict=strict, say=steps)


def backend_config(options: LowerOptions) -> ExecutorchBackendConfig:
    """Return what the options ask of `to_executorch`."""
    planning = MemoryPlanningPass(
        memory_planning_algo=None if options.planner is None else PLANNERS[options.planner],
        alloc_graph_input=options.alloc_graph_input,
        alloc_graph_output=options.alloc_graph_output,
        alignment=options.alignment,
        in_place=options.in_place,
        schedule=options.schedule,
        policy=options.memory_policy,
    )
    chosen = options.optimization
    return ExecutorchBackendConfig(
        memory_planning_pass=planning,
        segment_alignment=options.segment_alignment,
        optimization_level=chosen.level,
        optimize_for=chosen.aim,
        arena_limit=chosen.arena_limit,
        target=chosen.target,
    )


def _lowered_method(
    name: str, exported: ExportedProgram, edge: ExportedProgram, manager: ExecutorchProgramManager
) -> LoweredMethod:
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
    return sum(len(module.graph.nodes) for module in called_graphs(program.graph_module))
