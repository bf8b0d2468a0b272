"""Fusion of quantized values, by the documented names: what is fused, and that results stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest
import torch

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.fuzz import OfficialRuntime
from exirkit.ir import operator_name, register_quantized_decomposed
from exirkit.runtime_ref import Runtime

register_quantized_decomposed()
documented = import_module("exirkit.exir.passes.quant_fusion_pass")
QuantFusionPass = documented.QuantFusionPass
Q = torch.ops.quantized_decomposed
Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
A, B, C = (0.05, 3, 0, 255, torch.uint8), (0.02, 128, 0, 255, torch.uint8), (0.07, 10, 0, 255, torch.uint8)
WIDE = (0.05, 3, -128, 127, torch.int8)


def quantize(x: torch.Tensor, parameters: tuple[Any, ...]) -> torch.Tensor:
    return Q.quantize_per_tensor(x, *parameters)


def dequantize(x: torch.Tensor, parameters: tuple[Any, ...]) -> torch.Tensor:
    return Q.dequantize_per_tensor(x, *parameters)


def added(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return dequantize(quantize(dequantize(quantize(x, A), A) + dequantize(quantize(y, B), B), C), C)


def broadcast(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return dequantize(quantize(dequantize(quantize(x, A), A) + dequantize(quantize(y[:1], B), B), C), C)


def wide(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    both = dequantize(quantize(x, WIDE), WIDE) + dequantize(quantize(y, WIDE), WIDE)
    return dequantize(quantize(both, WIDE), WIDE)


def joined(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    both = torch.cat([dequantize(quantize(x, WIDE), WIDE), dequantize(quantize(y, WIDE), WIDE)], 1)
    return dequantize(quantize(both, WIDE), WIDE)


def requantized(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    both = torch.cat([dequantize(quantize(x, A), A), dequantize(quantize(y, A), A)])
    return dequantize(quantize(both.view(-1), B), B)


def moved(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    part = dequantize(quantize(x, A), A)[1:].permute(1, 0)
    return dequantize(quantize(part, A), A) + y[1:].t()


class Case(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.function(x, y)


FLOATS: dict[Function, dict[str, int]] = {
    added: {"aten.add.Tensor": 0, "quantized_decomposed.add.default": 1},
    broadcast: {"aten.add.Tensor": 1, "quantized_decomposed.add.default": 0},
    wide: {"aten.add.Tensor": 1, "quantized_decomposed.add.default": 0},
    joined: {"quantized_decomposed.dequantize_per_tensor.default": 1},
    requantized: {"quantized_decomposed.quantize_per_tensor.default": 3},
    moved: {"quantized_decomposed.quantize_per_tensor.default": 1},
}


def operators(graph_module: torch.fx.GraphModule) -> list[str]:
    return [operator_name(node.target) for node in graph_module.graph.nodes if node.op == "call_function"]


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    # Ties between two integers, values beyond the limits, and others.
    ties = torch.tensor([0.025, -0.025, 0.075, 100.0, -100.0, 0.0])
    torch.manual_seed(1)
    return torch.cat([ties, torch.randn(6) * 4]).view(4, 3), torch.randn(4, 3) * 2


@pytest.mark.parametrize("function", FLOATS)
def test_calls_on_integers(function: Function) -> None:
    edge = to_edge(torch.export.export(Case(function), inputs()))
    program = edge.exported_program()
    before = operators(program.graph_module)
    made = documented.quant_fusion_and_const_prop_pass(program)
    assert operators(program.graph_module) == before
    found = operators(made.graph_module)
    assert {operator: found.count(operator) for operator in FLOATS[function]} == FLOATS[function]
    result = QuantFusionPass(_fix_node_meta_val=True)(program.graph_module)
    assert operators(result.graph_module) == found
    assert result.modified == (found != before)
    assert all("val" in node.meta for node in result.graph_module.graph.nodes if node.op != "output")


@pytest.mark.executorch
@pytest.mark.parametrize("function", FLOATS)
def test_results_are_what_they_were(function: Function, official_runtime: OfficialRuntime) -> None:
    edge = to_edge(torch.export.export(Case(function), inputs()))
    for config in (
        ExecutorchBackendConfig(do_quant_fusion_and_const_prop=True),
        ExecutorchBackendConfig(do_quant_fusion_and_const_prop=True, optimization_level=0),
        ExecutorchBackendConfig(passes=[QuantFusionPass()]),
    ):
        buffer = edge.to_executorch(config).buffer
        (got,) = official_runtime.run(buffer, [inputs()]).unwrap()[0]
        (ours,) = Runtime().load_program(buffer).load_method("forward").execute(inputs())
        torch.testing.assert_close(ours, got, rtol=0, atol=0)
        # A sum may land on the next integer: the kernel multiplies by the reciprocal of the scale.
        torch.testing.assert_close(got, Case(function)(*inputs()), rtol=0, atol=0.0701 if function is added else 1e-6)


def test_a_table_of_embeddings_is_read_by_rows() -> None:
    class Table(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.randint(-128, 128, (10, 4)).to(torch.int8))
            self.register_buffer("scales", torch.rand(10) + 0.1)
            self.register_buffer("zeros", torch.zeros(10, dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = Q.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -128, 127, torch.int8)
            return torch.nn.functional.embedding(x, wide)

    program = to_edge(torch.export.export(Table(), (torch.tensor([1, 9]),))).exported_program()
    assert operators(documented.quant_fusion_and_const_prop_pass(program).graph_module) == [
        "quantized_decomposed.embedding_byte.default"
    ]
