"""From exported programs to Edge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch.export import ExportedProgram

from exirkit.ir import Diagnostic, ModelError, OpOverload, called_graphs, locate, seldom_collected, underlying
from exirkit.passes import (
    LEFT_OUTSIDE,
    EdgeCompileConfig,
    Partitioner,
    Pipeline,
    edge_settings,
    expose_operators,
    keep_whole,
    with_stored_integers,
)

from .delegation import accepted
from .managers import EdgeProgramManager, Programs, by_method, method_of, pipeline_between
from .one_method import Progress, say


@seldom_collected()
def edge_manager(
    programs: Programs,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    *,
    pipeline: Pipeline | None = None,
    progress: Progress | None = None,
) -> EdgeProgramManager:
    """Do what `to_edge` documents."""
    config = compile_config or EdgeCompileConfig()
    named = by_method(programs)
    pipeline = pipeline_between(pipeline, "to_edge")
    lowered = {name: _edge_program(name, program, config, pipeline, progress) for name, program in named.items()}
    return EdgeProgramManager(lowered, constant_methods, config)


@seldom_collected()
def lower_to_backends(
    programs: Programs,
    partitioner: Sequence[Partitioner] | Mapping[str, Sequence[Partitioner]],
    transform: Callable[[EdgeProgramManager], EdgeProgramManager],
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    *,
    progress: Progress | None = None,
) -> EdgeProgramManager:
    """Do what `to_edge_transform_and_lower` does, with any way to transform the Edge programs in between.

    Args:
        programs: As for `to_edge`.
        partitioner: Partitioners for all methods, or by method, which are asked in their order.
        transform: Returns a manager with changed Edge programs.
        constant_methods: As for `to_edge`.
        compile_config: As for `to_edge`.
        progress: Called with a line of text before each long step.

    Raises:
        ModelError: EK743, a call was kept whole for a partitioner, which then did not take it; or as `to_edge`.
        ContractError: As `EdgeProgramManager.to_backend`.
    """
    named = by_method(programs)
    chosen = _partitioners(named, partitioner)
    manager, whole = _keeping_whole(named, chosen, compile_config, constant_methods, progress)
    manager = transform(manager)
    for turn in range(max(map(len, chosen.values()), default=0)):
        manager = manager.to_backend({name: found[turn] for name, found in chosen.items() if turn < len(found)})
    _check_taken({name: manager.exported_program(name) for name in named}, whole)
    return manager


def to_edge_keeping_whole(
    programs: Programs,
    partitioner: Sequence[Partitioner] | Mapping[str, Sequence[Partitioner]],
    compile_config: EdgeCompileConfig | None = None,
    *,
    progress: Progress | None = None,
) -> EdgeProgramManager:
    """Lower exported programs to what the partitioners of `to_edge_transform_and_lower` are shown first.

    Operators that they want whole are not decomposed; nothing is delegated yet.

    Raises:
        ModelError: As `to_edge`.
    """
    named = by_method(programs)
    return _keeping_whole(named, _partitioners(named, partitioner), compile_config, None, progress)[0]


def _keeping_whole(
    named: Mapping[str, ExportedProgram],
    chosen: Mapping[str, Sequence[Partitioner]],
    compile_config: EdgeCompileConfig | None,
    constant_methods: Mapping[str, Any] | None,
    progress: Progress | None = None,
) -> tuple[EdgeProgramManager, dict[str, list[Any]]]:
    """Return the Edge programs, and by method the operators that stayed whole."""
    config = compile_config or EdgeCompileConfig()
    whole = {name: _kept_whole(program, chosen[name]) for name, program in named.items()}
    kept = dict.fromkeys(op for _, ops in whole.values() for op in ops)
    accepting = replace(config, _core_aten_ops_exception_list=[*config._core_aten_ops_exception_list, *kept])
    marked = {name: program for name, (program, _) in whole.items()}
    manager = edge_manager(marked, constant_methods, accepting, progress=progress)
    return manager, {name: list(ops) for name, (_, ops) in whole.items()}


def _partitioners(
    programs: Mapping[str, ExportedProgram], given: Sequence[Partitioner] | Mapping[str, Sequence[Partitioner]] | None
) -> dict[str, list[Partitioner]]:
    if not isinstance(given, Mapping):
        given = dict.fromkeys(programs, given or ())
    for name in given:
        method_of(programs, name)
    return {name: [accepted(one) for one in given.get(name, ())] for name in programs}


def _kept_whole(
    program: ExportedProgram, partitioners: Sequence[Partitioner]
) -> tuple[ExportedProgram, list[OpOverload]]:
    if partitioners:
        # Before they say what they want whole, which depends on what is stored.
        program = with_stored_integers(program)
    wanted = [op for partitioner in partitioners for op in partitioner.ops_to_not_decompose(program)[0]]
    return keep_whole(expose_operators(program, wanted) if wanted else program, partitioners)


def _check_taken(programs: Mapping[str, ExportedProgram], kept: Mapping[str, Sequence[Any]]) -> None:
    """Reject programs in which calls are left that were kept whole for a backend."""
    findings = [
        Diagnostic.of(
            "EK743",
            f"{node.target} was kept whole for a partitioner, which did not take it",
            location=locate(node).model_copy(update={"method": name}),
        )
        for name, program in programs.items()
        for module in called_graphs(program.graph_module)
        for node in module.graph.nodes
        if node.op == "call_function" and underlying(node.target) in kept[name] and not node.meta.get(LEFT_OUTSIDE)
    ]
    if findings:
        raise ModelError(findings)


def _edge_program(
    name: str, program: ExportedProgram, config: EdgeCompileConfig, pipeline: Pipeline, progress: Progress | None
) -> ExportedProgram:
    return pipeline.run(
        program, settings=edge_settings(config), progress=lambda title: say(progress, f"{name}: {title}")
    ).program
