"""Models that are measured compute something."""

from __future__ import annotations

import pytest
import torch
from benchmarks.latency_worker import difference
from benchmarks.models import build


@pytest.mark.parametrize("name", ["mobilenet_v2", "efficientnet_b0", "lstm"])
def test_results_do_not_fade_away(name: str) -> None:
    benchmark = build(name)
    with torch.no_grad():
        result = benchmark.module.eval()(*benchmark.inputs)
    assert result.std() > 0.01


def test_zeros_are_not_compared() -> None:
    zeros = [torch.zeros(3)]
    with pytest.raises(SystemExit, match="nothing to compare"):
        difference(zeros, zeros)
