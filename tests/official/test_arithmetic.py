"""Arithmetic as the official kernels compute it: division by the reciprocal of one divisor, multiples before sums."""

from __future__ import annotations

import math
from collections.abc import Callable

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


@pytest.mark.parametrize("dtypes", [*((one, one) for one in DTYPES), (torch.float32, torch.int32)], ids=str)
@pytest.mark.parametrize("operator", [torch.add, torch.sub, torch.rsub])
@pytest.mark.parametrize("alpha", [3, -0.1])
def test_multiples_are_rounded_before_they_are_added(
    operator: Callable[..., Tensor],
    alpha: float,
    dtypes: tuple[torch.dtype, torch.dtype],
    official_runtime: OfficialRuntime,
) -> None:
    class Sum(torch.nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return operator(x, y, alpha=alpha)

    generator = torch.Generator().manual_seed(9)
    for sizes in (((700,), (700,)), ((33, 7), (7,)), ((4, 16, 9), (1, 16, 1)), ((5,), ())):
        given = [
            (torch.randn(size, generator=generator) * 9).to(dtype) for size, dtype in zip(sizes, dtypes, strict=True)
        ]
        program = torch.export.export(Sum(), tuple(given))
        file = to_edge(program).to_executorch(ExecutorchBackendConfig(optimization_level=0)).buffer
        (theirs,) = official_runtime.run(file, [given]).unwrap()[0]
        (mine,) = Runtime.get().load_program(file).load_method("forward").execute(given)
        assert isinstance(theirs, Tensor)
        assert same_bits(mine, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("operator", [torch.ops.aten.add.Scalar, torch.ops.aten.sub.Scalar], ids=["add", "sub"])
@pytest.mark.parametrize(("number", "alpha"), [(0.1, 3), (1.7, 0.3), (2, 3)])
def test_multiples_of_numbers(
    operator: Callable[..., Tensor],
    number: float,
    alpha: float,
    dtype: torch.dtype,
    official_runtime: OfficialRuntime,
) -> None:
    class Sum(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return operator(x, number, alpha)

    x = torch.randn(700, generator=torch.Generator().manual_seed(10)).to(dtype)
    file = to_edge(torch.export.export(Sum(), (x,))).to_executorch(ExecutorchBackendConfig(optimization_level=0)).buffer
    (theirs,) = official_runtime.run(file, [[x]]).unwrap()[0]
    (mine,) = Runtime.get().load_program(file).load_method("forward").execute([x])
    assert isinstance(theirs, Tensor)
    assert same_bits(mine, theirs)


def test_inputs_are_laid_out_as_the_method_takes_them(official_runtime: OfficialRuntime) -> None:
    """Sizes of one in the example inputs have any order, and the runtime does not compare orders."""

    class Doubled(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + x

    rows = {2: torch.export.Dim("rows", min=1, max=6)}
    for example in (torch.ones(1, 1, 3, 1), torch.ones(1, 2, 3, 2).to(memory_format=torch.channels_last)):
        size = (1, example.shape[1], 5, example.shape[3])
        x = torch.arange(float(math.prod(size))).reshape(size)
        program = torch.export.export(Doubled(), (example,), dynamic_shapes=(rows,))
        file = to_edge(program).to_executorch(ExecutorchBackendConfig(optimization_level=0)).buffer
        calls = [[x], [x.to(memory_format=torch.channels_last)]]
        for outputs in official_runtime.run(file, calls).unwrap():
            assert isinstance(outputs[0], Tensor)
            assert torch.equal(outputs[0], x + x)
