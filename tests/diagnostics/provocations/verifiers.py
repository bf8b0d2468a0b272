"""Programs and memory plans that break the rules of their dialect."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.diagnostics.programs import call_of, counter, edge, exported, lowered
from tests.diagnostics.provocation import provokes
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit import Diagnostic, ExecutorchBackendConfig, TensorSpec, to_edge
from exirkit.patterns import Registry, Target
from exirkit.verifiers import check_aten_program, check_edge_program, check_memory_plan, check_method_memory


@provokes("EK301")
def operator_that_is_not_core(_: Path) -> list[Diagnostic]:
    return check_aten_program(exported(torch.nn.functional.silu, torch.ones(2)))


@provokes("EK302")
def operator_that_writes(_: Path) -> list[Diagnostic]:
    return check_aten_program(exported(lambda x: x.clone().add_(1), torch.ones(2)))


def edge_relu() -> tuple[ExportedProgram, Node]:
    program = edge(exported(torch.relu, torch.ones(2)))
    return program, call_of(program, "relu")


@provokes("EK303")
def torch_operator_in_an_edge_program(_: Path) -> list[Diagnostic]:
    program, relu = edge_relu()
    relu.target = torch.ops.aten.relu.default
    return check_edge_program(program)


@provokes("EK304")
def number_for_a_tensor(_: Path) -> list[Diagnostic]:
    program, relu = edge_relu()
    relu.args = (3.0,)
    return check_edge_program(program)


@provokes("EK305")
def node_without_value(_: Path) -> list[Diagnostic]:
    program, relu = edge_relu()
    del relu.meta["val"]
    return check_edge_program(program)


def planned() -> tuple[ExportedProgram, list[TensorSpec]]:
    """Return a planned program and the specs of its allocs, in order."""
    program = lowered(counter())
    allocs = [node.meta["spec"] for node in program.graph.nodes if "alloc" in str(node.target)]
    assert len(allocs) >= 2
    return program, allocs


def check(program: ExportedProgram) -> list[Diagnostic]:
    return check_memory_plan(program.graph_module, program.graph_signature)


@provokes("EK341")
def two_live_values_in_one_place(_: Path) -> list[Diagnostic]:
    program, allocs = planned()
    first = next(node.meta["spec"] for node in program.graph.nodes if node.name == "b_count")
    allocs[0].mem_offset = first.mem_offset
    return check(program)


@provokes("EK355")
def method_over_the_buffer_of_another(_: Path) -> list[Diagnostic]:
    program, _allocs = planned()
    return check_method_memory({"step": program, "twice": lowered(exported(lambda x: x + x, torch.ones(2, 8)))})


@provokes("EK342")
def offset_off_its_alignment(_: Path) -> list[Diagnostic]:
    program, allocs = planned()
    allocs[0].mem_offset = 4
    return check(program)


@provokes("EK343")
def place_outside_of_the_arena(_: Path) -> list[Diagnostic]:
    program, allocs = planned()
    allocs[0].mem_offset = 1 << 20
    return check(program)


@provokes("EK344")
def tensor_without_place(_: Path) -> list[Diagnostic]:
    program, allocs = planned()
    allocs[0].mem_offset = None
    return check(program)


@provokes("EK345")
def constant_with_place(_: Path) -> list[Diagnostic]:
    program, _allocs = planned()
    weight = next(node for node in program.graph.nodes if node.name == "p_weight")
    weight.meta["spec"].mem_id, weight.meta["spec"].mem_offset = 1, 0
    return check(program)


@provokes("EK346")
def view_outside_of_its_base(_: Path) -> list[Diagnostic]:
    program = lowered(exported(lambda x: (x + x).view(2, 2).relu(), torch.ones(4)))
    view = next(
        node.meta["spec"]
        for node in program.graph.nodes
        if isinstance(node.meta.get("spec"), TensorSpec) and node.meta["spec"].storage_base is not None
    )
    view.mem_offset += 64
    return check(program)


@provokes("EK347")
def arena_zero_with_a_size(_: Path) -> list[Diagnostic]:
    program, _allocs = planned()
    program.graph_module.meta["non_const_buffer_sizes"] = [16, 64]
    return check(program)


@provokes("EK348")
def input_with_a_place_of_ours(_: Path) -> list[Diagnostic]:
    program, _allocs = planned()
    return check_memory_plan(program.graph_module, program.graph_signature, alloc_graph_input=False)


@provokes("EK349")
def result_with_a_spec_of_its_own(_: Path) -> list[Diagnostic]:
    program, _allocs = planned()
    relu = call_of(program, "relu")
    relu.meta["spec"] = TensorSpec(torch.float32, (4,))
    return check(program)


@provokes("EK359")
def operator_without_kernel(_: Path) -> object:
    registry = Registry(base="official_host", lacks=("aten::relu.out",))
    config = ExecutorchBackendConfig(target=Target(target=1, name="mine", registry=registry))
    return to_edge(exported(torch.relu, torch.ones(2, 3))).to_executorch(config)


def runtime_that_asks(condition: str) -> Target:
    registry = Registry(base="official_host", operators={"aten::relu.out": (condition,)})
    return Target(target=1, name="mine", registry=registry)


@provokes("EK360")
def call_that_the_kernel_does_not_take(_: Path) -> object:
    config = ExecutorchBackendConfig(target=runtime_that_asks("rank(self) == 4"))
    return to_edge(exported(torch.relu, torch.ones(2, 3))).to_executorch(config)


@provokes("EK361")
def condition_that_is_not_an_expression(_: Path) -> object:
    config = ExecutorchBackendConfig(target=runtime_that_asks("rang(self) == 4"))
    return to_edge(exported(torch.relu, torch.ones(2, 3))).to_executorch(config)
