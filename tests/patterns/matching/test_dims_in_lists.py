"""Dims in lists are compared modulo the rank, as single dims are."""

from __future__ import annotations

import pytest
import torch

from exirkit import ApplyRules, to_edge
from exirkit.patterns import parse_book

BOOK = """
rulebook: 1
rules:
- id: simplify.mean
  vars: {x: "f32 [*B, N]"}
  gen: "N >= 1"
  match: return aten.mean.dim(x, DIMS, True)
  replace: return aten.mul.Scalar(aten.sum.dim_IntList(x, DIMS, True), 1.0 / N)
  equiv: {rtol: 1.0e-5, atol: 1.0e-5}
"""


class Mean(torch.nn.Module):
    """A mean over dims that keeps them."""

    def __init__(self, dims: list[int]) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(self.dims, keepdim=True)


@pytest.mark.parametrize(
    ("written", "called", "count"),
    [
        ("[-1]", [-1], 1),
        ("[-1]", [2], 1),
        ("[-1]", [1], 0),
        ("[2]", [-1], 1),
        ("[-1, 0]", [2, 0], 1),
        ("[-1]", [-1, 0], 0),
    ],
)
def test_dims_of_a_mean(written: str, called: list[int], count: int) -> None:
    rules = ApplyRules(parse_book(BOOK.replace("DIMS", written), "mean.yaml"))
    to_edge(torch.export.export(Mean(called), (torch.randn(3, 4, 5),))).transform([rules])
    assert rules.report is not None
    assert rules.report.applied["simplify.mean"] == count
