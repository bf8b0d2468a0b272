"""The memory plan as a trace for chrome://tracing and Perfetto: a row for each step, bytes from left to right."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import getitem
from os import PathLike
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import Diagnostic, TensorSpec, UsageError, alloc, module_path, view
from exirkit.program import ExecutorchProgramManager

from .memory_map import MemoryMap


@dataclass(frozen=True, slots=True)
class _Allocation:
    """One tensor in an arena, from its first to its last step."""

    name: str
    operator: str
    arena: int
    offset: int
    nbytes: int
    module: str
    source: str
    spans: Sequence[tuple[int, int]]


def generate_memory_trace(
    executorch_program_manager: ExecutorchProgramManager,
    chrome_trace_filename: str | PathLike[str],
    enable_memory_offsets: bool = False,
    method_name: str = "forward",
    ommit_metadata: bool = False,
) -> None:
    """Write the memory plan of a lowered method as a Chrome trace.

    The axis of time stands for bytes. Each process (`pid`) is an arena, each thread (`tid`) a step of the graph at
    which anything is live, and each event a live tensor: `dur` is its size in bytes.

    Args:
        executorch_program_manager: What `to_executorch` returns.
        chrome_trace_filename: Where to write the trace.
        enable_memory_offsets: Put tensors where they lie in the arena; otherwise side by side, in order of appearance.
        method_name: The method.
        ommit_metadata: Leave out operator, module, source lines and size.

    Raises:
        UsageError: EK733, it is not a lowered program; EK703, there is no such method; EK734, no memory is planned.
        OSError: The file cannot be written.

    Source: `generate_memory_trace` of the ExecuTorch documentation; the spelling of the last argument is part of it.
    """
    if not isinstance(executorch_program_manager, ExecutorchProgramManager):
        given = type(executorch_program_manager).__name__
        raise UsageError(
            Diagnostic(
                code="EK733",
                message=f"a memory trace is made of a lowered program, not of a {given}",
                expected="what `to_executorch` returns",
            )
        )
    allocations = _graph_allocations(executorch_program_manager.exported_program(method_name))
    if not allocations:
        raise UsageError(
            Diagnostic(
                code="EK734",
                message=f"method {method_name!r} has no planned memory",
                hint="a method that only returns constants and what its caller provides needs none",
            )
        )
    events = _events(allocations, offsets=enable_memory_offsets, metadata=not ommit_metadata)
    Path(chrome_trace_filename).write_text(trace_text(events), encoding="utf-8")


def memory_map_trace(memory_map: MemoryMap) -> str:
    """Return the trace of a memory map, with offsets; rows are instructions.

    Of several methods, those after the first have arenas numbered on from 1000, 2000 and so on.
    """
    events: list[dict[str, Any]] = []
    for index, method in enumerate(memory_map.methods):
        allocations = []
        for value in method.values:
            step = None if value.producer is None else method.steps[value.producer]
            allocations.append(
                _Allocation(
                    value.name,
                    step.text if step else value.kind,
                    1000 * index + value.arena,
                    value.offset,
                    value.nbytes,
                    (step and step.module) or "",
                    (step and step.source) or "",
                    value.spans,
                )
            )
        events.extend(_process_names(method.name, sorted({one.arena for one in allocations})))
        events.extend(_events(allocations, offsets=True, metadata=True))
    return trace_text(events)


def trace_text(events: Sequence[dict[str, Any]]) -> str:
    """Return events as the text of a trace file."""
    return json.dumps({"traceEvents": list(events)}, indent=2) + "\n"


def _process_names(method: str, arenas: Sequence[int]) -> Iterator[dict[str, Any]]:
    for arena in arenas:
        name = f"{method}, arena {arena % 1000}"
        yield {"name": "process_name", "ph": "M", "pid": arena, "tid": 0, "args": {"name": name}}


def _events(allocations: Sequence[_Allocation], *, offsets: bool, metadata: bool) -> list[dict[str, Any]]:
    """Return an event for every tensor at every step that it is live; steps without any tensor get no row."""
    rows: dict[int, list[_Allocation]] = {}
    for one in allocations:
        for first, last in one.spans:
            for step in range(first, last + 1):
                rows.setdefault(step, []).append(one)
    events = []
    for row, step in enumerate(sorted(rows)):
        beside = 0
        for one in rows[step]:
            events.append(
                {
                    "name": one.name,
                    "cat": "memory_allocation",
                    "ph": "X",
                    "ts": one.offset if offsets else beside,
                    "dur": one.nbytes,
                    "pid": one.arena,
                    "tid": row,
                    "args": _metadata(one) if metadata else {},
                }
            )
            beside += one.nbytes
    return events


def _metadata(one: _Allocation) -> dict[str, Any]:
    return {
        "op_name": one.operator,
        "Memory ID": one.arena,
        "fqn": one.module,
        "source": one.source,
        "bytes": one.nbytes,
    }


def _graph_allocations(program: ExportedProgram) -> list[_Allocation]:
    """Return what is planned of a graph, each tensor under the name of the node that fills it."""
    found: dict[TensorSpec, _Allocation] = {}
    for node in program.graph.nodes:
        if node.op == "output" or node.target in (alloc, view, getitem):
            continue
        for spec in _specs(node.meta.get("spec")):
            first, last = spec.lifetime
            placed = spec.mem_id is not None and spec.mem_offset is not None and not spec.const
            if placed and spec not in found and first is not None and last is not None:
                found[spec] = _allocation(node, spec, (first, last))
    return list(found.values())


def _allocation(node: Node, spec: TensorSpec, span: tuple[int, int]) -> _Allocation:
    return _Allocation(
        node.name,
        str(node.target),
        spec.mem_id or 0,
        spec.mem_offset or 0,
        spec.nbytes(),
        module_path(node) or "",
        str(node.meta.get("stack_trace") or ""),
        [span],
    )


def _specs(value: Any) -> Iterator[TensorSpec]:
    if isinstance(value, TensorSpec):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _specs(one)
