"""From exported programs to Edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.export import ExportedProgram

from exirkit.passes import EdgeCompileConfig, Pipeline, edge_settings

from .arguments import Programs, Progress, by_method, pipeline_between, refuse, say
from .edge import EdgeProgramManager


def to_edge(
    programs: Programs,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
    *,
    pipeline: Pipeline | None = None,
    progress: Progress | None = None,
) -> EdgeProgramManager:
    """Lower exported programs to the Edge dialect.

    Args:
        programs: One program, which becomes the method `forward`, or programs by method name. They are not changed.
        constant_methods: Values by method name; each becomes a method that returns its value.
        compile_config: Choices; see `EdgeCompileConfig`.
        generate_etrecord: Not supported yet.
        pipeline: What to do in the place of the pipeline `to_edge` that comes with exirkit.
        progress: Called with a line of text before each long step.

    Raises:
        ModelError: The program is outside of what can be lowered; all findings at once.
        UsageError: EK702, an argument is wrong; EK705, the pipeline does not lead to Edge.

    Source: `to_edge` of the ExecuTorch documentation.
    """
    refuse(generate_etrecord, "generate_etrecord")
    config = compile_config or EdgeCompileConfig()
    named = by_method(programs)
    pipeline = pipeline_between(pipeline, "to_edge")
    lowered = {name: _edge_program(name, program, config, pipeline, progress) for name, program in named.items()}
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
    name: str, program: ExportedProgram, config: EdgeCompileConfig, pipeline: Pipeline, progress: Progress | None
) -> ExportedProgram:
    return pipeline.run(
        program, settings=edge_settings(config), progress=lambda title: say(progress, f"{name}: {title}")
    ).program
