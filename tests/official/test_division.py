"""Division as the official kernels compute it: by the reciprocal of one divisor, else value by value."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.fuzz import OfficialRuntime
from exirkit.ir import ops
from exirkit.runtime_ref import OperatorRegistry, Runtime

pytestmark = pytest.mark.executorch
EDGES = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-310, 1e-40, 3e38, 7.0]
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


class Quotient(torch.nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x / y


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether values, and signs of zeros, are the same; NaN has no sign that means anything."""
    numbers = [torch.where(value.isnan(), math.pi, value) for value in (one, other)]
    return torch.equal(*numbers) and torch.equal(*(value.signbit() for value in numbers))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [((40, 50), (1,)), ((1,), (40, 50)), ((1, 1), (1,)), ((40, 50), (50,))], ids=str)
def test_tensors(sizes: tuple[tuple[int, ...], ...], dtype: torch.dtype, official_runtime: OfficialRuntime) -> None:
    generator = torch.Generator().manual_seed(7)
    given = [torch.randn(size, generator=generator).to(dtype) * 9 for size in sizes]
    for one in given:
        if one.numel() > len(EDGES):
            one.view(-1)[: len(EDGES)] = torch.tensor(EDGES, dtype=torch.float64).to(dtype)
    program = torch.export.export(Quotient(), tuple(given))
    file = to_edge(program).to_executorch(ExecutorchBackendConfig(optimization_level=0)).buffer
    filled = [[torch.full_like(one, edge) if one.numel() == 1 else one for one in given] for edge in EDGES]
    runs = [given, *filled]
    method = Runtime.get().load_program(file).load_method("forward")
    eager = Runtime(OperatorRegistry(eager_quantization=True)).load_program(file).load_method("forward")
    for run, theirs in zip(runs, official_runtime.run(file, runs).unwrap(), strict=True):
        assert isinstance(theirs[0], Tensor)
        assert same_bits(method.execute(run)[0], theirs[0])
        assert same_bits(eager.execute(run)[0], run[0] / run[1])


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int32], ids=str)
@pytest.mark.parametrize("divisor", [3.7, -0.0123, 0.0, 7])
def test_numbers(divisor: float, dtype: torch.dtype, official_runtime: OfficialRuntime) -> None:
    given = (torch.randn(2000, generator=torch.Generator().manual_seed(8)) * 9).to(dtype)
    manager = to_edge(torch.export.export(Quotient(), (given, torch.tensor(1.0))))
    (call,) = (node for node in manager.exported_program().graph.nodes if "div" in node.name)
    call.target, call.args = ops.edge.aten.div.Scalar, (call.args[0], divisor)
    file = manager.to_executorch(ExecutorchBackendConfig(optimization_level=0)).buffer
    inputs = [given, torch.tensor(1.0)]
    (theirs,) = official_runtime.run(file, [inputs]).unwrap()[0]
    assert isinstance(theirs, Tensor)
    assert same_bits(Runtime.get().load_program(file).load_method("forward").execute(inputs)[0], theirs)
