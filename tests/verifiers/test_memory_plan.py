"""Plans that hold pass; each way of spoiling one is found under its own code."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node

from exirkit.ir import TensorSpec, alloc, view
from exirkit.verifiers import check_memory_plan

ATEN = torch.ops.aten


@dataclass
class Planned:
    """A program with a plan written by hand: weight + x, a view of the sum, a write-back of it, and a result."""

    module: GraphModule
    signature: ExportGraphSignature
    specs: dict[str, TensorSpec]

    def check(self, **options: Any) -> list[str]:
        return [finding.code for finding in check_memory_plan(self.module, self.signature, **options)]


def place(spec: TensorSpec, offset: int, mem_id: int = 1) -> TensorSpec:
    spec.mem_id, spec.mem_offset, spec.mem_obj_id = mem_id, offset, 0
    return spec


def call(graph: Graph, target: Any, args: tuple[Node, ...], spec: TensorSpec) -> Node:
    out = graph.call_function(alloc, ((tuple(spec.shape), spec.dtype),))
    node = graph.call_function(target, args, {"out": out})
    out.meta["spec"] = node.meta["spec"] = spec
    return node


@pytest.fixture
def planned() -> Planned:
    graph = Graph()
    specs = {name: TensorSpec(torch.uint8, [64]) for name in ("weight", "state", "x", "total", "scratch", "result")}
    specs["weight"].const = True
    nodes = {name: graph.placeholder(name) for name in ("weight", "state", "x")}
    for name, node in nodes.items():
        node.meta["spec"] = specs[name]
    total = call(graph, ATEN.add.out, (nodes["weight"], nodes["x"]), specs["total"])
    folded = graph.call_function(view, (total, [8, 8]))
    specs["folded"] = folded.meta["spec"] = TensorSpec(torch.uint8, [8, 8])
    specs["folded"].storage_base = specs["total"]
    scratch = call(graph, ATEN.neg.out, (folded,), specs["scratch"])
    write = graph.call_function(ATEN.copy_.default, (nodes["state"], total))
    write.meta["spec"] = specs["state"]
    result = call(graph, ATEN.neg.out, (scratch,), specs["result"])
    graph.output((write, result))
    for name, offset in {"state": 0, "x": 64, "total": 128, "folded": 128, "scratch": 64, "result": 128}.items():
        place(specs[name], offset)
    module = GraphModule(torch.nn.Module(), graph)
    module.meta["non_const_buffer_sizes"] = [0, 192]
    signature = ExportGraphSignature(
        [
            InputSpec(InputKind.PARAMETER, TensorArgument("weight"), "weight"),
            InputSpec(InputKind.BUFFER, TensorArgument("state"), "state", True),
            InputSpec(InputKind.USER_INPUT, TensorArgument("x"), None),
        ],
        [
            OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(write.name), "state"),
            OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(result.name), None),
        ],
    )
    return Planned(module, signature, specs)


def test_plan_that_holds(planned: Planned) -> None:
    assert planned.check() == []


def _view_of_itself(planned: Planned) -> None:
    planned.specs["total"].storage_base = planned.specs["folded"]


def _sizes_missing(planned: Planned) -> None:
    del planned.module.meta["non_const_buffer_sizes"]


def _constants_have_bytes(planned: Planned) -> None:
    planned.module.meta["non_const_buffer_sizes"] = [16, 192]


def _different_spec(planned: Planned) -> None:
    node = next(node for node in planned.module.graph.nodes if node.target is ATEN.add.out)
    other = place(TensorSpec(torch.uint8, [64]), 1024)
    planned.module.meta["non_const_buffer_sizes"] = [0, 2048]
    node.kwargs["out"].meta["spec"] = other


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (_view_of_itself, "EK346"),
        (_sizes_missing, "EK347"),
        (_constants_have_bytes, "EK347"),
        (_different_spec, "EK349"),
    ],
)
def test_spoiled_plan_is_found(planned: Planned, spoil: Callable[[Planned], None], code: str) -> None:
    spoil(planned)
    assert code in planned.check()


@pytest.mark.parametrize(
    ("code", "name", "changes"),
    [
        pytest.param("EK341", "scratch", {"mem_offset": 128}, id="overlap by lifetime"),
        pytest.param("EK341", "x", {"shape": [65]}, id="overlap by one byte"),
        pytest.param("EK341", "result", {"mem_offset": 0}, id="overlap with state"),
        pytest.param("EK342", "result", {"mem_offset": 120}, id="misaligned"),
        pytest.param("EK343", "result", {"mem_offset": 144}, id="past the end"),
        pytest.param("EK343", "result", {"mem_offset": -16}, id="below zero"),
        pytest.param("EK343", "result", {"mem_offset": 0, "mem_id": 2}, id="no such arena"),
        pytest.param("EK344", "scratch", {"mem_offset": None}, id="missing"),
        pytest.param("EK345", "weight", {"mem_offset": 192, "mem_id": 1}, id="constant placed"),
        pytest.param("EK346", "folded", {"mem_offset": 64}, id="view elsewhere"),
        pytest.param("EK346", "folded", {"mem_offset": 144, "storage_offset_bytes": 16}, id="view too long"),
    ],
)
def test_wrong_spec_is_found(planned: Planned, code: str, name: str, changes: dict[str, Any]) -> None:
    for field, value in changes.items():
        setattr(planned.specs[name], field, value)
    assert code in planned.check()


def test_overlap_names_both_values_bytes_and_steps(planned: Planned) -> None:
    place(planned.specs["result"], 0)
    (finding,) = check_memory_plan(planned.module, planned.signature)
    assert finding.location.node == "step 9, %neg_out_1"
    assert "%neg_out_1" in finding.notes[0]
    assert "bytes 0..64" in finding.notes[0]
    assert "%state" in finding.notes[1]
    assert "live until step 11" in finding.notes[1]


def test_memory_that_the_caller_provides(planned: Planned) -> None:
    assert planned.check(alloc_graph_input=False) == ["EK348"]
    assert planned.check(alloc_graph_output=False) == ["EK348"]
    assert planned.check(alloc_mutable_buffers=False) == ["EK348"]
    for name in ("x", "result", "state"):
        planned.specs[name].mem_offset = None
    options = {"alloc_graph_input": False, "alloc_graph_output": False, "alloc_mutable_buffers": False}
    assert planned.check(**options) == []
    assert planned.check() == ["EK344"] * 3


def test_sizes_given_must_be_those_recorded(planned: Planned) -> None:
    assert planned.check(buffer_sizes=[0, 192]) == []
    assert planned.check(buffer_sizes=[0, 256]) == ["EK347"]


def test_coarser_alignment(planned: Planned) -> None:
    assert planned.check(alignment=64) == []
    assert set(planned.check(alignment=128)) == {"EK342"}


def test_alloc_without_spec(planned: Planned) -> None:
    node = next(node for node in planned.module.graph.nodes if node.target is alloc)
    del node.meta["spec"]
    assert "EK344" in planned.check()


def test_empty_tensors_are_in_nobodys_way(planned: Planned) -> None:
    planned.specs["scratch"].shape = [0]
    place(planned.specs["scratch"], 16)
    assert planned.check() == []


def conditional(scratch_offset: int, result_offset: int, *, shares: bool = True) -> GraphModule:
    """Return a graph with two conditionals whose results meet; the scratch memory and the result are those of one."""
    graph, root = Graph(), torch.nn.Module()
    pred = graph.placeholder("pred")
    pred.meta["spec"] = place(TensorSpec(torch.bool, []), 0)
    results = []
    for index, (scratch, result) in enumerate(((scratch_offset, result_offset), (256, 512))):
        spec = place(TensorSpec(torch.uint8, [64]), result)
        for side in ("yes", "no"):
            inner = Graph()
            arg = inner.placeholder("arg")
            arg.meta["spec"] = pred.meta["spec"]
            made = call(inner, ATEN.neg.out, (arg,), place(TensorSpec(torch.uint8, [64]), scratch))
            own = spec if shares else place(TensorSpec(torch.uint8, [64]), result)
            inner.output((call(inner, ATEN.neg.out, (made,), own),))
            root.add_module(f"{side}_{index}", GraphModule(torch.nn.Module(), inner))
        branches = [graph.get_attr(f"{side}_{index}") for side in ("yes", "no")]
        node = graph.call_function(torch.ops.higher_order.cond, (pred, *branches, (pred,)))
        node.meta["spec"] = [spec]
        results.append(graph.call_function(operator.getitem, (node, 0)))
        results[-1].meta["spec"] = spec
    graph.output((call(graph, ATEN.add.out, tuple(results), place(TensorSpec(torch.uint8, [64]), 640)),))
    module = GraphModule(root, graph)
    module.meta["non_const_buffer_sizes"] = [0, 1024]
    return module


def test_result_of_a_branch_must_survive_the_next_conditional() -> None:
    assert check_memory_plan(conditional(256, 128)) == []
    # The first result lies where the branches of the second conditional work.
    found = check_memory_plan(conditional(64, 272))
    assert {finding.code for finding in found} == {"EK341"}
    assert "%cond" in found[0].notes[1]


def test_branch_must_not_work_where_its_result_or_its_operand_is() -> None:
    for scratch, result in ((96, 128), (128, 112), (0, 128)):
        assert "EK341" in {finding.code for finding in check_memory_plan(conditional(scratch, result))}


def test_branch_must_compute_where_the_result_is() -> None:
    assert "EK349" in {finding.code for finding in check_memory_plan(conditional(256, 128, shares=False))}


def test_places_inside_of_branches_are_checked() -> None:
    assert {finding.code for finding in check_memory_plan(conditional(8, 128))} == {"EK342"}
    assert "EK343" in {finding.code for finding in check_memory_plan(conditional(1008, 128))}


@pytest.mark.parametrize("seed", range(30))
def test_random_plans_are_judged_as_by_marking_bytes(seed: int) -> None:
    """Places drawn blindly: the checker finds a clash exactly where marking each byte at each step does."""
    draw = random.Random(seed)
    graph = Graph()
    nodes = [graph.placeholder("x")]
    nodes[0].meta["spec"] = place(TensorSpec(torch.uint8, [16]), 0)
    for _ in range(draw.randint(1, 12)):
        spec = place(TensorSpec(torch.uint8, [draw.randint(0, 40)]), 16 * draw.randint(0, 20))
        nodes.append(call(graph, ATEN.neg.out, (draw.choice(nodes[-3:]),), spec))
    graph.output((nodes[-1],))
    module = GraphModule(torch.nn.Module(), graph)
    order = {node: step for step, node in enumerate(graph.nodes)}
    marked: set[tuple[int, int]] = set()
    clash = False
    for node in nodes:
        spec = node.meta["spec"]
        first = order[node] - (node.op != "placeholder")
        last = max([order[node], *(order[user] for user in node.users)])
        cells = {
            (step, byte)
            for step in range(first, last + 1)
            for byte in range(spec.mem_offset, spec.mem_offset + spec.nbytes())
        }
        clash |= bool(cells & marked)
        marked |= cells
    findings = check_memory_plan(module, buffer_sizes=[0, 4096])
    assert bool(findings) == clash
    assert {finding.code for finding in findings} <= {"EK341"}
