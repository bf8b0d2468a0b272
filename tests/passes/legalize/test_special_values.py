"""NaN, zero divisors and variances of too few elements, where kernels compute otherwise than PyTorch."""

from __future__ import annotations

import pytest
import torch
from tests.models.case import EXACT
from tests.official.oracle import OfficialRuntime
from tests.passes.legalize.legalized import assert_runs
from torch.export import Dim

from exirkit import to_edge

INF, NAN = float("inf"), float("nan")
SPECIAL = torch.tensor([NAN, -INF, -2.5, -0.0, 0.0, 1.0, 7.25, INF])


@pytest.mark.executorch
def test_special_values(official_runtime: OfficialRuntime) -> None:
    def model(x: torch.Tensor, y: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.sign(x),
            torch.sign(n),
            x // y,
            y // x[:, None],
            x // 2.5,
            x // 0.0,
            x // n,
            n // y,
            torch.div(x, y, rounding_mode="floor"),
            torch.div(x, y, rounding_mode="trunc"),
            torch.cond(n.sum() > 0, lambda a, b: (torch.sign(a), a // b), lambda a, b: (a, b), (x, y))[0],
        )

    calls = [[SPECIAL[:count], SPECIAL.flip(0)[:count], torch.arange(8)[:count] - 3] for count in (8, 3, 1)]
    rows = {0: Dim("rows", max=9)}
    assert_runs(model, calls[:2], official_runtime, dynamic_shapes=(rows, rows, rows), tolerance=EXACT, levels=(0, 2))
    assert_runs(model, calls[2:], official_runtime, tolerance=EXACT)


@pytest.mark.executorch
def test_addends_times_zero_and_variances_of_few(official_runtime: OfficialRuntime) -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        addend = torch.tensor([NAN, INF, 1.0])
        return (
            torch.addmm(addend, x, x.T[:, :3], beta=0),
            torch.addmm(addend, x, x.T[:, :3], beta=0, alpha=2.5),
            torch.addmm(addend[2:], x, x.T[:, :3], beta=0.5),
            torch.var(x, 1, correction=5),
            torch.var(x, correction=99, keepdim=True),
            torch.var(x * 0, 1, correction=3),
            torch.var(x, 1, correction=1),
            torch.std(x, (0, 1), correction=15),
            torch.std(x, 0, correction=4),
        )

    assert_runs(model, [[torch.randn(4, 3)]], official_runtime, levels=(0, 2))


def test_what_is_stored_and_not_zero_stays_a_quotient() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x // 2.5, x // torch.tensor([1.0, 3.0])

    program = to_edge(torch.export.export(Model(), (torch.ones(2),))).to_executorch().exported_program()
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert not [one for one in targets if "where" in str(one)]
