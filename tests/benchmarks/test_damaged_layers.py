"""A damaged layer of a trained model is the first that the report names."""

from __future__ import annotations

import pytest
import torch
from benchmarks.quantization.damage import damaged, is_named_first
from benchmarks.quantization.trained import KINDS, trained

from exirkit.passes import quantize_program


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("name", list(KINDS))
def test_the_damaged_layer_is_ranked_first(name: str, per_channel: bool) -> None:
    one = trained(name)
    assert one.accuracy(one.model) > 0.9
    samples = one.samples(8, seed=5)
    plain = torch.export.export(one.model, samples[0])
    quantized = quantize_program(plain, "xnnpack", samples, {"per_channel": per_channel})
    missed = [seed for seed in range(10) if not is_named_first(plain, damaged(quantized, seed), samples[:4])]
    assert missed == []
