"""Sums with a factor for the second summand, which the kernel gives to a first one of a single element."""

from __future__ import annotations

import pytest
import torch
from tests.official.oracle import OfficialRuntime
from tests.passes.legalize.legalized import assert_runs
from torch.export import Dim


@pytest.mark.executorch
def test_the_second_summand_is_multiplied(official_runtime: OfficialRuntime) -> None:
    def model(x: torch.Tensor, y: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.add(x, y, alpha=3),
            torch.add(x.reshape(()), y, alpha=-0.5),
            torch.add(x.reshape(1, 1), y, alpha=3),
            torch.add(y, x, alpha=3),
            torch.sub(x, y, alpha=3),
            torch.add(x, y[:1], alpha=3),
            torch.add(n, y.long(), alpha=2),
            torch.add(n.int(), y > 0, alpha=2),
            torch.cond(x.sum() > 0, lambda a, b: torch.add(a, b, alpha=3), lambda a, b: a + b, (x, y)),
        )

    calls = [[torch.tensor([2.5]), torch.randn(size), torch.tensor([7])] for size in (7, 2, 5)]
    shapes = (None, {0: Dim("rows", max=9)}, None)
    assert_runs(model, calls, official_runtime, dynamic_shapes=shapes, levels=(0, 1, 2))
    assert_runs(model, calls[:1], official_runtime, levels=(0, 2))
