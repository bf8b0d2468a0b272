"""Caches of keys and values that are kept as int8 with scales, which a model writes in each call.

With `run_reinplace_pass`, files write only the rows that are new, as those of the official exporter do.
"""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import Tensor

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.fuzz import OfficialRuntime
from exirkit.ir import register_quantized_decomposed
from exirkit.runtime_ref import Runtime

pytestmark = pytest.mark.executorch
register_quantized_decomposed()
q = torch.ops.quantized_decomposed
PLACES, WIDTH = 6, 8


class Cache(torch.nn.Module):
    """Attention of one token to those before it; each has its own scale and zero point."""

    numbers: Tensor
    scales: Tensor
    zeros: Tensor

    def __init__(self, by_index: bool) -> None:
        super().__init__()
        self.register_buffer("numbers", torch.zeros(1, PLACES, WIDTH, dtype=torch.int8))
        self.register_buffer("scales", torch.ones(1, PLACES, 1, dtype=torch.float64))
        self.register_buffer("zeros", torch.zeros(1, PLACES, 1, dtype=torch.int64))
        self.by_index = by_index

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        scale, zero = q.choose_qparams_per_token_asymmetric(x, torch.int8)
        number = q.quantize_per_token(x, scale, zero, -128, 127, torch.int8)
        for cache, new in ((self.numbers, number), (self.scales, scale), (self.zeros, zero)):
            if self.by_index:
                cache[:, place] = new
            else:
                cache.copy_(torch.slice_scatter(torch.roll(cache, 1, 1), new, 1, 0, 1))
        wide = q.dequantize_per_token(self.numbers, self.scales, self.zeros, -128, 127, torch.int8, torch.float32)
        return torch.softmax(x @ wide.transpose(1, 2), -1) @ wide


@pytest.mark.parametrize("by_index", [True, False], ids=["index_put", "slice_scatter"])
def test_calls_see_what_earlier_ones_wrote(by_index: bool, official_runtime: OfficialRuntime) -> None:
    torch.manual_seed(5)
    steps = [[torch.randn(1, 1, WIDTH), torch.tensor([place])] for place in (0, 1, 2, 1, 5)]
    with torch.no_grad():
        program = torch.export.export(Cache(by_index), tuple(steps[0]))
        eager = Cache(by_index)
        expected = [eager(*one) for one in steps]
    configs = [
        ExecutorchBackendConfig(optimization_level=0),
        ExecutorchBackendConfig(optimization_level=0, run_reinplace_pass=True),
        ExecutorchBackendConfig(optimization_level=1, run_reinplace_pass=True),
        ExecutorchBackendConfig(optimization_level=2),
        ExecutorchBackendConfig(optimization_level=2, optimize_for="size", run_reinplace_pass=True),
    ]
    for config in configs:
        made = to_edge(program).to_executorch(config)
        file = made.buffer
        targets = [str(node.target) for node in made.exported_program().graph.nodes]
        assert targets.count("aten.index_put_.default") == (3 if config.run_reinplace_pass and by_index else 0)
        method = Runtime.get().load_program(file).load_method("forward")
        theirs = official_runtime.run(file, steps).unwrap()
        for one, other, wanted in zip(steps, theirs, expected, strict=True):
            (mine,) = method.execute(one)
            assert isinstance(other[0], Tensor)
            torch.testing.assert_close(other[0], mine, rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8], ids=str)
def test_the_official_exporter_writes_the_same_in_place(dtype: torch.dtype, official_runtime: OfficialRuntime) -> None:
    class Two(torch.nn.Module):
        keys: Tensor
        values: Tensor

        def __init__(self) -> None:
            super().__init__()
            for name in ("keys", "values"):
                self.register_buffer(name, torch.zeros(1, 2, PLACES, WIDTH, dtype=dtype))

        def forward(self, x: Tensor, place: Tensor) -> Tensor:
            new = torch.round(x * 9).to(dtype)
            # Values of all dims: what a sliced assignment exports lacks those of size 1, and fails in their file.
            torch.ops.aten.index_put_.default(self.keys, [None, None, place], new)
            torch.ops.aten.index_put_.default(self.values, [None, None, place], new + 1)
            return torch.softmax(x @ self.keys.float().mT / 9, -1) @ self.values.float()

    steps = [[torch.randn(1, 2, 1, WIDTH), torch.tensor([place])] for place in (0, 3, 5, 3)]
    with torch.no_grad():
        program = torch.export.export(Two(), tuple(steps[0]))
    mine = to_edge(program).to_executorch(ExecutorchBackendConfig(optimization_level=0, run_reinplace_pass=True))
    lower = importlib.import_module("executorch.exir")
    config = lower.ExecutorchBackendConfig(run_reinplace_pass=True)
    theirs = lower.to_edge(program).to_executorch(config)
    targets = [[str(node.target) for node in one.exported_program().graph.nodes] for one in (mine, theirs)]
    counts = [sum("aten.index_put_.default" in target for target in one) for one in targets]
    assert counts == [2, 2]
    found = [official_runtime.run(one.buffer, steps).unwrap() for one in (mine, theirs)]
    for one, other in zip(*found, strict=True):
        assert torch.equal(one[0], other[0])
