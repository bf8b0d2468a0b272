"""A report of a lowering in one call."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from typing import Any

import torch
from torch.export import ExportedProgram

from exirkit.emit import replaced_file
from exirkit.ir import DiagnosticError, seldom_collected
from exirkit.passes import EdgeCompileConfig, ExecutorchBackendConfig, Partitioner
from exirkit.program import EdgeProgramManager, ExecutorchProgramManager, lower_to_backends, to_edge

from .document import ReportOptions, report_document
from .overlays import Overlay
from .page import report_page
from .recording import LoweringRecord


@seldom_collected()
def write_report(
    programs: ExportedProgram | Mapping[str, ExportedProgram],
    path: str | PathLike[str],
    *,
    transform_passes: Any = None,
    partitioner: Sequence[Partitioner] | Mapping[str, Sequence[Partitioner]] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    backend_config: ExecutorchBackendConfig | None = None,
    title: str = "program",
    times: Overlay | None = None,
    gaps: Overlay | None = None,
    with_sources: bool = True,
) -> ExecutorchProgramManager | None:
    """Lower programs and write a page that shows them after every pass.

    The page is one file that asks no network for anything. If the lowering fails, the page shows the way to the
    failure and what it was, and nothing is raised. For a chain of your own, make a `LoweringRecord`, run the chain
    inside of its `watching()`, and write what `report_page(report_document(record, manager, options))` returns.

    Args:
        programs: One program, which becomes the method `forward`, or programs by method.
        path: The page.
        transform_passes: Passes on Edge, as for `EdgeProgramManager.transform`.
        partitioner: As for `to_edge_transform_and_lower`.
        compile_config: As for `to_edge`.
        backend_config: As for `to_executorch`.
        title: What the page is called.
        times: Nanoseconds by instruction.
        gaps: Distance from eager PyTorch by instruction or node.
        with_sources: Whether the page has the files of the model.

    Returns:
        What became of the programs; None if the lowering failed.

    Raises:
        OSError: The page cannot be written.
    """
    named = dict(programs) if isinstance(programs, Mapping) else {"forward": programs}
    record = LoweringRecord(named)
    manager, failure = None, list[str]()
    try:
        with record.watching():
            edge = _edge(named, record, transform_passes, partitioner, compile_config)
            manager = edge.to_executorch(backend_config)
    except DiagnosticError as error:
        failure = [one.render() for one in error.diagnostics]
    options = ReportOptions(
        title=title, facts=versions(), times=times or {}, gaps=gaps or {}, failure=failure, with_sources=with_sources
    )
    page = report_page(report_document(record, manager, options))
    with replaced_file(path) as partial:
        partial.write_text(page, encoding="utf-8")
    return manager


def _edge(
    named: dict[str, ExportedProgram],
    record: LoweringRecord,
    transform_passes: Any,
    partitioner: Sequence[Partitioner] | Mapping[str, Sequence[Partitioner]] | None,
    compile_config: EdgeCompileConfig | None,
) -> EdgeProgramManager:
    def transform(manager: EdgeProgramManager) -> EdgeProgramManager:
        return manager if transform_passes is None else manager.transform(transform_passes)

    if not partitioner:
        return transform(to_edge(named, compile_config=compile_config))
    edge = lower_to_backends(named, partitioner, transform, None, compile_config)
    record.add(
        "to-backend", {name: edge.exported_program(name) for name in named}, "Give parts of the program to backends."
    )
    return edge


def versions() -> dict[str, str]:
    """Return the versions that a lowering depends on."""
    try:
        own = version("exirkit")
    except PackageNotFoundError:
        own = "not installed"
    return {"exirkit": own, "torch": str(torch.__version__), "python": platform.python_version()}
