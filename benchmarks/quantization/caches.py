"""Attention whose linears torchao has quantized, with keys and values that it keeps as integers from call to call."""

from __future__ import annotations

import importlib

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from exirkit.ir import register_quantized_decomposed

_PLACES, _WIDTH = 8, 32


class Cached(nn.Module):
    """Attention of one token to those before it; each row of a cache has its own scale and zero point."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(_WIDTH, _WIDTH) for _ in range(4))
        for name in ("keys", "values"):
            self.register_buffer(f"{name}_numbers", torch.zeros(1, _PLACES, _WIDTH, dtype=torch.int8))
            self.register_buffer(f"{name}_scales", torch.ones(1, _PLACES, 1, dtype=torch.float64))
            self.register_buffer(f"{name}_zeros", torch.zeros(1, _PLACES, 1, dtype=torch.int64))

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        """Return what the token at a place is told by those that are known."""
        keys, values = self._kept("keys", self.key(x), place), self._kept("values", self.value(x), place)
        seen = torch.arange(_PLACES) <= place
        weights = (self.query(x) @ keys.mT / _WIDTH**0.5).masked_fill(~seen, -1e9)
        made: Tensor = self.out(torch.softmax(weights, -1) @ values)
        return made

    def _kept(self, name: str, new: Tensor, place: Tensor) -> Tensor:
        q = torch.ops.quantized_decomposed
        scale, zero = q.choose_qparams_per_token_asymmetric(new, torch.int8)
        number = q.quantize_per_token(new, scale, zero, -128, 127, torch.int8)
        numbers, scales, zeros = (self.get_buffer(f"{name}_{one}") for one in ("numbers", "scales", "zeros"))
        for cache, row in ((numbers, number), (scales, scale), (zeros, zero)):
            cache[:, place] = row
        wide: Tensor = q.dequantize_per_token(numbers, scales, zeros, -128, 127, torch.int8, torch.float32)
        return wide


def cache() -> ExportedProgram:
    """Return the program, with int8 activations and int4 weights."""
    register_quantized_decomposed()
    library = importlib.import_module("torchao.quantization")
    torch.manual_seed(20260101)
    module = Cached().eval().requires_grad_(False)
    weights = library.PerGroup(32)
    config = library.Int8DynamicActivationIntxWeightConfig(weight_dtype=vars(torch)["int4"], weight_granularity=weights)
    library.quantize_(module, config)
    return torch.export.export(module, STEPS[0])


def _steps() -> list[tuple[Tensor, ...]]:
    generator = torch.Generator().manual_seed(7)
    return [(torch.randn(1, 1, _WIDTH, generator=generator), torch.tensor([place])) for place in (0, 1, 2, 1, 3)]


STEPS = _steps()
"""Calls in order, one of which writes a row again."""
