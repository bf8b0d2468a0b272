"""Events of traces: equal runs side by side in one block, each event with its times and what is known of its origin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from statistics import fmean, quantiles
from typing import Any

import torch

from exirkit.devtools.etrecord import ETRecord, RecordedNode
from exirkit.emit import (
    DebugEvent,
    ExecutionTrace,
    ProfileEvent,
    TraceRun,
    TraceValue,
    TraceValueType,
    traced_tensor,
)
from exirkit.ir import Diagnostic, UsageError

_CALL = "OPERATOR_CALL"
DELEGATE = "DELEGATE_CALL"
_KERNEL = "native_call_"
_RUNNING = "Execute"
_NO_CHAIN = -1


class TimeScale(Enum):
    """Units of time; what takes cycles cannot be given in seconds."""

    NS = "ns"
    US = "us"
    MS = "ms"
    S = "s"
    CYCLES = "cycles"


_PER_SECOND = {TimeScale.NS: 1e9, TimeScale.US: 1e6, TimeScale.MS: 1e3, TimeScale.S: 1.0}


def scale_factor(source: TimeScale, target: TimeScale) -> float:
    """Return what a time in one unit has to be multiplied by to be one in another.

    Raises:
        UsageError: EK730, one of them is cycles and the other is not.
    """
    if source is target:
        return 1.0
    if TimeScale.CYCLES in (source, target):
        message = f"times in {source.value} cannot be given in {target.value}"
        raise UsageError(Diagnostic.of("EK730", message))
    return _PER_SECOND[target] / _PER_SECOND[source]


@dataclass(frozen=True)
class PerfData:
    """Times of one event in all runs of a block, in the target unit.

    Attributes:
        raw: The times, one for each run.
    """

    raw: list[float]

    def _percentile(self, share: int) -> float:
        if len(self.raw) == 1:
            return self.raw[0]
        return quantiles(self.raw, n=100, method="inclusive")[share - 1]

    @property
    def p10(self) -> float:
        """A tenth of the runs took no longer."""
        return self._percentile(10)

    @property
    def p50(self) -> float:
        """Half of the runs took no longer."""
        return self._percentile(50)

    @property
    def p90(self) -> float:
        """Nine tenths of the runs took no longer."""
        return self._percentile(90)

    @property
    def avg(self) -> float:
        """The mean."""
        return fmean(self.raw)

    @property
    def min(self) -> float:
        """The shortest."""
        return min(self.raw)

    @property
    def max(self) -> float:
        """The longest."""
        return max(self.raw)


@dataclass
class Event:
    """Something that a runtime did in each run of a block.

    Attributes:
        name: What the trace calls it: `OPERATOR_CALL`, `native_call_add.out`, `DELEGATE_CALL`, `Method::execute`.
        perf_data: Its times.
        op_types: Operators of the Edge program behind it.
        delegate_debug_identifier: What a delegate calls it.
        debug_handles: Debug handle or handles of the instruction.
        stack_traces: Where in the model its nodes come from, by the names of these.
        module_hierarchy: The modules of its nodes: class by path, by the names of the nodes.
        is_delegated_op: Whether it happened inside of a delegate; None where that is not known.
        delegate_backend_name: Backend of the delegate.
        delegate_debug_metadatas: What the delegate says of it, one for each run.
        debug_data: Values that the instruction computed in the first run.
        debug_data_of_runs: The same of each run.
        start_time: When it began in each run, in units of the trace.
        kernel: Kernel that the instruction called, without its namespace: `add.out`.
        chain: Index of the chain of its instruction; None for what is not an instruction.
        instruction: Index of the instruction.
    """

    name: str
    perf_data: PerfData
    op_types: list[str] = field(default_factory=list)
    delegate_debug_identifier: int | str | None = None
    debug_handles: int | Sequence[int] | None = None
    stack_traces: dict[str, str] = field(default_factory=dict)
    module_hierarchy: dict[str, dict[str, str]] = field(default_factory=dict)
    is_delegated_op: bool | None = None
    delegate_backend_name: str | None = None
    delegate_debug_metadatas: list[Any] = field(default_factory=list)
    debug_data: list[Any] = field(default_factory=list)
    debug_data_of_runs: list[list[Any]] = field(default_factory=list)
    start_time: list[int] = field(default_factory=list)
    kernel: str | None = None
    chain: int | None = None
    instruction: int | None = None

    @property
    def is_whole_instruction(self) -> bool:
        """Whether it is an instruction as a whole, so that sums over such events count each instruction once."""
        return self.name in (_CALL, DELEGATE)


@dataclass
class EventBlock:
    """Runs that did the same.

    Attributes:
        name: What the trace calls the runs.
        method: Name of the method that was run; None for what is not a run of a method.
        events: The events, in the order of the trace.
        runs: Number of runs.
        source_time_scale: Unit of the trace.
        target_time_scale: Unit of `perf_data`.
        bundled_input_index: Test case of a bundled program whose inputs were used.
        run_output: Outputs of the first run, if values were kept.
        reference_output: What the record expects of them.
    """

    name: str
    method: str | None
    events: list[Event]
    runs: int
    source_time_scale: TimeScale
    target_time_scale: TimeScale
    bundled_input_index: int | None = None
    run_output: list[Any] = field(default_factory=list)
    reference_output: list[Any] | None = None


def event_blocks(
    trace: ExecutionTrace,
    buffer: bytes | bytearray | memoryview | None,
    record: ETRecord | None,
    source: TimeScale,
    target: TimeScale,
) -> list[EventBlock]:
    """Return the blocks of a trace.

    Args:
        trace: The trace.
        buffer: Values of the trace; without it there are none.
        record: What is known of the lowering.
        source: Unit of times in the trace.
        target: Unit of times in the blocks.

    Raises:
        UsageError: EK730, units that cannot be converted; EK535, torch cannot hold a value.
        ProgramFormatError: EK532, a value is not in the buffer.
    """
    factor = scale_factor(source, target)
    groups: dict[Any, list[TraceRun]] = {}
    for run in trace.run_data:
        groups.setdefault(_signature(run), []).append(run)
    return [_block(runs, buffer, record, factor, (source, target)) for runs in groups.values()]


def _profiled(run: TraceRun) -> list[ProfileEvent]:
    return [event.profile_event for event in run.events if event.profile_event is not None]


def _signature(run: TraceRun) -> Any:
    return (
        run.name,
        run.bundled_input_index,
        tuple(
            (one.name, one.chain_index, one.instruction_id, one.delegate_debug_id_int, one.delegate_debug_id_str)
            for one in _profiled(run)
        ),
    )


def _block(
    runs: Sequence[TraceRun],
    buffer: bytes | bytearray | memoryview | None,
    record: ETRecord | None,
    factor: float,
    scales: tuple[TimeScale, TimeScale],
) -> EventBlock:
    first = runs[0]
    method = _method_of(first, record)
    values = [_values(run, buffer) for run in runs] if buffer is not None else []
    profiled = [_profiled(run) for run in runs]
    seen: dict[tuple[int, int], int] = {}
    kernels: dict[tuple[int, int], str] = {}
    events = []
    for column in zip(*profiled, strict=True):
        event = _event(column, factor)
        if event.instruction is not None and event.chain is not None:
            at = (event.chain, event.instruction)
            if event.name.startswith(_KERNEL):
                kernels[at] = event.name.removeprefix(_KERNEL)
            event.kernel = kernels.get(at)
            # Values belong to one execution of an instruction, of which a loop has several.
            round_ = seen.get(at, 0)
            event.debug_data_of_runs = [_round(run.computed.get(at, []), round_) for run in values]
            event.debug_data = event.debug_data_of_runs[0] if event.debug_data_of_runs else []
            if event.is_whole_instruction:
                seen[at] = round_ + 1
            if record is not None and method is not None:
                _explain(event, record, method)
        events.append(event)
    case = None if first.bundled_input_index == -1 else first.bundled_input_index
    return EventBlock(
        name=first.name or "",
        method=method,
        events=events,
        runs=len(runs),
        source_time_scale=scales[0],
        target_time_scale=scales[1],
        bundled_input_index=case,
        run_output=values[0].outputs if values else [],
        reference_output=_reference(record, method, case),
    )


def _round(computed: Sequence[list[Any]], number: int) -> list[Any]:
    return computed[number] if number < len(computed) else []


def _reference(record: ETRecord | None, method: str | None, case: int | None) -> list[Any] | None:
    expected = (record.reference_outputs or {}).get(method or "") if record is not None else None
    at = case or 0
    return list(expected[at]) if expected is not None and at < len(expected) else None


def _event(column: Sequence[ProfileEvent], factor: float) -> Event:
    one = column[0]
    is_delegated = one.delegate_debug_id_int != -1 or one.delegate_debug_id_str is not None
    identifier = one.delegate_debug_id_str if one.delegate_debug_id_str is not None else one.delegate_debug_id_int
    name = one.name or (str(identifier) if is_delegated else "")
    is_instruction = one.chain_index != _NO_CHAIN and one.instruction_id >= 0
    return Event(
        name=name,
        perf_data=PerfData([(each.end_time - each.start_time) * factor for each in column]),
        delegate_debug_identifier=identifier if is_delegated else None,
        is_delegated_op=is_delegated,
        delegate_debug_metadatas=[each.delegate_debug_metadata for each in column] if is_delegated else [],
        start_time=[each.start_time for each in column],
        chain=one.chain_index if is_instruction else None,
        instruction=one.instruction_id if is_instruction else None,
    )


def _explain(event: Event, record: ETRecord, method: str) -> None:
    """Add what a record knows of the instruction of an event."""
    assert event.instruction is not None
    event.debug_handles = record.debug_handle_map.get(method, {}).get(event.instruction)
    delegate = record.delegate_map.get(method, {}).get(event.instruction)
    if event.is_delegated_op:
        event.delegate_backend_name = delegate.get("name") if isinstance(delegate, Mapping) else None
        handles = (delegate.get("delegate_map") or {}) if isinstance(delegate, Mapping) else {}
        event.debug_handles = handles.get(event.delegate_debug_identifier)
        nodes = record.nodes_with(method, event.debug_handles)
    else:
        nodes = record.nodes_of(method, event.instruction)
    event.op_types = list(dict.fromkeys(node.op for node in nodes))
    event.stack_traces = {node.name: node.stack_trace for node in nodes if node.stack_trace}
    event.module_hierarchy = {
        node.name: {node.module: node.module_type or ""} for node in nodes if node.module is not None
    }


@dataclass
class _Values:
    """Values of a run: of instructions, one list for each execution, and of the outputs."""

    computed: dict[tuple[int, int], list[list[Any]]] = field(default_factory=dict)
    outputs: list[Any] = field(default_factory=list)


def _values(run: TraceRun, buffer: bytes | bytearray | memoryview) -> _Values:
    found = _Values()
    pending: dict[tuple[int, int], list[Any]] = {}
    for event in run.events:
        if event.debug_event is not None and event.debug_event.debug_entry is not None:
            _keep(found, pending, event.debug_event, buffer)
        timed = event.profile_event
        if timed is not None and timed.name in (_CALL, DELEGATE):
            # An instruction has written its values when it ends.
            at = (timed.chain_index, timed.instruction_id)
            found.computed.setdefault(at, []).append(pending.pop(at, []))
    for at, rest in pending.items():
        # The official runtime notes the values of delegates after their end.
        computed = found.computed.setdefault(at, [])
        if computed and not computed[-1]:
            computed[-1] = rest
        else:
            computed.append(rest)
    return found


def _keep(
    found: _Values, pending: dict[tuple[int, int], list[Any]], event: DebugEvent, buffer: bytes | bytearray | memoryview
) -> None:
    entry = event.debug_entry
    assert entry is not None
    values = _plain(entry, buffer)
    if entry.output is not None and entry.output.bool_val:
        found.outputs += values
    elif event.delegate_debug_id_int == -1 and event.delegate_debug_id_str is None:
        pending.setdefault((event.chain_index, event.instruction_id), []).extend(values)


def _plain(entry: TraceValue, buffer: bytes | bytearray | memoryview) -> list[Any]:
    if entry.tensor is not None:
        return [traced_tensor(entry.tensor, buffer)]
    if entry.tensor_list is not None:
        return [traced_tensor(one, buffer) for one in entry.tensor_list.tensors]
    for number in (entry.int_value, entry.float_value, entry.double_value, entry.bool_value):
        if number is not None:
            return list(number.model_dump().values())
    return [None] if entry.val is TraceValueType.NULL else []


def _method_of(run: TraceRun, record: ETRecord | None) -> str | None:
    """Return the method of a run: traces of the official runtime do not say it."""
    name = run.name or ""
    if not name.startswith(_RUNNING):
        return None
    if name != _RUNNING:
        return name.removeprefix(_RUNNING).strip()
    methods = list(record.debug_handle_map) if record is not None else []
    if record is None or len(methods) < 2:
        return methods[0] if methods else "forward"
    calls = {(one.instruction_id, one.name or "") for one in _profiled(run) if one.chain_index != _NO_CHAIN}
    return max(methods, key=lambda method: (_agreement(record, method, calls), method == "forward"))


def _agreement(record: ETRecord, method: str, calls: Iterable[tuple[int, str]]) -> float:
    """Return the share of instructions, of a run or of a method, that are in both and call the same operator."""
    kernels = {at: name.removeprefix(_KERNEL) for at, name in calls if name.startswith(_KERNEL)}
    known = record.debug_handle_map.get(method, {})
    same = sum(at in known and _calls_one_of(name, record.nodes_of(method, at)) for at, name in kernels.items())
    return same / max(len(kernels.keys() | known.keys()), 1)


def _calls_one_of(kernel: str, nodes: Sequence[RecordedNode]) -> bool:
    return any(is_call_of(node, kernel) for node in nodes)


def is_call_of(node: RecordedNode, kernel: str) -> bool:
    """Return whether a node calls the operator of a kernel, in whatever form."""
    base = kernel.partition(".")[0].removesuffix("_copy").removesuffix("_")
    return node.op.count(".") > 0 and node.op.split(".")[-2].removesuffix("_copy") == base


def tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the tensors among values."""
    return [one for one in values if isinstance(one, torch.Tensor)]
