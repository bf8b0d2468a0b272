"""Operators of `quantized_decomposed` without kernels: decomposed, they give the bits that torch's functions give."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.fuzz import OfficialRuntime
from exirkit.ir import register_quantized_decomposed
from exirkit.runtime_ref import Runtime

register_quantized_decomposed()
q = torch.ops.quantized_decomposed
INT8 = (-128, 127, torch.int8)


class Computed(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> object:
        return self.function(*inputs)


def integers(*sizes: int) -> Tensor:
    return torch.randint(-128, 128, sizes).to(torch.int8)


def scales(*sizes: int) -> Tensor:
    return torch.rand(sizes) + 0.01


CASES: dict[str, tuple[Callable[..., object], Callable[[], Sequence[Tensor]]]] = {
    "dequantized groups": (
        lambda x, s, z: q.dequantize_per_channel_group(x, s, z, *INT8, 4, torch.float32),
        lambda: (integers(5, 12), scales(5, 3), torch.randint(-9, 9, (5, 3), dtype=torch.int32)),
    ),
    # The difference of two int8 wraps around in torch.
    "dequantized groups, zero points of int8": (
        lambda x, s, z: q.dequantize_per_channel_group(x, s, z, *INT8, 4, torch.float32),
        lambda: (integers(5, 12), scales(5, 3), integers(5, 3)),
    ),
    "dequantized groups, no zero points, half": (
        lambda x, s: q.dequantize_per_channel_group(x, s, None, *INT8, 2, torch.float16),
        lambda: (integers(3, 2), scales(3, 1)),
    ),
    "one group of more columns than there are": (
        lambda x, s, z: q.dequantize_per_channel_group(x, s, z, *INT8, 128, torch.float32),
        lambda: (integers(3, 7), scales(3, 1), torch.zeros(3, 1, dtype=torch.int32)),
    ),
    "quantized groups": (
        lambda x, s, z: q.quantize_per_channel_group(x, s, z, -8, 7, torch.int8, 4),
        lambda: (torch.randn(5, 12), scales(5, 3), torch.randint(-3, 3, (5, 3), dtype=torch.int32)),
    ),
    "symmetric parameters": (
        lambda x: q.choose_qparams_symmetric.tensor(x, -127, 127, 2**-12, torch.int8),
        lambda: (torch.randn(4, 5),),
    ),
    "symmetric parameters of zeros, uint8": (
        lambda x: q.choose_qparams_symmetric.tensor(x, 0, 255, 2**-12, torch.uint8),
        lambda: (torch.zeros(3),),
    ),
    "parameters by token": (
        lambda x: q.choose_qparams_per_token(x, torch.int8),
        lambda: (torch.cat([torch.randn(3, 2, 5), torch.zeros(1, 2, 5)]),),
    ),
    "limits as tensors": (
        lambda x, s, z, low, high: q.quantize_per_tensor.tensor2(x, s, z, low, high, torch.int8),
        lambda: (torch.linspace(-3, 3, 31), *(torch.tensor(one) for one in ([0.0123], [3], -8, 7))),
    ),
    "limits as tensors, back": (
        lambda x, s, z, low, high: q.dequantize_per_tensor.tensor2(x, s, z, low, high, torch.int8),
        lambda: (integers(3, 4), *(torch.tensor(one) for one in ([0.0123], [3], -128, 127))),
    ),
    "quantized in floats": (
        lambda x, s, z: q.fake_quant_per_channel(x, s, z, 1, -128, 127),
        lambda: (torch.randn(2, 3, 4) * 9, scales(3), torch.tensor([0, 1, -5], dtype=torch.int32)),
    ),
}  # fmt: skip


@pytest.mark.executorch
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_torch(case: str, official_runtime: OfficialRuntime) -> None:
    function, make = CASES[case]
    torch.manual_seed(1)
    inputs = tuple(make())
    expected = function(*inputs)
    wanted = list(expected) if isinstance(expected, tuple) else [expected]
    program = to_edge(torch.export.export(Computed(function), inputs))
    names = [str(node.target) for node in program.exported_program().graph.nodes]
    assert any("quantized_decomposed" in name for name in names)
    for level in (0, 2):
        file = program.to_executorch(ExecutorchBackendConfig(optimization_level=level)).buffer
        mine = Runtime.get().load_program(file).load_method("forward").execute(list(inputs))
        theirs = official_runtime.run(file, [list(inputs)]).unwrap()[0]
        for one, other, eager in zip(mine, theirs, wanted, strict=True):
            assert isinstance(other, Tensor)
            assert isinstance(eager, Tensor)
            assert one.dtype is other.dtype
            # Programs are traced with float64 and int64, of which torch's function knows nothing.
            assert one.dtype is eager.dtype or case == "parameters by token"
            assert torch.equal(one, other)
            assert torch.equal(one, eager.to(one.dtype))
