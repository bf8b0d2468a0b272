"""Arguments that kernels reject, and that mean what others mean."""

from __future__ import annotations

import pytest
import torch
from tests.official.oracle import OfficialRuntime
from tests.passes.legalize.legalized import assert_runs


@pytest.mark.executorch
def test_arguments(official_runtime: OfficialRuntime) -> None:
    def model(number: torch.Tensor, x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            number.sum(0),
            number.sum(-1, keepdim=True),
            number.mean(0),
            number.long().sum(0),
            number.cumsum(0),
            number.cumsum(-1, dtype=torch.float64),
            torch.nn.functional.normalize(number, dim=0),
            torch.gather(x, 1, index),
            torch.gather(x, -1, index.long()),
        )

    index = torch.tensor([[0, 2, 1], [1, 1, 0]], dtype=torch.int32)
    assert_runs(model, [[torch.tensor(-2.5), torch.randn(2, 3), index]], official_runtime, levels=(0, 2))
