"""From exported programs to Edge."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.export import ExportedProgram, default_decompositions
from torch.fx._lazy_graph_module import _use_lazy_graph_module

from exirkit.ir import EdgeProgramVerifier, GraphEditor, ModelError, copy_program
from exirkit.passes import (
    EdgeCompileConfig,
    WholeGraphNeededError,
    beyond_core,
    decomposition_passes,
    refuse_graph_calls,
    run_passes,
    to_edge_passes,
)
from exirkit.verifiers import check_aten_program

from .arguments import Programs, Progress, by_method, refuse, say
from .edge import EdgeProgramManager


def to_edge(
    programs: Programs,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
    *,
    progress: Progress | None = None,
) -> EdgeProgramManager:
    """Lower exported programs to the Edge dialect.

    Args:
        programs: One program, which becomes the method `forward`, or programs by method name. They are not changed.
        constant_methods: Values by method name; each becomes a method that returns its value.
        compile_config: Choices; see `EdgeCompileConfig`.
        generate_etrecord: Not supported yet.
        progress: Called with a line of text before each long step.

    Raises:
        ModelError: The program is outside of what can be lowered; all findings at once.
        UsageError: EK702, an argument is wrong.

    Source: `to_edge` of the ExecuTorch documentation.
    """
    refuse(generate_etrecord, "generate_etrecord")
    config = compile_config or EdgeCompileConfig()
    named = by_method(programs)
    lowered = {name: _edge_program(name, program, config, progress) for name, program in named.items()}
    return EdgeProgramManager(lowered, constant_methods, config)


def to_edge_transform_and_lower(
    programs: Programs,
    transform_passes: Sequence[Any] | Mapping[str, Sequence[Any]] | Any | None = None,
    partitioner: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """Lower exported programs to the Edge dialect and run passes on them.

    Args:
        programs: As for `to_edge`.
        transform_passes: Passes, as for `EdgeProgramManager.transform`.
        partitioner: Not supported yet, apart from an empty list.
        constant_methods: As for `to_edge`.
        compile_config: As for `to_edge`.
        generate_etrecord: Not supported yet.

    Raises:
        UsageError: EK701, a partitioner was given.

    Source: `to_edge_transform_and_lower` of the ExecuTorch documentation.
    """
    refuse(partitioner, "partitioner")
    manager = to_edge(programs, constant_methods, compile_config, generate_etrecord)
    return manager if transform_passes is None else manager.transform(transform_passes)


def _edge_program(
    name: str, program: ExportedProgram, config: EdgeCompileConfig, progress: Progress | None
) -> ExportedProgram:
    say(progress, f"{name}: decomposing")
    edge = _decomposed(program, config)
    if config._check_ir_validity:
        exceptions = {*config._core_aten_ops_exception_list, *config.preserve_ops}
        findings = check_aten_program(edge, exceptions=exceptions)
        if findings:
            raise ModelError(findings)
    refuse_graph_calls(edge.graph)
    say(progress, f"{name}: lowering to Edge")
    run_passes(GraphEditor(edge), to_edge_passes(skip_dim_order=config._skip_dim_order))
    return edge


def _decomposed(program: ExportedProgram, config: EdgeCompileConfig) -> ExportedProgram:
    """Return a functional program of core ATen operators, made node by node where that is possible."""
    copied = copy_program(program, verifier=EdgeProgramVerifier)
    try:
        run_passes(GraphEditor(copied), decomposition_passes(frozenset(config.preserve_ops)))
    except WholeGraphNeededError:
        table: dict[Any, Callable[..., Any]] = default_decompositions()
        table.update(beyond_core())
        for op in config.preserve_ops:
            table.pop(op, None)
        # Nobody calls the graphs in between, so no code is generated for them.
        with _use_lazy_graph_module(True), warnings.catch_warnings():
            # torch warns of its own internals here, and there is nothing a caller could do about it.
            warnings.simplefilter("ignore")
            decomposed = program.run_decompositions(table)
        return copy_program(decomposed, verifier=EdgeProgramVerifier)
    return copied
