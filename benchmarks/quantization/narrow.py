"""Benchmark models at a fraction of their width, for comparisons that lower each of them many times."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import transformers

from benchmarks.models import Benchmark, LastHidden


def distilbert_narrow() -> Benchmark:
    """Return two layers of 64 channels."""
    config = transformers.DistilBertConfig(
        vocab_size=100, dim=64, n_heads=2, hidden_dim=128, n_layers=2, max_position_embeddings=32
    )
    return Benchmark(LastHidden(transformers.DistilBertModel(config)), (torch.randint(0, 100, (1, 16)),))


def mobilenet_v2_narrow() -> Benchmark:
    """Return all blocks with a quarter of their channels."""
    config = transformers.MobileNetV2Config(image_size=64, depth_multiplier=0.25, finegrained_output=False)
    return Benchmark(LastHidden(transformers.MobileNetV2Model(config)), (torch.randn(1, 3, 64, 64),))


NARROW: Mapping[str, Callable[[], Benchmark]] = {one.__name__: one for one in (distilbert_narrow, mobilenet_v2_narrow)}
"""By name."""


def build(name: str) -> Benchmark:
    """Build one with weights that depend on nothing but its name."""
    torch.manual_seed(20260101)
    return NARROW[name]()
