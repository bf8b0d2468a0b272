"""Tracing: what each run of a method did, how long each instruction took, and which values it computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Final

import torch

from exirkit.emit import (
    DebugEvent,
    DelegateCall,
    ExecutionPlan,
    ExecutionTrace,
    Instruction,
    KernelCall,
    ProfileEvent,
    ScalarType,
    TraceBool,
    TraceDouble,
    TraceEvent,
    TraceInt,
    TraceRun,
    TraceTensor,
    TraceValue,
    TraceValueType,
    trace_file,
    write_file,
)

_Step = Callable[[], int | None]
_Show = Callable[[int], Any]

# Of what is not an instruction; the official runtime writes the same numbers.
_NO_CHAIN: Final = -1
_NO_CHAIN_UNSIGNED: Final = 2**64 - 1
_ALIGNMENT: Final = 16
LOADING: Final = "Default"
RUNNING: Final = "Execute"


def run_name(method: str) -> str:
    """Return what a run of a method is called in a trace; that of `forward` as in the official runtime."""
    return RUNNING if method == "forward" else f"{RUNNING} {method}"


@dataclass(frozen=True)
class InstructionTime:
    """One instruction that was run.

    Attributes:
        chain: Index of its chain.
        index: Its index in the chain.
        name: Its kernel without the namespace (`add.out`), or the backend of a delegate.
        is_delegate: Whether it called a delegate.
        start_ns: When it began, in nanoseconds of a clock that only goes forward.
        end_ns: When it ended.
        results: Dtype and sizes of the tensors that it computed; of a delegate, of all its arguments.
    """

    chain: int
    index: int
    name: str
    is_delegate: bool
    start_ns: int
    end_ns: int
    results: tuple[tuple[torch.dtype, tuple[int, ...]], ...]


@dataclass
class TracedRun:
    """One run of a method.

    Attributes:
        method: Its name.
        start_ns: When it began, in nanoseconds of a clock that only goes forward.
        end_ns: When it ended; 0 if it failed.
        instructions: What was run, in order; instructions of a loop appear as often as they ran.
        values: The values that each of these computed, if they are kept; else empty.
        outputs: The outputs of the method, if values are kept.
    """

    method: str
    start_ns: int
    end_ns: int = 0
    instructions: list[InstructionTime] = field(default_factory=list)
    values: list[list[TraceValue]] = field(default_factory=list)
    outputs: list[TraceValue] = field(default_factory=list)


class Tracer:
    """Records the runs of a program: `Runtime.load_program(..., tracer=Tracer())`.

    Args:
        values: Whether to keep what each instruction computes, as a copy.

    Attributes:
        runs: The runs so far.
        buffer: The elements of the tensors that were kept.
    """

    def __init__(self, *, values: bool = False) -> None:
        self.keeps_values = values
        self.runs: list[TracedRun] = []
        self.buffer = bytearray()
        self._loads: list[tuple[int, int]] = []

    def loaded(self, start_ns: int, end_ns: int) -> None:
        """Note that a method was loaded."""
        self._loads.append((start_ns, end_ns))

    def begin(self, method: str) -> TracedRun:
        """Begin a run."""
        self.runs.append(TracedRun(method, time.perf_counter_ns()))
        return self.runs[-1]

    def end(self, run: TracedRun, outputs: Sequence[Any]) -> None:
        """End a run that did not fail."""
        run.end_ns = time.perf_counter_ns()
        if self.keeps_values:
            run.outputs = [self._kept(one) for one in _flat(outputs)]

    def wrapped(
        self, run: TracedRun, plan: ExecutionPlan, show: _Show, chains: Sequence[Sequence[_Step]]
    ) -> list[list[_Step]]:
        """Return the steps of a method, with those that call kernels or delegates noting what they do.

        Args:
            run: Takes what they note.
            plan: The method.
            show: Returns the current value of an index.
            chains: The steps.
        """
        return [
            [
                self._wrapped(run, plan, show, step, (number, at), instruction)
                for at, (step, instruction) in enumerate(zip(steps, chain.instructions, strict=True))
            ]
            for number, (steps, chain) in enumerate(zip(chains, plan.chains, strict=True))
        ]

    def _wrapped(
        self,
        run: TracedRun,
        plan: ExecutionPlan,
        show: _Show,
        step: _Step,
        place: tuple[int, int],
        instruction: Instruction,
    ) -> _Step:
        call = instruction.instr_args
        if not isinstance(call, KernelCall | DelegateCall):
            return step
        is_delegate = isinstance(call, DelegateCall)
        name = instruction_name(plan, call)
        # The last argument of a kernel is its result, or the list of its results.
        shown = list(call.args) if is_delegate else list(call.args[-1:])

        def traced() -> int | None:
            start = time.perf_counter_ns()
            target = step()
            end = time.perf_counter_ns()
            found = [show(index) for index in shown]
            run.instructions.append(InstructionTime(*place, name, is_delegate, start, end, _types(found)))
            if self.keeps_values:
                run.values.append([self._kept(one) for one in _flat(found)])
            return target

        return traced

    def _kept(self, value: Any) -> TraceValue:
        if isinstance(value, torch.Tensor):
            return TraceValue(val=TraceValueType.TENSOR, tensor=self._kept_tensor(value))
        if isinstance(value, bool):
            return TraceValue(val=TraceValueType.BOOL, bool_value=TraceBool(bool_val=value))
        if isinstance(value, int):
            return TraceValue(val=TraceValueType.INT, int_value=TraceInt(int_val=value))
        if isinstance(value, float):
            return TraceValue(val=TraceValueType.DOUBLE, double_value=TraceDouble(double_val=value))
        return TraceValue(val=TraceValueType.STRING if isinstance(value, str) else TraceValueType.NULL)

    def _kept_tensor(self, tensor: torch.Tensor) -> TraceTensor:
        self.buffer += bytes(-len(self.buffer) % _ALIGNMENT)
        offset = len(self.buffer)
        # Row-major, whatever the tensor is: the place in the arena will hold something else soon.
        dense = tensor.detach().contiguous()
        if dense.numel():
            self.buffer += dense.reshape(-1).as_strided((dense.numel(),), (1,)).view(torch.uint8).numpy().tobytes()
        strides = dense.new_empty(dense.shape, device="meta").stride()
        return TraceTensor(
            scalar_type=ScalarType.from_dtype(tensor.dtype),
            sizes=list(dense.shape),
            strides=list(strides),
            offset=offset,
        )

    def trace(self) -> ExecutionTrace:
        """Return what was recorded as the official runtime writes it; times are nanoseconds."""
        loads = [
            TraceEvent(
                profile_event=ProfileEvent(
                    name=name, chain_index=_NO_CHAIN, instruction_id=0, start_time=start, end_time=end
                )
            )
            for start, end in self._loads
            for name in ("Method::init", "Program::load_method")
        ]
        runs = [TraceRun(name=LOADING, events=loads)] if loads else []
        return ExecutionTrace(run_data=[*runs, *(_run(run) for run in self.runs)])

    def save(self, path: str | PathLike[str], debug_buffer_path: str | PathLike[str] | None = None) -> None:
        """Write what was recorded so far; it may be called again after further runs.

        Args:
            path: File for the trace (`.etdp`).
            debug_buffer_path: File for the values.

        Raises:
            OSError: A file cannot be written.
        """
        write_file(path, trace_file(self.trace()))
        if debug_buffer_path is not None:
            with open(debug_buffer_path, "wb") as file:
                file.write(self.buffer)


def instruction_name(plan: ExecutionPlan, call: KernelCall | DelegateCall) -> str:
    """Return the kernel of a call without its namespace, or the backend of a delegate."""
    if isinstance(call, DelegateCall):
        return plan.delegates[call.delegate_index].id
    operator = plan.operators[call.op_index]
    name = operator.name.rpartition("::")[2]
    return f"{name}.{operator.overload}" if operator.overload else name


def _flat(values: Sequence[Any]) -> list[Any]:
    """Return values, with lists replaced by their items: the official runtime writes an event for each tensor."""
    return [one for value in values for one in (value if isinstance(value, list) else [value])]


def _types(values: Sequence[Any]) -> tuple[tuple[torch.dtype, tuple[int, ...]], ...]:
    return tuple((one.dtype, tuple(one.shape)) for one in _flat(values) if isinstance(one, torch.Tensor))


def _run(run: TracedRun) -> TraceRun:
    events: list[TraceEvent] = []
    for at, one in enumerate(run.instructions):
        for value in run.values[at] if run.values else ():
            kept = DebugEvent(chain_index=one.chain, instruction_id=one.index, debug_entry=value)
            events += [TraceEvent(debug_event=kept)]
        for name in ["DELEGATE_CALL"] if one.is_delegate else [f"native_call_{one.name}", "OPERATOR_CALL"]:
            timed = ProfileEvent(
                name=name,
                chain_index=one.chain,
                instruction_id=one.index,
                start_time=one.start_ns,
                end_time=one.end_ns,
            )
            events += [TraceEvent(profile_event=timed)]
    if run.end_ns:
        whole = ProfileEvent(
            name="Method::execute",
            chain_index=_NO_CHAIN,
            instruction_id=0,
            start_time=run.start_ns,
            end_time=run.end_ns,
        )
        events.append(TraceEvent(profile_event=whole))
    for value in run.outputs:
        marked = value.model_copy(update={"output": TraceBool(bool_val=True)})
        event = DebugEvent(chain_index=_NO_CHAIN_UNSIGNED, instruction_id=0, debug_entry=marked)
        events.append(TraceEvent(debug_event=event))
    return TraceRun(name=run_name(run.method), events=events)
