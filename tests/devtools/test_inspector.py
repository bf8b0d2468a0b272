"""The Inspector on traces of both runtimes, where the official one is right and where it is wrong."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.official.oracle import OfficialRuntime
from torch._higher_order_ops.map import map as control_map

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.devtools import Inspector, NumericalComparatorBase, TimeScale
from exirkit.emit import ExecutionTrace, ProfileEvent, TraceEvent, TraceRun, trace_file
from exirkit.ir import UsageError
from exirkit.runtime_ref import Runtime, Tracer


class Net(torch.nn.Module):
    """A linear on a three-dimensional input, which takes views; two results of one call; two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 4))
        self.conv_layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, _ = torch.topk(self.conv_layer(self.hidden(x)) + y, 2)
        # Both parts of `silu` have its debug handle.
        return values, torch.nn.functional.layer_norm(torch.nn.functional.silu(x), (4,))


INPUTS = [torch.randn(2, 3, 4), torch.randn(2, 3, 4)]


def lowered(level: int = 1, **methods: Any) -> Any:
    torch.manual_seed(0)
    model = Net().eval().requires_grad_(False)
    programs = {"forward": torch.export.export(model, tuple(INPUTS))}
    programs |= {name: torch.export.export(one, tuple(args)) for name, (one, args) in methods.items()}
    config = ExecutorchBackendConfig(optimization_level=level)
    return to_edge(programs, generate_etrecord=True).to_executorch(config)


def traced(made: Any, calls: dict[str, list[list[torch.Tensor]]]) -> Tracer:
    tracer = Tracer(values=True)
    program = Runtime.get().load_program(made.buffer, tracer=tracer)
    for name, runs in calls.items():
        method = program.load_method(name)
        for inputs in runs:
            method.execute(inputs)
    return tracer


def inspector(made: Any, tracer: Tracer, **options: Any) -> Inspector:
    record = made.get_etrecord()
    record.update_representative_inputs(INPUTS)
    data = trace_file(tracer.trace()).to_bytes()
    return Inspector(etdump_data=data, etrecord=record, debug_buffer=tracer.buffer, **options)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_gap_of_every_instruction(level: int) -> None:
    made = lowered(level)
    found = inspector(made, traced(made, {"forward": [INPUTS]})).calculate_numeric_gap("MSE")
    calls = made.executorch_program.execution_plan[0].chains[0].instructions
    assert len(found) == len(calls)
    assert all(gap < 1e-10 for (gap,) in found["gap"])
    assert all(any(source) for source in found["stacktraces"].map(lambda one: list(one.values())))


def test_what_rules_put_together_is_compared_where_it_ends() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.ReLU())
    x = torch.randn(1, 2, 6, 5)
    edge = to_edge(torch.export.export(model, (x,)), generate_etrecord=True)
    # With memory to spare, a convolution becomes a product of gathered windows.
    made = edge.to_executorch(ExecutorchBackendConfig(optimization_level=2, arena_limit=1 << 20))
    tracer = traced(made, {"forward": [[x]]})
    data, record = trace_file(tracer.trace()).to_bytes(), made.get_etrecord()
    record.update_representative_inputs([x])
    rows = Inspector(etdump_data=data, etrecord=record, debug_buffer=tracer.buffer).numeric_gap_rows("MSE")
    # The sum of the product that it became is the first of the three results of a kernel.
    assert [row["op_types"] for row in rows] == [["aten.convolution.default"], ["aten.relu.default"]]
    assert tuple(rows[0]["aot_intermediate_output"].shape) == (1, 3, 6, 5)
    assert {row["runtime_debug_handle"] for row in rows} == set(record.debug_handle_map["forward"].values())
    assert len(record.debug_handle_map["forward"]) > len(rows)
    assert all(gap < 1e-10 for row in rows for gap in row["gap"])


def test_a_wrong_value_is_the_first_with_a_gap() -> None:
    made = lowered()
    tracer = traced(made, {"forward": [INPUTS]})
    at = next(place for place, one in enumerate(tracer.runs[0].instructions) if one.name.startswith("gelu"))
    stored = tracer.runs[0].values[at][0].tensor
    assert stored is not None
    tracer.buffer[stored.offset : stored.offset + 4] = torch.tensor([100.0]).numpy().tobytes()
    found = inspector(made, tracer)
    assert found.get_exported_program() is made.get_etrecord().programs["forward"]
    assert found.get_exported_program("absent") is None
    wrong = found.calculate_numeric_gap("L1")
    (row,) = [row for _, row in wrong.iterrows() if row["gap"][0] > 1]
    assert row["op_types"] == ["aten.gelu.default"]
    noisy = [row["gap"][0] for _, row in found.calculate_numeric_gap("SNR").iterrows()]
    assert min(noisy) < 10 < max(noisy)

    class Largest(NumericalComparatorBase):
        def compare(self, a: Any, b: Any) -> float:
            return float((a - b).abs().max()) if isinstance(a, torch.Tensor) else math.nan

    largest = [row["gap"][0] for _, row in found.calculate_numeric_gap(Largest()).iterrows()]
    assert sum(one > 90 for one in largest) == 1


def test_runs_with_other_inputs_are_one_block() -> None:
    made = lowered()
    runs = [INPUTS, [INPUTS[1], INPUTS[0]], INPUTS]
    found = inspector(made, traced(made, {"forward": runs}))
    loading, running = found.event_blocks
    assert (loading.method, running.method, running.runs) == (None, "forward", 3)
    event = next(one for one in running.events if one.name == "OPERATOR_CALL")
    assert len(event.perf_data.raw) == len(event.start_time) == len(event.debug_data_of_runs) == 3
    assert torch.equal(event.debug_data_of_runs[0][0], event.debug_data_of_runs[2][0])
    assert len(running.run_output) == 2
    assert running.reference_output is None
    assert event.delegate_backend_name is None


def test_each_round_of_a_loop_has_its_values() -> None:
    class Rows(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return control_map(lambda row: row * 2, x)  # type: ignore[arg-type, misc]

    x = torch.arange(6.0).reshape(3, 2)
    made = to_edge(torch.export.export(Rows(), (x,)), generate_etrecord=True).to_executorch()
    tracer = traced(made, {"forward": [[x]]})
    data = trace_file(tracer.trace()).to_bytes()
    running = Inspector(etdump_data=data, etrecord=made.get_etrecord(), debug_buffer=tracer.buffer).event_blocks[-1]
    rows = [one.debug_data[0] for one in running.events if one.is_whole_instruction and "mul" in str(one.kernel)]
    assert torch.equal(torch.stack(rows), x * 2)


def test_times_of_modules() -> None:
    made = lowered()
    found = inspector(made, traced(made, {"forward": [INPUTS] * 2}))
    events = [one for block in found.event_blocks for one in block.events if one.is_whole_instruction]
    assert found.find_total_for_module("") == pytest.approx(sum(one.perf_data.avg for one in events))
    parts = [found.find_total_for_module(f"hidden.{place}") for place in range(3)]
    assert min(parts) > 0
    assert found.find_total_for_module("hidden") == pytest.approx(sum(parts))
    assert found.find_total_for_module("L__self___conv_layer") == found.find_total_for_module("conv_layer") > 0
    assert found.find_total_for_module("hid") == found.find_total_for_module("layer") == 0


def test_tables() -> None:
    made = lowered()
    found = inspector(made, traced(made, {"forward": [INPUTS]}))
    table = found.to_dataframe()
    calls = table[table["event_name"] == "OPERATOR_CALL"]
    assert len(calls) == len(made.executorch_program.execution_plan[0].chains[0].instructions)
    assert all(calls["op_types"].map(len) > 0)
    assert all(calls["stack_traces"].map(len) > 0)
    assert {"p50 (ms)", "avg (ms)", "raw (ms)"} <= set(table.columns)
    assert "avg" in found.to_dataframe(include_units=False).columns
    printed, tabs = io.StringIO(), io.StringIO()
    found.print_data_tabular(printed)
    found.save_data_to_tsv(tabs)
    for text in (printed.getvalue(), tabs.getvalue()):
        assert "native_call_topk.values" in text
        assert "OPERATOR_CALL" not in text
    titles, *rows = tabs.getvalue().splitlines()
    assert all(row.count("\t") == titles.count("\t") for row in rows)


@pytest.mark.executorch
def test_several_methods(official_runtime: OfficialRuntime) -> None:
    other = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh())
    made = lowered(encode=(other, [torch.ones(2, 3)]))
    tracer = traced(made, {"encode": [[torch.ones(2, 3)]], "forward": [INPUTS]})
    found = inspector(made, tracer)
    assert [one.method for one in found.event_blocks] == [None, "encode", "forward"]
    assert "aten.tanh.default" in {op for event in found.event_blocks[1].events for op in event.op_types}
    with pytest.raises(UsageError, match=r"EK747.*encode, forward"):
        found.calculate_numeric_gap("MSE")
    assert len(found.calculate_numeric_gap("MSE", method="forward")) > 5
    # Traces of the official runtime do not say which method it was.
    trace = official_runtime.trace(made.buffer, [[torch.ones(2, 3)]], method="encode")
    assert trace.failure is None
    theirs = Inspector(etdump_data=trace.etdump, etrecord=made.get_etrecord())
    assert [one.method for one in theirs.event_blocks][-1] == "encode"


@pytest.mark.executorch
@pytest.mark.parametrize("level", [0, 1, 2])
def test_traces_of_the_official_runtime(level: int, official_runtime: OfficialRuntime, tmp_path: Path) -> None:
    made = lowered(level)
    trace = official_runtime.trace(made.buffer, [INPUTS] * 2, debug_buffer_nbytes=1 << 20)
    assert trace.failure is None
    record = made.get_etrecord()
    record.update_representative_inputs(INPUTS)
    found = Inspector(etdump_data=trace.etdump, etrecord=record, debug_buffer=trace.debug_buffer)
    table = found.calculate_numeric_gap("MSE")
    assert len(table) == len(made.executorch_program.execution_plan[0].chains[0].instructions)
    assert all(gap < 1e-9 for (gap,) in table["gap"])
    # From files as well.
    for name, data in (("m.etdp", trace.etdump), ("m.bin", trace.debug_buffer)):
        (tmp_path / name).write_bytes(data)
    record.save(tmp_path / "m.etrecord")
    read = Inspector(tmp_path / "m.etdp", etrecord=tmp_path / "m.etrecord", debug_buffer_path=tmp_path / "m.bin")
    ops = [[event.op_types for event in block.events] for block in (*found.event_blocks, *read.event_blocks)]
    assert ops[: len(ops) // 2] == ops[len(ops) // 2 :]
    assert read.calculate_numeric_gap("MSE")["gap"].tolist() == table["gap"].tolist()


def test_units() -> None:
    events = [
        TraceEvent(profile_event=ProfileEvent(name="x", chain_index=-1, instruction_id=0, start_time=5, end_time=end))
        for end in (1005, 2005)
    ]
    runs = [TraceRun(name="Execute", events=[one]) for one in events]
    data = trace_file(ExecutionTrace(run_data=runs)).to_bytes()
    (block,) = Inspector(etdump_data=data, target_time_scale=TimeScale.US).event_blocks
    (event,) = block.events
    times = event.perf_data
    assert (times.raw, times.avg, times.min, times.max, times.p50) == ([1.0, 2.0], 1.5, 1.0, 2.0, 1.5)
    assert (times.p10, times.p90) == pytest.approx((1.1, 1.9))
    cycles = Inspector(etdump_data=data, source_time_scale=TimeScale.CYCLES, target_time_scale=TimeScale.CYCLES)
    assert cycles.event_blocks[0].events[0].perf_data.raw == [1000.0, 2000.0]
    with pytest.raises(UsageError, match="EK730"):
        Inspector(etdump_data=data, source_time_scale=TimeScale.CYCLES)


def test_wrong_use() -> None:
    made = lowered()
    tracer = traced(made, {"forward": [INPUTS]})
    data = trace_file(tracer.trace()).to_bytes()
    with pytest.raises(UsageError, match="EK729"):
        Inspector()
    with pytest.raises(UsageError, match="EK729"):
        Inspector("m.etdp", data)
    with pytest.raises(UsageError, match="EK747"):
        Inspector(etdump_data=data).calculate_numeric_gap("MSE")
    record = made.get_etrecord()
    with pytest.raises(UsageError, match=r"EK747.*no inputs"):
        Inspector(etdump_data=data, etrecord=record, debug_buffer=tracer.buffer).calculate_numeric_gap("MSE")
    record.update_representative_inputs(INPUTS[:1])
    with pytest.raises(UsageError, match=r"EK747.*1 inputs"):
        Inspector(etdump_data=data, etrecord=record, debug_buffer=tracer.buffer).calculate_numeric_gap("MSE")
    with pytest.raises(UsageError, match="EK748"):
        inspector(made, tracer).calculate_numeric_gap("L7")
