"""Caches of keys and values that are kept as int8 with scales, which a model writes in each call.

Files compute each cache as a whole and copy it back: `run_reinplace_pass` is not there (EK701).
"""

from __future__ import annotations

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
    for level, kind in ((0, "speed"), (1, "speed"), (2, "speed"), (2, "size")):
        config = ExecutorchBackendConfig(optimization_level=level, optimize_for=kind)  # type: ignore[arg-type]
        file = to_edge(program).to_executorch(config).buffer
        method = Runtime.get().load_program(file).load_method("forward")
        theirs = official_runtime.run(file, steps).unwrap()
        for one, other, wanted in zip(steps, theirs, expected, strict=True):
            (mine,) = method.execute(one)
            assert isinstance(other[0], Tensor)
            torch.testing.assert_close(other[0], mine, rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=1e-5)
