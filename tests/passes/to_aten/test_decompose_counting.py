"""Counts whose number data decide, on both runtimes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.models.case import EXACT, Function
from tests.official.oracle import OfficialRuntime
from tests.passes.legalize.legalized import assert_runs
from torch._higher_order_ops.associative_scan import associative_scan

from exirkit import to_edge
from exirkit.ir import ModelError
from exirkit.runtime_ref import Runtime

CALLS = [torch.tensor([3, 1, 2, 3, 3, 7, 1]), torch.zeros(7, dtype=torch.int64), torch.arange(7)]


@pytest.mark.executorch
@pytest.mark.parametrize(
    "model",
    [
        lambda x: torch.unique(x, return_counts=True, return_inverse=True),
        lambda x: torch.unique(x, return_counts=True)[1],
        lambda x: torch.unique_consecutive(x, return_counts=True, return_inverse=True),
        lambda x: torch.unique_consecutive(x.view(7, 1), return_counts=True)[1],
        lambda x: torch.ops.aten._unique2(x),
        lambda x: torch.ops.aten.unique_consecutive(x, True),
        lambda x: torch.ops.aten.unique_consecutive(x, False, True)[1:],
    ],
    ids=["all", "counts", "consecutive", "counts of runs", "not asked for", "inverse of runs", "without inverse"],
)
def test_counts_of_unique_values(model: Callable[..., Any], official_runtime: OfficialRuntime) -> None:
    assert_runs(model, [[x] for x in CALLS], official_runtime, tolerance=EXACT)


@pytest.mark.executorch
@pytest.mark.parametrize("least", [0, 5, 12])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_bincount(least: int, dtype: torch.dtype, official_runtime: OfficialRuntime) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        counts = torch.bincount(x, minlength=least)
        torch._check(counts.shape[0] <= 20)
        return counts * 2

    assert_runs(model, [[x.to(dtype)] for x in CALLS], official_runtime, tolerance=EXACT)


@pytest.mark.executorch
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_bincount_with_weights(dtype: torch.dtype, official_runtime: OfficialRuntime) -> None:
    def model(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        counts = torch.bincount(x, weights, minlength=5)
        torch._check(counts.shape[0] <= 20)
        return counts

    weights = torch.arange(7).to(dtype) - 2
    assert_runs(model, [[x, weights] for x in CALLS], official_runtime, tolerance=EXACT)


@pytest.mark.executorch
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(reverse: bool, official_runtime: OfficialRuntime) -> None:
    def combine(a: Any, b: Any) -> Any:
        return a[0] * b[0], a[1] * b[0] + b[1]

    def model(x: torch.Tensor, y: torch.Tensor) -> Any:
        return associative_scan(combine, (x, y), 1, reverse=reverse, combine_mode="generic")

    assert_runs(model, [[torch.randn(3, 7), torch.randn(3, 7)]], official_runtime)


@pytest.mark.executorch
@pytest.mark.parametrize("sizes", [(1, 5), (5,), (4, 5), (3, 1, 5)], ids=str)
def test_masks_that_repeat_what_they_select_from(sizes: tuple[int, ...], official_runtime: OfficialRuntime) -> None:
    """More elements may be found than there are, which torch takes for the most."""
    found = [[torch.arange(math.prod(sizes)).view(sizes), torch.arange(20).view(4, 5) < most] for most in (20, 0, 7)]
    assert_runs(torch.masked_select, found, official_runtime, tolerance=EXACT)


def test_masks_that_repeat_sizes_that_vary() -> None:
    rows = torch.export.Dim("rows", min=2, max=9)
    inputs = (torch.arange(5), torch.arange(20).view(4, 5) < 9)
    program = torch.export.export(
        Function(torch.masked_select), inputs, dynamic_shapes=(({}, {0: rows}),), strict=False
    )
    made = to_edge(program).to_executorch()
    assert to_edge(program).to_executorch().buffer == made.buffer, "lowering changes what it is given"
    method = Runtime.get().load_program(made.buffer).load_method("forward")
    for count in (2, 4, 9):
        mask = torch.ones(count, 5, dtype=torch.bool)
        assert torch.equal(method.execute([inputs[0], mask])[0], inputs[0].repeat(count))


def test_programs_with_masks_that_repeat_are_lowered_twice_alike() -> None:
    inputs = (torch.rand(1, 5), torch.ones(4, 5, dtype=torch.bool))
    program = torch.export.export(Function(torch.masked_select), inputs, strict=False)
    files = [to_edge(program).to_executorch().buffer for _ in range(2)]
    assert files[0] == files[1]
    for file in files:
        found = Runtime.get().load_program(file).load_method("forward").execute(list(inputs))
        assert torch.equal(found[0], inputs[0].repeat(4, 1).flatten())


def test_vmap() -> None:
    def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.dot(x, y) * x

    assert_runs(torch.vmap(scaled), [[torch.randn(4, 3), torch.randn(4, 3)]])


def test_what_is_left_says_what_to_do() -> None:
    program = torch.export.export(Function(lambda x: torch.unique(x, dim=0)), (torch.ones(2, 2),), strict=False)
    with pytest.raises(ModelError, match="without `dim` is decomposed"):
        to_edge(program)
