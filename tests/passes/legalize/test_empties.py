"""Results without elements, for which kernels divide by zero, reject the call or forget a size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.official.oracle import OfficialRuntime
from tests.passes.legalize.legalized import assert_runs

CASES: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...]]] = {
    "log_softmax of no classes": (lambda x: torch.log_softmax(x, 1), (3, 0)),
    "log_softmax of no rows": (lambda x: torch.log_softmax(x, 0), (0, 3)),
    "log_softmax between": (lambda x: torch.log_softmax(x, 1) + 1, (2, 3, 0)),
    "cat along another dim": (lambda x: torch.cat([x, x], 0), (2, 0)),
    "cat with nothing": (lambda x: torch.cat([x, x.new_zeros([0])], 0), (2, 0)),
    "amax along a dim": (lambda x: x.amax(1), (0, 3)),
    "adaptive pooling of no channels": (lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 2), (1, 0, 4, 4)),
    "index_select": (lambda x: x.index_select(0, torch.tensor([1, 0])), (2, 0)),
    "a sum of nothing is left": (lambda x: (x * 2).sum(1) + 1, (3, 0)),
    "channels last": (lambda x: (x.to(memory_format=torch.channels_last) + 1).sum((2, 3)), (2, 3, 0, 4)),
}


@pytest.mark.executorch
@pytest.mark.parametrize("name", CASES)
def test_results_without_elements(name: str, official_runtime: OfficialRuntime) -> None:
    function, sizes = CASES[name]
    assert_runs(function, [[torch.randn(sizes)]], official_runtime, levels=(0, 1, 2))
