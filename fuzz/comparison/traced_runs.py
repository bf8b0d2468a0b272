"""Traces of a method of a program file on either runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from exirkit.devtools import debug_buffer_nbytes
from exirkit.emit import DelegateCall, ExecutionPlan, JumpFalseCall, KernelCall, read_program, trace_file
from exirkit.fuzz.official import OfficialRuntime, missing_reason
from exirkit.runtime_ref import Runtime, Tracer

from .file_values import copied_inputs


class TracedRuntime(StrEnum):
    """Who runs a program."""

    REFERENCE = "reference"
    OFFICIAL = "official"


class NotTracedError(Exception):
    """The official runtime gave no trace; the message says why."""


@dataclass(frozen=True)
class Traced:
    """What tracing gave.

    Attributes:
        etdump: The trace; times are nanoseconds.
        buffer: The values, if they were kept.
    """

    etdump: bytes
    buffer: bytes | bytearray | None = None


def trace_runs(
    data: bytes,
    method: str,
    inputs: Sequence[Any],
    *,
    runtime: TracedRuntime = TracedRuntime.REFERENCE,
    runs: int = 1,
    values: bool = False,
    data_files: Sequence[Path] = (),
) -> Traced:
    """Run a method several times on the same inputs, with tracing on.

    Args:
        data: The program file.
        method: Name of the method.
        inputs: Flat; every run gets a copy.
        runtime: Who runs it; the official runtime does so in a process that ends with that.
        runs: How often; state stays from run to run.
        values: Whether to keep what instructions compute.
        data_files: Files with tensors that are not in the program; the official runtime takes one.

    Raises:
        NotTracedError: The official runtime is not there, or did not run the file.
        DiagnosticError: The reference runtime did not.
    """
    if runtime is TracedRuntime.REFERENCE:
        tracer = _traced_here(data, method, inputs, runs=runs, values=values, data_files=data_files)
        return Traced(trace_file(tracer.trace()).to_bytes(), tracer.buffer if values else None)
    reason = missing_reason()
    if reason is not None:
        raise NotTracedError(reason)
    if len(data_files) > 1:
        raise NotTracedError(f"it takes one data file, not {len(data_files)}")
    tensors = data_files[0].read_bytes() if data_files else None
    nbytes = _buffer_nbytes(data, method, inputs, runs, data_files) if values else 0
    with OfficialRuntime() as official:
        calls = [copied_inputs(inputs) for _ in range(runs)]
        found = official.trace(data, calls, method=method, debug_buffer_nbytes=nbytes, data=tensors)
    if found.failure is not None:
        first = next(iter(found.failure.text.splitlines()), "")
        raise NotTracedError(f"{found.failure.kind}: {first}")
    return Traced(found.etdump, found.debug_buffer if values else None)


def _traced_here(
    data: bytes, method: str, inputs: Sequence[Any], *, runs: int, values: bool, data_files: Sequence[Path]
) -> Tracer:
    tracer = Tracer(values=values)
    loaded = Runtime.get().load_program(data, tracer=tracer, data_path=list(data_files)).load_method(method)
    for _ in range(runs):
        loaded.execute(copied_inputs(inputs))
    return tracer


def _buffer_nbytes(data: bytes, method: str, inputs: Sequence[Any], runs: int, data_files: Sequence[Path]) -> int:
    """Return how much room the values of some runs take: the official runtime ends the process if it is too small."""
    plan = next(one for one in read_program(data).program.execution_plan if one.name == method)
    return debug_buffer_nbytes(plan, runs * _rounds(plan, data, method, inputs, data_files))


def _rounds(plan: ExecutionPlan, data: bytes, method: str, inputs: Sequence[Any], data_files: Sequence[Path]) -> int:
    """Return how often the instruction that runs most often runs in one run."""
    steps = [one.instr_args for chain in plan.chains for one in chain.instructions]
    if not any(isinstance(one, JumpFalseCall) for one in steps):
        return 1
    counts: dict[tuple[int, int], int] = {}
    for one in _traced_here(data, method, inputs, runs=1, values=False, data_files=data_files).runs[0].instructions:
        counts[one.chain, one.index] = counts.get((one.chain, one.index), 0) + 1
    assert all(
        isinstance(plan.chains[at[0]].instructions[at[1]].instr_args, KernelCall | DelegateCall) for at in counts
    )
    return max(counts.values(), default=1)
