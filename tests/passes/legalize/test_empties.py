"""Results without elements, for which kernels divide by zero, reject the call or forget a size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.models.case import Function
from tests.official.oracle import OfficialRuntime
from tests.passes.legalize.legalized import assert_runs

from exirkit import to_edge

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


@pytest.mark.executorch
def test_products_that_share_nothing(official_runtime: OfficialRuntime) -> None:
    def model(x: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
        nothing, less = x[:, :0], x[:0]
        return (
            (x.exp() + 1).tanh() @ x.T,
            nothing @ less,
            torch.bmm(nothing[None], less[None]),
            torch.addmm(bias, nothing, less, beta=0.5),
            torch.addmm(bias * torch.nan, nothing, less, beta=0),
            torch.nn.functional.linear(nothing, x.T[:, :0], bias),
            torch.nn.functional.linear(nothing, x.T[:, :0]),
        )

    # The second call finds what the first has left in memory.
    assert_runs(model, [[torch.randn(3, 3), torch.randn(3)]] * 2, official_runtime, levels=(0, 1, 2))
    exported = torch.export.export(Function(lambda x: x[:, :0] @ x[:0]), (torch.ones(3, 3),))
    graph = to_edge(exported).to_executorch().exported_program().graph
    assert not [node for node in graph.nodes if ".mm." in str(node.target)]
