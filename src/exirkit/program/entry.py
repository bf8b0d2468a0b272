"""`to_edge` and its kin; what they need is imported when they are called, so that importing them is cheap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exirkit.passes import EdgeCompileConfig, Partitioner, Pipeline

    from .managers import EdgeProgramManager, Programs
    from .one_method import Progress


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
        generate_etrecord: Whether to keep what `get_etrecord` needs after lowering.
        pipeline: Replaces the shipped pipeline `to_edge`.
        progress: Called with a line of text before each long step.

    Raises:
        ModelError: The program cannot be lowered; all findings at once.
        UsageError: EK702, an argument is wrong; EK705, the pipeline does not lead to Edge.

    Source: `to_edge` of the ExecuTorch documentation.
    """
    from .lowering import edge_manager

    made = edge_manager(programs, constant_methods, compile_config, pipeline=pipeline, progress=progress)
    return made.recording() if generate_etrecord else made


def to_edge_transform_and_lower(
    programs: Programs,
    transform_passes: Sequence[Any] | Mapping[str, Sequence[Any]] | Any | None = None,
    partitioner: Sequence[Partitioner] | Mapping[str, Sequence[Partitioner]] | None = None,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """Lower exported programs to the Edge dialect, run passes on them, and delegate what partitioners take.

    Args:
        programs: As for `to_edge`.
        transform_passes: Passes, as for `EdgeProgramManager.transform`.
        partitioner: Partitioners for all methods, or by method, which are asked in their order.
        constant_methods: As for `to_edge`.
        compile_config: As for `to_edge`.
        generate_etrecord: As for `to_edge`; the record has the programs before calls are delegated.

    Raises:
        ModelError: EK743, a call was kept whole for a partitioner, which then did not take it; or as `to_edge`.
        ContractError: As `EdgeProgramManager.to_backend`.

    Source: `to_edge_transform_and_lower` of the ExecuTorch documentation.
    """
    from .lowering import lower_to_backends

    def transform(manager: EdgeProgramManager) -> EdgeProgramManager:
        manager = manager.recording() if generate_etrecord else manager
        return manager if transform_passes is None else manager.transform(transform_passes)

    return lower_to_backends(programs, partitioner or (), transform, constant_methods, compile_config)
