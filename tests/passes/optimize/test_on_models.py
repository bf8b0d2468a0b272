"""Folding and merging on models of the zoo: the answers stay those of eager PyTorch, on both runtimes."""

from __future__ import annotations

import pytest
import torch
from tests.models.agreement import assert_agree
from tests.models.zoo import CASES
from tests.official.oracle import OfficialRuntime

from exirkit import DtypePolicy, FoldConstants, LegalizeDtypes, MergeEqualNodes, to_edge
from exirkit.runtime_ref import Runtime

# Each has something of its own: constants as results, state, symbolic sizes, dtypes, nothing to compute with.
NAMES = (
    "mlp",
    "returns_input_and_constant",
    "two_stateful_methods",
    "cross_attention",
    "kv_cache",
    "buffers_swapped",
    "buffer_written_twice",
    "moving_average",
    "dynamic_positions",
    "constant_storages",
    "float16",
    "zero_sized",
)
WIDE = DtypePolicy.model_validate(
    {
        "entries": [
            {"op": name, "compute_in": {"float32": "float64"}}
            for name in ("unary_pointwise", "pointwise", "reductions", "aten.cat.default", "aten._softmax.default")
        ]
    }
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_answers_on_our_interpreter(name: str) -> None:
    case = CASES[name]
    built = case.make()
    edge = to_edge(built.export())
    for passes in ([MergeEqualNodes(), FoldConstants()], [FoldConstants(None)], [LegalizeDtypes(WIDE)]):
        data = edge.transform(passes).to_executorch().buffer
        for method_name, method in built.methods.items():
            loaded = Runtime.get().load_program(data).load_method(method_name)
            answers = [list(loaded.execute(call.leaves())) for call in method.calls]
            assert_agree(answers, method.expected(), case.tolerance)


class Twice(torch.nn.Module):
    """Returns constants, one value twice, and counts."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.count.add_(1)
        scaled = self.linear.weight.t() * 2
        return torch.relu(self.linear(x)), torch.relu(self.linear(x)), scaled, self.count + x.sum()


@pytest.mark.executorch
def test_answers_on_the_official_runtime(official_runtime: OfficialRuntime) -> None:
    model, x = Twice().eval(), torch.randn(2, 4)
    merge, fold = MergeEqualNodes(), FoldConstants(byte_budget=48)
    edge = to_edge(torch.export.export(model, (x,), strict=False))
    data = bytes(edge.transform([merge, fold]).to_executorch().buffer)
    assert merge.report is not None
    assert fold.report is not None
    assert merge.report.calls
    assert len(fold.report.folded) == 2
    calls = [[x], [-x]]
    expected = [[one.detach().clone() for one in model(*call)] for call in calls]
    for got, wanted in zip(official_runtime.run(data, calls).unwrap(), expected, strict=True):
        torch.testing.assert_close(list(got), wanted)
