"""The ways to plan memory that ExecuTorch documents, on a real program and on both runtimes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tests.official.oracle import OfficialRuntime
from torch.export.graph_signature import ExportGraphSignature
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassResult

import exirkit
from exirkit import EdgeProgramManager, ExecutorchBackendConfig, MemoryPlanningPass, TensorSpec, greedy
from exirkit.runtime_ref import Runtime


class Model(torch.nn.Module):
    """Additions, products, several results of one call, a view, a buffer, and an output that is used inside."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        product = x * y
        self.total.add_(product.sum(0))
        low, high = torch.split(product + x, 2, dim=1)
        return product, (low * high).reshape(-1) + 1, self.total * 2


class PoolsByOperator(MemoryPlanningPass):
    """What the documentation shows: arena 2 for results of additions, arena 1 for inputs, products and the rest."""

    def run(self, graph_module: GraphModule, graph_signature: ExportGraphSignature | None = None) -> PassResult:
        for module in graph_module.modules():
            if isinstance(module, GraphModule):
                self.choose(module)
        return super().run(graph_module, graph_signature)

    def choose(self, module: GraphModule) -> None:
        for node in module.graph.nodes:
            if node.op == "placeholder" or node.target == torch.ops.aten.mul.out:
                node.meta["spec"].mem_id = 1
            elif node.target == torch.ops.aten.add.out:
                node.meta["spec"].mem_id = 2


class StackOfPlates:
    """An algorithm with a state of its own, that writes into the specs and returns the sizes."""

    def __init__(self) -> None:
        self.plates = 0

    def stack(self, alignment: int, specs: Sequence[TensorSpec], *_: Any, **__: Any) -> list[int]:
        end = 0
        for spec in specs:
            spec.mem_id, spec.mem_offset = 1, end
            end += spec.realign(alignment)
            self.plates += 1
        return [0, end]


INPUTS = [torch.arange(12.0).reshape(3, 4), torch.linspace(-1, 1, 12).reshape(3, 4)]
WAYS: dict[str, Any] = {
    "a subclass that sets mem_id": lambda: PoolsByOperator(memory_planning_algo=greedy),
    "inputs from the caller": lambda: MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=True),
    "outputs from the caller": lambda: MemoryPlanningPass(alloc_graph_output=False),
    "neither": lambda: MemoryPlanningPass(greedy, alloc_graph_input=False, alloc_graph_output=False),
    "an algorithm that is a method": lambda: MemoryPlanningPass(memory_planning_algo=StackOfPlates().stack),
    "by method": lambda: {"forward": PoolsByOperator(), "other": MemoryPlanningPass(greedy)},
}


@pytest.fixture(scope="module")
def edge() -> EdgeProgramManager:
    return exirkit.to_edge(torch.export.export(Model(), tuple(INPUTS)))


@pytest.mark.executorch
@pytest.mark.parametrize("way", WAYS)
def test_programs_answer_right(edge: EdgeProgramManager, way: str, official_runtime: OfficialRuntime) -> None:
    manager = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=WAYS[way]()))
    model, other = Model(), Model()
    loaded = Runtime.get().load_program(manager.buffer, sanitize=True).load_method("forward")
    for _ in range(2):
        for got, expected in zip(loaded.execute(INPUTS), model(*INPUTS), strict=True):
            assert torch.equal(got, expected)
    official: list[Any] = official_runtime.run(manager.buffer, [INPUTS, INPUTS]).unwrap()
    for answers in official:
        for got, expected in zip(answers, other(*INPUTS), strict=True):
            assert torch.equal(got, expected)


def test_the_subclass_decides(edge: EdgeProgramManager) -> None:
    config = ExecutorchBackendConfig(memory_planning_pass=WAYS["a subclass that sets mem_id"]())
    program = edge.to_executorch(config).exported_program()
    arenas: dict[Any, set[int]] = {}
    for node in program.graph.nodes:
        if node.op == "call_function" and isinstance(spec := node.meta.get("spec"), TensorSpec):
            arenas.setdefault(node.target, set()).add(spec.mem_id or 0)
    assert arenas[torch.ops.aten.add.out] == {2}
    assert arenas[torch.ops.aten.mul.out] == {1}


def test_the_algorithm_is_asked_about_everything(edge: EdgeProgramManager) -> None:
    plates = StackOfPlates()
    manager = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(plates.stack)))
    specs = {
        spec
        for node in manager.exported_program().graph.nodes
        if isinstance(spec := node.meta.get("spec"), TensorSpec)
        if spec.mem_offset is not None and spec.storage_base is None
    }
    assert plates.plates == len(specs)
    assert manager.executorch_program.execution_plan[0].non_const_buffer_sizes == [
        0,
        sum(spec.allocated_memory for spec in specs),
    ]
