"""Quantized programs without a delegate: whatever is imported, on both runtimes, and stored as narrow as they came."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.official.quantization.import_orders import ORDERS

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.fuzz import OfficialRuntime
from exirkit.ir import register_quantized_decomposed
from exirkit.runtime_ref import Runtime

pytestmark = pytest.mark.executorch
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "order", [pytest.param(one, marks=() if place in (0, 4) else pytest.mark.slow) for place, one in enumerate(ORDERS)]
)
def test_the_order_of_imports_does_not_matter(order: str, official_runtime: OfficialRuntime) -> None:
    command = [sys.executable, "-m", "tests.official.quantization.import_orders", order]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, check=False, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    inputs = [torch.linspace(-3, 4, 8).reshape(2, 4), torch.tensor([0.5, 0.125]), torch.tensor([0, 1])]
    mine = Runtime.get().load_program(done.stdout).load_method("forward").execute(inputs)
    for one, other in zip(mine, official_runtime.run(done.stdout, [inputs]).unwrap()[0], strict=True):
        assert isinstance(other, torch.Tensor)
        assert torch.equal(one, other)


def lowered(module: torch.nn.Module, *inputs: torch.Tensor, level: int = 1) -> bytes:
    config = ExecutorchBackendConfig(optimization_level=level)
    return to_edge(torch.export.export(module, inputs)).to_executorch(config).buffer


class Dequantized(torch.nn.Module):
    """A linear layer whose weight is stored in a byte each, and made wide in a way of the caller."""

    weight: torch.Tensor

    def __init__(self, widen: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 128, (256, 256)).to(torch.int8))
        self.widen = widen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.widen(self.weight))


def dequantized(weight: torch.Tensor) -> torch.Tensor:
    return torch.ops.quantized_decomposed.dequantize_per_tensor(weight, 0.01, 0, -127, 127, torch.int8)


@pytest.mark.parametrize("widen", [dequantized, lambda weight: weight.float() * 0.01], ids=["dequantize", "cast"])
def test_weights_stay_narrow_unless_time_counts(
    widen: Callable[[torch.Tensor], torch.Tensor], official_runtime: OfficialRuntime
) -> None:
    register_quantized_decomposed()
    model, x = Dequantized(widen), torch.randn(3, 256)
    files = [lowered(model, x, level=level) for level in (0, 1, 2)]
    weight = 256 * 256
    assert max(len(file) for file in files[:2]) < 1.3 * weight
    assert len(files[2]) > 4 * weight
    config = ExecutorchBackendConfig(optimization_level=2, optimize_for="size")
    assert len(to_edge(torch.export.export(model, (x,))).to_executorch(config).buffer) < 1.3 * weight
    for file in files:
        (mine,) = Runtime.get().load_program(file).load_method("forward").execute([x])
        torch.testing.assert_close(mine, model(x), rtol=1e-4, atol=1e-4)
        (theirs,) = official_runtime.run(file, [[x]]).unwrap()[0]
        assert isinstance(theirs, torch.Tensor)
        torch.testing.assert_close(theirs, mine, rtol=1e-5, atol=1e-5)


def test_what_kernels_do_not_take_is_cast(official_runtime: OfficialRuntime) -> None:
    register_quantized_decomposed()
    q = torch.ops.quantized_decomposed

    class Model(torch.nn.Module):
        scales: torch.Tensor
        zeros: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scales", torch.tensor([0.1, 0.05, 0.2]))
            self.register_buffer("zeros", torch.tensor([1, 0, -3], dtype=torch.int32))

        def forward(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, ...]:
            planes = x.to(memory_format=torch.channels_last)
            narrow = q.quantize_per_tensor.default(x.bfloat16(), 0.1, 0, -128, 127, torch.int8)
            return (
                q.quantize_per_channel.default(planes, self.scales, self.zeros, 1, -128, 127, torch.int8),
                q.quantize_per_tensor.tensor(x, scale, self.zeros[:1], -128, 127, torch.int8),
                narrow,
                q.dequantize_per_tensor.default(narrow, 0.1, 0, -128, 127, torch.int8, out_dtype=torch.bfloat16),
            )

    inputs = (torch.randn(2, 3, 4, 5), torch.tensor([0.1]))
    expected = Model()(*inputs)
    for level in (0, 1, 2):
        file = lowered(Model(), *inputs, level=level)
        mine = Runtime.get().load_program(file).load_method("forward").execute(inputs)
        theirs = official_runtime.run(file, [list(inputs)]).unwrap()[0]
        for one, other, eager in zip(mine, theirs, expected, strict=True):
            assert isinstance(other, torch.Tensor)
            assert torch.equal(one, other)
            torch.testing.assert_close(one, eager, atol=0.02 if eager.is_floating_point() else 0, rtol=0)
