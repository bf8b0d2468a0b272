"""Tracing on both runtimes: the same instructions with the same values, and no order of calls ends a process."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from benchmarks.devtools.tracing_orders import campaign
from tests.official.oracle import OfficialRuntime

from exirkit import to_edge
from exirkit.devtools import debug_buffer_nbytes
from exirkit.emit import (
    DebugEvent,
    ExecutionTrace,
    TraceTensor,
    TraceValueType,
    open_trace,
    read_program,
    read_trace,
    traced_tensor,
)
from exirkit.fuzz.official import Failure, OfficialTrace
from exirkit.ir import ModelError
from exirkit.runtime_ref import Runtime, Tracer


class Several(torch.nn.Module):
    """Operators with several results, an integer, a shape that varies, and a state."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.linear = torch.nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        self.count.add_(1)
        values, places = torch.topk(self.linear(x) + self.count, 2)
        return values.T, places, x.shape[0] * 2


X = torch.linspace(-1, 1, 12).reshape(3, 4)


@pytest.fixture(scope="module")
def program() -> bytes:
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=1, max=5)
    exported = torch.export.export(Several(), (X,), dynamic_shapes=({0: batch},))
    return bytes(to_edge(exported).to_executorch().buffer)


def debug_events(trace: ExecutionTrace, run: int) -> list[DebugEvent]:
    runs = [one for one in trace.run_data if one.name == "Execute"]
    return [event.debug_event for event in runs[run].events if event.debug_event is not None]


def tensors_of(event: DebugEvent) -> list[TraceTensor]:
    value = event.debug_entry
    assert value is not None
    listed = value.tensor_list.tensors if value.tensor_list is not None else []
    return listed if value.tensor is None else [value.tensor]


def names_of(trace: ExecutionTrace) -> list[list[tuple[str | None, int, int]]]:
    # Of some kernels, such as those of sizes, the official runtime does not trace the inner call.
    return [
        [
            (one.name, one.chain_index, one.instruction_id)
            for event in run.events
            if (one := event.profile_event) and not str(one.name).startswith("native_call")
        ]
        for run in trace.run_data
    ]


@pytest.mark.executorch
def test_both_runtimes_trace_the_same(program: bytes, tmp_path: Path, official_runtime: OfficialRuntime) -> None:
    calls = [[X], [X[:2] + 1], [X[:1]]]
    tracer = Tracer(values=True)
    method = Runtime.get().load_program(program, tracer=tracer).load_method("forward")
    for call in calls:
        method.execute(call)
    tracer.save(tmp_path / "ours.etdp", tmp_path / "ours.bin")
    ours, buffer = open_trace(tmp_path / "ours.etdp"), (tmp_path / "ours.bin").read_bytes()
    plan = read_program(program).program.execution_plan[0]
    made = official_runtime.trace(program, calls, debug_buffer_nbytes=debug_buffer_nbytes(plan, len(calls)))
    assert made.failure is None
    theirs = read_trace(made.etdump)
    assert names_of(ours) == names_of(theirs)
    for run in range(len(calls)):
        # The official runtime does not keep sizes.
        tensors = [one for one in debug_events(ours, run) if tensors_of(one)]
        pairs = list(zip(tensors, [one for one in debug_events(theirs, run) if tensors_of(one)], strict=True))
        assert len(pairs) > 5
        for one, other in pairs:
            assert (one.instruction_id, one.chain_index) == (other.instruction_id, other.chain_index)
            for left, right in zip(tensors_of(one), tensors_of(other), strict=True):
                torch.testing.assert_close(traced_tensor(left, buffer), traced_tensor(right, made.debug_buffer))


def test_times_and_sizes_of_instructions(program: bytes) -> None:
    tracer = Tracer()
    method = Runtime.get().load_program(program, tracer=tracer).load_method("forward")
    method.execute([X[:2]])
    (run,) = tracer.runs
    assert run.start_ns <= run.instructions[0].start_ns
    assert all(one.start_ns <= one.end_ns <= run.end_ns for one in run.instructions)
    topk = next(one for one in run.instructions if one.name == "topk.values")
    assert topk.results == ((torch.float32, (2, 2)), (torch.int64, (2, 2)))
    assert not tracer.buffer
    assert not any(event.debug_event for one in tracer.trace().run_data for event in one.events)


def test_a_run_that_fails_is_in_the_trace(tmp_path: Path) -> None:
    class Divided(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.remainder(x + 1, y)

    inputs = (torch.ones(1, dtype=torch.int64), torch.ones(1, dtype=torch.int64))
    data = to_edge(torch.export.export(Divided(), inputs)).to_executorch().buffer
    tracer = Tracer(values=True)
    method = Runtime.get().load_program(data, tracer=tracer).load_method("forward")
    with pytest.raises(ModelError):
        method.execute([inputs[0], torch.zeros(1, dtype=torch.int64)])
    assert [one.name for one in tracer.runs[0].instructions] == ["add.out"]
    assert tracer.runs[0].end_ns == 0
    method.execute(inputs)
    tracer.save(tmp_path / "m.etdp")
    assert [one.name for one in open_trace(tmp_path / "m.etdp").run_data] == ["Default", "Execute", "Execute"]


def test_any_order_of_runs_and_writes(program: bytes, tmp_path: Path) -> None:
    rng = random.Random(1)
    for _ in range(20):
        tracer, runs = Tracer(values=rng.random() < 0.5), 0
        method = Runtime.get().load_program(program, tracer=tracer).load_method("forward")
        for _ in range(5):
            if rng.random() < 0.5:
                method.execute([X[: rng.randrange(1, 4)]])
                runs += 1
            else:
                tracer.save(tmp_path / "m.etdp", tmp_path / "m.bin")
                written = open_trace(tmp_path / "m.etdp").run_data
                assert len([one for one in written if one.name == "Execute"]) == runs


@pytest.mark.executorch
def test_a_buffer_that_is_too_small_ends_the_worker_and_not_the_caller(
    program: bytes, official_runtime: OfficialRuntime
) -> None:
    for nbytes, expected in ((16, "crash"), (0, None), (32, "crash"), (1 << 16, None)):
        made = official_runtime.trace(program, [[X]] * 2, debug_buffer_nbytes=nbytes)
        assert (None if made.failure is None else made.failure.kind) == expected
    wrong = official_runtime.trace(program, [[X.double()]])
    assert wrong.failure is not None
    assert wrong.failure.kind == "execute-error"


@pytest.mark.executorch
def test_random_orders_of_tracing_calls(official_runtime: OfficialRuntime) -> None:
    tally, findings = campaign(official_runtime, orders=8, seed=1)
    assert findings == []
    assert tally["orders"] == 8
    assert min(tally[kind] for kind in ("run", "written", "execute-error", "crash")) > 0


@pytest.mark.executorch
def test_runs_after_writes_are_in_the_next_trace(program: bytes, official_runtime: OfficialRuntime) -> None:
    run = ("forward", [X])
    ends = official_runtime.trace_steps(program, [None, run, None, run, ("absent", []), None, None])
    assert [end.kind if isinstance(end, Failure) else type(end).__name__ for end in ends] == [
        "execute-error", "NoneType", "OfficialTrace", "NoneType", "execute-error", "OfficialTrace", "OfficialTrace",
    ]  # fmt: skip
    traces = [read_trace(end.etdump) for end in ends if isinstance(end, OfficialTrace)]
    assert [sum(one.name == "Execute" for one in trace.run_data) for trace in traces] == [1, 2, 2]
    (rejected,) = official_runtime.trace_steps(b"no program", [run])
    assert isinstance(rejected, Failure)
    assert rejected.kind == "execute-error"


def test_every_kind_of_value_is_kept(program: bytes) -> None:
    tracer = Tracer(values=True)
    Runtime.get().load_program(program, tracer=tracer).load_method("forward").execute([X])
    kinds = {one.debug_entry.val for one in debug_events(tracer.trace(), 0) if one.debug_entry is not None}
    assert {TraceValueType.TENSOR, TraceValueType.INT} <= kinds
