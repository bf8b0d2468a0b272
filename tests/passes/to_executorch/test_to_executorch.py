"""The whole second half of lowering: results, order, options, and outputs that have to have memory of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.passes.lowering import call_nodes, edge_program, executorch_program, run
from torch.export import Dim

from exirkit.ir import DefinedOperator, alloc, ops, view
from exirkit.passes import (
    ExecutorchBackendConfig,
    MemoryPlanningPass,
    Pipeline,
    ToOutVarPass,
    executorch_settings,
)

CLONE = ops.edge.dim_order_ops._clone_dim_order.default


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(8, 24)
        self.table = torch.nn.Embedding(10, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        query, key, value = (part.view(2, -1, 2, 4).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        weights = torch.softmax(query @ key.transpose(-2, -1) * 0.5, -1)
        answer: torch.Tensor = (weights @ value).transpose(1, 2).reshape(2, -1, 8) + x
        return answer


class Cache(torch.nn.Module):
    cache: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(4, 3))

    def forward(self, x: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = self.cache.clone()
        self.cache.index_copy_(0, position, x)
        return self.cache.sum(0), before


MODELS: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "attention": (Attention(), (torch.tensor([[1, 2, 3], [4, 5, 6]]),)),
    "convolution": (
        torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten()),
        (torch.rand(2, 3, 6, 6),),
    ),
    "results": (lambda x: (*torch.topk(x, 2), *torch.split(x, 2, 1), x.unbind(0)), (torch.rand(3, 4),)),
    "integers": (lambda x: (x // 3, x % 4, (x << 1) & 6, x.sum()), (torch.arange(-6, 6).view(3, 4),)),
    "cache": (Cache(), (torch.rand(1, 3), torch.tensor([2]))),
    "empty": (lambda x: x[0:0] * 2.0, (torch.rand(3, 4),)),
}


UNPLANNED = {"alloc_graph_input": False, "alloc_graph_output": False}


@pytest.mark.parametrize(
    "options", [{}, {"remove_view_copy": False}, UNPLANNED], ids=["default", "copies", "unplanned"]
)
@pytest.mark.parametrize("name", MODELS)
def test_a_lowered_graph_computes_the_same(name: str, options: dict[str, bool]) -> None:
    model, inputs = MODELS[name]
    made = edge_program(model, *inputs)
    lowered = executorch_program(made, **options)
    for ours, theirs in zip(run(lowered, inputs), run(made, inputs), strict=True):
        torch.testing.assert_close(ours, theirs)
    for node in lowered.graph.nodes:
        if node.op == "call_function" and node.target not in (alloc, view):
            assert isinstance(node.target, torch._ops.OpOverload | DefinedOperator) or "getitem" in node.name


def test_the_edge_program_stays_as_it_was() -> None:
    made = edge_program(Attention(), *MODELS["attention"][1])
    before = [(node.name, str(node.target), str(node.args)) for node in made.graph.nodes]
    executorch_program(made)
    assert [(node.name, str(node.target), str(node.args)) for node in made.graph.nodes] == before
    assert not any("spec" in node.meta for node in made.graph.nodes)


def test_provenance_reaches_the_out_variants() -> None:
    lowered = executorch_program(edge_program(Attention(), *MODELS["attention"][1]))
    for node in lowered.graph.nodes:
        if node.op == "call_function":
            assert node.meta.get("debug_handle") is not None, node


def test_options_of_the_backend_config_reach_the_passes() -> None:
    made = edge_program(lambda x: (x * 2.0).view(12) + 1.0, torch.rand(3, 4))
    config = ExecutorchBackendConfig(remove_view_copy=False, to_out_var_pass=ToOutVarPass(True))
    result = Pipeline.shipped("to_executorch").run(made, settings=executorch_settings(config, MemoryPlanningPass()))
    assert {"eliminate-views", "out-variants"}.isdisjoint(report.name for report in result.reports)
    assert call_nodes(result.program, torch.ops.aten.view_copy.out)
    assert not call_nodes(made, view)


@pytest.mark.slow
def test_dynamic_sizes_run_at_every_size() -> None:
    class Sizes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            rows, columns = x.shape
            flat = (x * 2.0).view(rows * columns)
            return flat + rows, torch.arange(columns), x.unsqueeze(1) + 1.0, torch.cat([x, x])[rows:]

    shapes = ({0: Dim("rows", min=2, max=6), 1: Dim("columns", min=2, max=9)},)
    made = edge_program(Sizes(), torch.rand(3, 4), dynamic_shapes=shapes)
    lowered = executorch_program(made)
    for sizes in ((2, 2), (6, 9), (4, 5)):
        x = torch.rand(sizes)
        for ours, theirs in zip(run(lowered, [x]), Sizes()(x), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_without_dim_order_operators_none_is_introduced() -> None:
    class Swap(torch.nn.Module):
        a: torch.Tensor
        b: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", torch.tensor([1.0]))
            self.register_buffer("b", torch.tensor([2.0]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            old = self.a.clone()
            self.a.copy_(self.b)
            self.b.copy_(old)
            return x

    made = edge_program(Swap(), torch.zeros(1))
    lowered = executorch_program(made, skip_dim_order=True, alloc_graph_output=False)
    assert len(call_nodes(lowered, torch.ops.aten.clone.out)) == 2
    assert not any("dim_order" in str(node.target) for node in lowered.graph.nodes)
