"""Records of a lowering: nodes behind every instruction, in files that the official Inspector takes."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.devtools.official_tools import run_official
from tests.official.oracle import OfficialRuntime

from exirkit import AllNodePartitioner, ExecutorchBackendConfig, ModelError, to_edge, to_edge_transform_and_lower
from exirkit.devtools import ETRecord, RecordedNode, parse_etrecord


class Block(torch.nn.Module):
    """A branch, a loop over rows that vary, several results, a state."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 6)
        self.norm = torch.nn.LayerNorm(6)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.count.add_(1)
        hidden = self.norm(torch.nn.functional.silu(self.first(x)))
        chosen = torch.cond(x.sum() > 0, lambda one: one * 2, lambda one: one.sin(), (hidden,))
        values, places = torch.topk(chosen + self.count, 2)
        return values, places


X = torch.linspace(-1, 2, 2 * 3 * 4).reshape(2, 3, 4)


def recorded(model: torch.nn.Module, *inputs: torch.Tensor, level: int = 1, **options: Any) -> Any:
    exported = torch.export.export(model.eval().requires_grad_(False), inputs, **options)
    config = ExecutorchBackendConfig(optimization_level=level)
    return to_edge(exported, generate_etrecord=True).to_executorch(config)


def batched(level: int) -> Any:
    return recorded(Block(), X, level=level, dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=5)},))


@pytest.mark.parametrize("level", [0, 1, 2])
def test_every_instruction_has_nodes_with_source_and_module(level: int) -> None:
    made = batched(level)
    record = made.get_etrecord()
    plan = made.executorch_program.execution_plan[0]
    for at in range(len(plan.chains[0].instructions)):
        nodes = record.nodes_of("forward", at)
        assert nodes, at
        assert all("in forward" in str(node.stack_trace) and node.module is not None for node in nodes)
    normed = [node for at in range(len(plan.chains[0].instructions)) for node in record.nodes_of("forward", at)]
    assert {"first", "norm", ""} <= {node.module for node in normed}
    assert any(node.module_type == "torch.nn.modules.normalization.LayerNorm" for node in normed)


def test_a_record_is_what_was_saved(tmp_path: Path) -> None:
    record = batched(1).get_etrecord()
    record.update_representative_inputs([X])
    record.update_reference_outputs([[torch.ones(2)]])
    for name, options in (("whole", {}), ("small", {"weights": False}), ("own", {"official": False})):
        record.save(tmp_path / name, **options)
        read = parse_etrecord(tmp_path / name)
        assert (read.nodes, read.debug_handle_map) == (record.nodes, record.debug_handle_map)
        assert (read.delegate_map, read.instruction_id_to_num_outs_map) == ({"forward": {}}, {"forward": {}})
        assert read.representative_inputs is not None
        assert torch.equal(read.representative_inputs[0], X)
        assert read.reference_outputs is not None
        assert torch.equal(read.reference_outputs["forward"][0][0], torch.ones(2))
        record.save(tmp_path / "again", **options)
        assert (tmp_path / "again").read_bytes() == (tmp_path / name).read_bytes()
    sizes = [(tmp_path / name).stat().st_size for name in ("own", "small")]
    assert sizes[0] < sizes[1]


def test_calls_inside_of_delegates_are_recorded() -> None:
    exported = torch.export.export(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), (torch.ones(1, 4),))
    partitioner = AllNodePartitioner("ReferenceBackend", [])
    made = to_edge_transform_and_lower(exported, partitioner=[partitioner], generate_etrecord=True).to_executorch()
    record = made.get_etrecord()
    (at,) = record.debug_handle_map["forward"]
    assert {node.op for node in record.nodes_of("forward", at)} >= {"aten.addmm.default", "aten.relu.default"}
    assert record.instruction_id_to_num_outs_map == {"forward": {at: 1}}


def test_a_node_of_several_handles_has_one_in_the_official_form(tmp_path: Path) -> None:
    made = recorded(torch.nn.Linear(4, 4), torch.ones(1, 4))
    record = made.get_etrecord()
    joined = [RecordedNode(**{**vars(one), "handles": (1, 7)}) for one in record.nodes["forward"]]
    ETRecord(record.programs, nodes={"forward": joined}, debug_handle_map={"forward": {0: 7}}).save(tmp_path / "m")
    assert parse_etrecord(tmp_path / "m").debug_handle_map["forward"][0] == (7, 8, 9)[: 1 + len(joined)]


@pytest.mark.parametrize("damage", ["cut", "empty", "identifier", "json"])
def test_what_is_not_a_record_says_so(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "m.etrecord"
    recorded(torch.nn.ReLU(), torch.ones(1)).get_etrecord().save(path)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-30])
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("ETRECORD_V0" if damage == "json" else "other", "")
            archive.writestr("debug_handle_map", "{")
    with pytest.raises(ModelError, match="EK745"):
        parse_etrecord(path)


@pytest.mark.executorch
def test_the_official_inspector_shows_every_instruction(tmp_path: Path, official_runtime: OfficialRuntime) -> None:
    counts = {}
    for level in (0, 1, 2):
        made = batched(level)
        made.get_etrecord().save(tmp_path / f"{level}.etrecord", weights=level == 1)
        trace = official_runtime.trace(made.buffer, [[X]])
        assert trace.failure is None
        (tmp_path / f"{level}.etdp").write_bytes(trace.etdump)
        counts[str(level)] = trace.etdump.count(b"OPERATOR_CALL")
    found = run_official(tmp_path, "inspect")["inspect"]
    assert set(found) == set(counts)
    for calls in found.values():
        assert len(calls) > 8
        assert all(ops and source and module for ops, source, module in calls)
