"""Records of a lowering: nodes behind every instruction, in files that the official Inspector takes."""

from __future__ import annotations

import json
import operator
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.devtools.official_tools import run_official
from tests.official.oracle import OfficialRuntime
from torch._higher_order_ops.map import map as control_map
from torch._higher_order_ops.while_loop import while_loop

from exirkit import (
    AllNodePartitioner,
    ExecutorchBackendConfig,
    ModelError,
    UsageError,
    to_edge,
    to_edge_transform_and_lower,
)
from exirkit.devtools import (
    BundledProgram,
    ETRecord,
    Inspector,
    MethodTestCase,
    MethodTestSuite,
    RecordedNode,
    generate_etrecord,
    parse_etrecord,
)
from exirkit.runtime_ref import Runtime, Tracer


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


class Bodies(torch.nn.Module):
    """A map, a loop, and a branch in a branch."""

    def __init__(self, loops: bool = True) -> None:
        super().__init__()
        self.loops = loops

    def forward(self, x: torch.Tensor) -> Any:
        def deeper(one: torch.Tensor) -> Any:
            return torch.cond(one.sum() < 1e9, lambda two: two.exp().neg(), lambda two: two.abs(), (one,))

        if self.loops:
            rows = control_map(lambda row: row.sin() * 2, x)  # type: ignore[arg-type, misc]
            first = (torch.zeros((), dtype=torch.int64), rows)
            _, x = while_loop(lambda at, _: at < 3, lambda at, one: (at + 1, one.cos() * one), first)
        return torch.cond(x.sum() < 1e9, deeper, lambda one: one.tanh(), (x,))


X = torch.linspace(-1, 2, 2 * 3 * 4).reshape(2, 3, 4)


def recorded(model: torch.nn.Module, *inputs: torch.Tensor, level: int = 1, **options: Any) -> Any:
    exported = torch.export.export(model.eval().requires_grad_(False), inputs, **options)
    config = ExecutorchBackendConfig(optimization_level=level)
    return to_edge(exported, generate_etrecord=True).to_executorch(config)


def batched(level: int) -> Any:
    return recorded(Block(), X, level=level, dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=5)},))


@pytest.mark.parametrize(("model", "level"), [(Block, 0), (Block, 1), (Block, 2), (Bodies, 2)])
def test_every_instruction_has_nodes_with_source_and_module(model: type[torch.nn.Module], level: int) -> None:
    made = batched(level) if model is Block else recorded(Bodies(), X[0], level=level)
    record = made.get_etrecord()
    plan = made.executorch_program.execution_plan[0]
    for at in range(len(plan.chains[0].instructions)):
        nodes = record.nodes_of("forward", at)
        assert nodes, at
        assert all("in forward" in str(node.stack_trace) and node.module is not None for node in nodes)
    found = [node for at in range(len(plan.chains[0].instructions)) for node in record.nodes_of("forward", at)]
    if model is Block:
        assert {"first", "norm", ""} <= {node.module for node in found}
        assert any(node.module_type == "torch.nn.modules.normalization.LayerNorm" for node in found)
    else:
        assert {node.within for node in found} == {None, "map_impl", "while_loop", "cond"}


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
    assert parse_etrecord(tmp_path / "m").debug_handle_map["forward"][0] == 7
    with zipfile.ZipFile(tmp_path / "m") as archive:
        stored = json.loads(archive.read("debug_handle_map"))
    assert stored["forward"]["0"] == [7, 8, 9][: 1 + len(joined)]


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
    bodies = recorded(Bodies(), X[0])
    bodies.get_etrecord().save(tmp_path / "bodies.etrecord")
    (tmp_path / "bodies.etdp").write_bytes(official_runtime.trace(bodies.buffer, [[X[0]]]).etdump)
    found = run_official(tmp_path, "write_record", "inspect")["inspect"]
    assert set(found) == {*counts, "bodies", "official"}
    theirs = found.pop("official")
    assert all(len(calls) > 8 and all(map(all, calls)) for calls in found.values())
    # The official reader knows only the nodes of a method's own graph: what is in a body shows the call around it.
    assert {op for ops, *_ in found["bodies"] for op in ops} >= {"map_impl", "while_loop", "cond"}
    # The official chain leaves instructions of bodies out of its maps; the nodes are there.
    assert sum(not ops for ops, *_ in theirs) >= 2
    record = parse_etrecord(tmp_path / "official.etrecord")
    inside = {node.op for node in record.nodes["forward"] if node.within == "cond"}
    assert inside >= {"aten.sum.dim_IntList", "aten.exp.default", "aten.neg.default", "aten.tanh.default"}
    blocks = Inspector(tmp_path / "official.etdp", etrecord=record).event_blocks
    ours = {op for block in blocks for event in block.events for op in event.op_types}
    assert ours == {op for ops, *_ in theirs for op in ops} == {"aten.sum.dim_IntList", "aten.lt.Scalar"}


class Converted(torch.nn.Module):
    """Calls whose operators only the Edge dialect has, in a graph and in a branch."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wide = x.to(torch.float64).mul(2)
        return torch.cond(x.sum() > 0, lambda one: one * 2, lambda one: one.float().double(), (wide,)), x.clone()


def run(program: torch.export.ExportedProgram, *inputs: torch.Tensor) -> list[Any]:
    stored = {**program.state_dict, **program.constants}
    specs, given = program.graph_signature.input_specs, iter(inputs)
    values = [stored[str(spec.target)].clone() if spec.target is not None else next(given) for spec in specs]
    return list(torch.fx.Interpreter(program.graph_module).run(*values))


@pytest.mark.parametrize("model", [Block, Converted], ids=str)
def test_programs_of_a_file_are_those_that_were_saved(model: type[torch.nn.Module], tmp_path: Path) -> None:
    record = recorded(model(), X).get_etrecord()
    record.save(tmp_path / "m.etrecord")
    read = parse_etrecord(tmp_path / "m.etrecord")
    (one,), (other,) = read.programs.values(), record.programs.values()
    assert not read.unread
    found = {node.name: node for node in one.graph.nodes}
    for node in other.graph.nodes:
        assert str(found[node.name].target) == str(node.target)
        if node.op != "call_function" or node.target == operator.getitem:
            continue
        if isinstance(node.meta.get("debug_handle"), int):
            assert found[node.name].meta["debug_handle"] == node.meta["debug_handle"]
    for mine, wanted in zip(run(one, X), run(other, X), strict=True):
        assert torch.equal(mine, wanted)
    # What was read can be saved again.
    read.save(tmp_path / "again.etrecord")
    assert parse_etrecord(tmp_path / "again.etrecord").programs.keys() == {"forward"}


def test_a_file_without_weights_has_no_programs_and_says_why(tmp_path: Path) -> None:
    record = batched(1).get_etrecord()
    record.save(tmp_path / "small", weights=False)
    record.save(tmp_path / "own", official=False)
    small, own = parse_etrecord(tmp_path / "small"), parse_etrecord(tmp_path / "own")
    assert small.edge_dialect_program is None
    assert "were not saved" in small.unread["forward"]
    assert (own.programs, own.unread) == ({}, {})


@pytest.mark.parametrize("change", ["operator", "size", "code"])
def test_programs_that_name_more_than_operators_are_not_read(change: str, tmp_path: Path) -> None:
    batched(1).get_etrecord().save(tmp_path / "m")
    member = "edge_dialect_exported_program/forward"
    with zipfile.ZipFile(tmp_path / "m") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    text = members[member].decode()
    changed = {
        "operator": text.replace("_operator.mul", "os.system"),
        "size": text.replace('"expr_str": "', '"expr_str": "().__class__ or '),
        "code": text.replace("executorch.exir.dialects.edge.ops.aten.mul.Tensor", "torch.ops.__loader__.x"),
    }[change]
    assert changed != text
    with zipfile.ZipFile(tmp_path / "m", "w") as archive:
        for name, data in members.items():
            archive.writestr(name, changed if name == member else data)
    read = parse_etrecord(tmp_path / "m")
    assert read.programs == {}
    assert read.unread["forward"].startswith("ValueError: ")


def test_the_gap_is_calculated_from_files(tmp_path: Path) -> None:
    made = recorded(Block(), X)
    record = made.get_etrecord()
    record.update_representative_inputs([X])
    record.save(tmp_path / "m.etrecord")
    tracer = Tracer(values=True)
    Runtime.get().load_program(made.buffer, tracer=tracer).load_method("forward").execute([X])
    tracer.save(tmp_path / "m.etdp", tmp_path / "m.bin")
    tables = [
        Inspector(
            etdump_path=tmp_path / "m.etdp", debug_buffer_path=tmp_path / "m.bin", etrecord=one
        ).calculate_numeric_gap("MSE")
        for one in (record, tmp_path / "m.etrecord")
    ]
    assert len(tables[0]) > 8
    assert list(tables[0]["aot_ops"]) == list(tables[1]["aot_ops"])
    assert [gap for (gap,) in tables[0]["gap"]] == [gap for (gap,) in tables[1]["gap"]]


def test_a_record_is_filled_part_by_part(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 4)
    exported = torch.export.export(model, (torch.ones(1, 4),))
    edge = to_edge(exported)
    made = edge.to_executorch()
    cases = [MethodTestCase((torch.ones(1, 4),), (model(torch.ones(1, 4)),))]
    bundle = BundledProgram(made, [MethodTestSuite("forward", cases)])
    generate_etrecord(tmp_path / "m", edge, bundle, exported, {"before": exported, "after": edge})
    read = parse_etrecord(tmp_path / "m")
    assert read.exported_program is not None
    assert isinstance(read.edge_dialect_program, torch.export.ExportedProgram)
    assert set(read.graph_map) == {"before/forward", "after/forward"}
    assert not read.unread
    for program in (read.exported_program, read.edge_dialect_program, *read.graph_map.values()):
        torch.testing.assert_close(run(program, torch.ones(1, 4))[0], model(torch.ones(1, 4)))
    assert read.representative_inputs is not None
    assert read.reference_outputs is not None
    assert torch.equal(read.reference_outputs["forward"][0][0], model(torch.ones(1, 4)))
    assert read.nodes_of("forward", 0)
    copied = read.copy()
    assert copied.debug_handle_map == {}
    assert copied.representative_inputs is None
    with pytest.raises(UsageError, match="EK739"):
        copied.save(tmp_path / "copied")
    copied.add_executorch_program(made)
    copied.save(tmp_path / "copied")
    with pytest.raises(UsageError, match="EK785"):
        read.add_exported_program(exported)
    with pytest.raises(UsageError, match="EK785"):
        read.add_edge_dialect_program(edge)
    with pytest.raises(UsageError, match="EK785"):
        read.add_executorch_program(made)


def test_what_a_record_cannot_take_is_rejected() -> None:
    record = ETRecord()
    rejected: list[tuple[str, Any]] = [
        ("EK787", lambda: record.add_edge_dialect_program(torch.nn.Linear(1, 1))),
        ("EK787", lambda: record.add_executorch_program(b"")),
        ("EK787", lambda: record.add_extra_export_modules({"debug_handle_map": {}})),
        ("EK787", lambda: record.add_extra_export_modules({"fine": 1})),
        ("EK786", lambda: record.update_reference_outputs(bundled([MethodTestCase((torch.ones(1),))]))),
        ("EK786", lambda: record.update_representative_inputs(bundled([]))),
    ]
    for code, call in rejected:
        with pytest.raises(UsageError, match=code):
            call()
    record.add_exported_program(None)
    assert record.edge_dialect_program is None


def bundled(cases: list[MethodTestCase]) -> BundledProgram:
    made = to_edge(torch.export.export(torch.nn.ReLU(), (torch.ones(1),))).to_executorch()
    return BundledProgram(made, [MethodTestSuite("forward", cases)])


def test_a_failed_write_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = to_edge(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), generate_etrecord=True).to_executorch()
    path = tmp_path / "model.etrecord"
    made.get_etrecord().save(path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(OSError, match="no space left"):
        made.get_etrecord().save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
