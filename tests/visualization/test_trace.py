"""The trace says what the plan says, in the form that trace viewers read."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from exirkit import TensorSpec, UsageError, generate_memory_trace, to_edge
from exirkit.program import ExecutorchProgramManager
from exirkit.visualization import MemoryMap, memory_map_trace


def events(lowered: ExecutorchProgramManager, path: Path, **options: Any) -> list[dict[str, Any]]:
    generate_memory_trace(lowered, str(path), **options)
    return list(json.loads(path.read_text())["traceEvents"])


def test_every_live_tensor_is_an_event_of_its_step(lowered: ExecutorchProgramManager, tmp_path: Path) -> None:
    found = events(lowered, tmp_path / "trace.json", enable_memory_offsets=True)
    nodes = list(lowered.exported_program().graph.nodes)
    specs = {id(node.meta["spec"]): node for node in reversed(nodes) if isinstance(node.meta.get("spec"), TensorSpec)}
    for name in ("x", "aten_sin_default"):
        spec = next(node for node in nodes if node.name == name).meta["spec"]
        mine = [event for event in found if event["name"] == name]
        first, last = spec.lifetime
        assert len(mine) == last - first + 1
        assert {(event["ts"], event["dur"], event["pid"]) for event in mine} == {(spec.mem_offset, 96, 1)}
        # Every step from the first on has something live, so that rows are steps.
        assert [event["tid"] for event in mine] == list(range(first, last + 1))
    assert specs
    assert {event["ph"] for event in found} == {"X"}
    assert {event["cat"] for event in found} == {"memory_allocation"}
    sine = next(event for event in found if event["name"] == "aten_sin_default")
    assert sine["args"] == {
        "op_name": "aten.sin.out",
        "Memory ID": 1,
        "fqn": "",
        "source": sine["args"]["source"],
        "bytes": 96,
    }
    assert "left = self.linear(x).sin()" in sine["args"]["source"]
    assert len({event["name"] for event in found if "alloc" in event["name"] or "getitem" in event["name"]}) == 0
    for row in {event["tid"] for event in found}:
        ranges = sorted((event["ts"], event["ts"] + event["dur"]) for event in found if event["tid"] == row)
        assert all(end <= start for (_, end), (start, _) in pairwise(ranges))


def test_without_offsets_tensors_lie_side_by_side(lowered: ExecutorchProgramManager, tmp_path: Path) -> None:
    found = events(lowered, tmp_path / "trace.json", ommit_metadata=True)
    for row in {event["tid"] for event in found}:
        end = 0
        for event in (event for event in found if event["tid"] == row):
            assert event["ts"] == end
            assert event["args"] == {}
            end += event["dur"]


def test_methods_are_chosen_by_name(tmp_path: Path) -> None:
    class Double(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x

    lowered = to_edge({"twice": torch.export.export(Double(), (torch.ones(5),))}).to_executorch()
    assert {event["dur"] for event in events(lowered, tmp_path / "trace.json", method_name="twice")} == {20}
    with pytest.raises(UsageError, match="EK703"):
        generate_memory_trace(lowered, tmp_path / "trace.json")


def test_the_trace_of_a_memory_map_has_a_row_for_each_instruction(memory_map: MemoryMap) -> None:
    two = MemoryMap(title="two", methods=(*memory_map.methods, *memory_map.methods))
    found = json.loads(memory_map_trace(two))["traceEvents"]
    named = {event["pid"]: event["args"]["name"] for event in found if event["ph"] == "M"}
    assert named == {1: "forward, arena 1", 1001: "forward, arena 1"}
    (method, _) = two.methods
    mine = [event for event in found if event["ph"] == "X" and event["pid"] == 1]
    assert len(mine) == sum(last - first + 1 for value in method.values for first, last in value.spans)
    for value in method.values:
        rows = {event["tid"] for event in mine if event["name"] == value.name and event["ts"] == value.offset}
        assert rows >= {first for first, _ in value.spans}
