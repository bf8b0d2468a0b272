"""Small models, exported and lowered, for provoking diagnostics about programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.ir import ops


class Of(torch.nn.Module):
    """A module around a function of tensors."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


class Counter(torch.nn.Module):
    """A model with a weight and a buffer that it changes."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4), requires_grad=False)
        self.register_buffer("count", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1.0
        return (x * self.weight).relu() + self.count


def exported(function: Callable[..., Any], *inputs: torch.Tensor, dynamic_shapes: Any = None) -> ExportedProgram:
    """Return an exported function; its dynamic shapes are a tuple with one entry for each input."""
    shapes = None if dynamic_shapes is None else (dynamic_shapes,)
    return torch.export.export(Of(function), inputs, dynamic_shapes=shapes)


def counter() -> ExportedProgram:
    """Return the exported model with state."""
    with torch.no_grad():
        return torch.export.export(Counter().eval(), (torch.ones(4),))


def edge(program: ExportedProgram) -> ExportedProgram:
    """Return a program of the Edge dialect."""
    return to_edge(program).exported_program()


def lowered(program: ExportedProgram) -> ExportedProgram:
    """Return a program of the ExecuTorch dialect whose memory is planned."""
    config = ExecutorchBackendConfig(optimization_level=0)
    return to_edge(program).to_executorch(config).exported_program()


def relu_module() -> GraphModule:
    """Return the graph module of an Edge program that computes relu(x) for two floats."""
    module: GraphModule = edge(exported(torch.relu, torch.ones(2))).graph_module
    return module


def call_of(program: ExportedProgram | GraphModule, name: str) -> Node:
    """Return the first call of an operator whose name contains `name`."""
    nodes: list[Node] = list(program.graph.nodes)
    return next(node for node in nodes if node.op == "call_function" and name in str(node.target))


EDGE_RELU = ops.edge.aten.relu.default
