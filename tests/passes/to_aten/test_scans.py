"""Running products, extremes and sums, modes, histograms, inverses and samples of volumes, on both runtimes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.models.case import Tolerance
from tests.official.oracle import OfficialRuntime
from tests.passes.legalize.legalized import NEAR, assert_runs
from torch.export import Dim

from exirkit import DiagnosticError, to_edge

INFINITE, UNKNOWN = float("inf"), float("nan")
SCANS: dict[str, Callable[..., Any]] = {
    "cumprod": torch.cumprod,
    "cummax": torch.cummax,
    "cummin": torch.cummin,
    "logcumsumexp": torch.logcumsumexp,
}


def drawn(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Return few different numbers, so that many are equal."""
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.rand(sizes, generator=generator) > 0.5
    return torch.randint(-3, 4, sizes, generator=generator).to(dtype) * (0.75 if dtype.is_floating_point else 1)


@pytest.mark.executorch
@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize(
    ("sizes", "dim"), [((7,), 0), ((2, 16, 3), 1), ((5, 1), -1), ((0, 3), 0), ((3, 0), 0), ((), 0)]
)
def test_scans(name: str, sizes: tuple[int, ...], dim: int, official_runtime: OfficialRuntime) -> None:
    assert_runs(lambda x: SCANS[name](x, dim), [[drawn(*sizes)]], official_runtime)


@pytest.mark.executorch
@pytest.mark.parametrize("name", SCANS)
def test_scans_of_what_is_not_finite(name: str, official_runtime: OfficialRuntime) -> None:
    rows = [
        [1.0, INFINITE, -INFINITE, 2.0, INFINITE],
        [-INFINITE, -INFINITE, 0.5, -INFINITE, 0.5],
        [2.0, UNKNOWN, 3.0, UNKNOWN, INFINITE],
        [0.0, -0.0, 0.0, -1.0, -0.0],
    ]
    assert_runs(lambda x: SCANS[name](x, 1), [[torch.tensor(rows)]], official_runtime)


@pytest.mark.executorch
@pytest.mark.parametrize("name", ["cumprod", "cummax", "cummin"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_scans_of_integers(name: str, dtype: torch.dtype, official_runtime: OfficialRuntime) -> None:
    x = drawn(4, 11, dtype=dtype)
    assert_runs(lambda x: SCANS[name](x, 1), [[x]], official_runtime)


@pytest.mark.executorch
@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize("dim", [0, 1])
def test_scans_of_sizes_that_vary(name: str, dim: int, official_runtime: OfficialRuntime) -> None:
    calls = [[drawn(size, 6, seed=size)] for size in (4, 9, 1, 12)]
    shapes = ({0: Dim("rows", min=1, max=12)},)
    assert_runs(lambda x: SCANS[name](x, dim), calls, official_runtime, dynamic_shapes=shapes)


def test_a_product_in_another_dtype() -> None:
    x = drawn(3, 5, dtype=torch.int32)
    assert_runs(lambda x: torch.cumprod(x, 0, dtype=torch.float32), [[x]])


@pytest.mark.executorch
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize(("sizes", "dim"), [((9,), 0), ((3, 13), 1), ((13, 2), 0), ((4, 1), 1)])
def test_modes(dtype: torch.dtype, sizes: tuple[int, ...], dim: int, official_runtime: OfficialRuntime) -> None:
    def both(x: torch.Tensor) -> Any:
        return torch.mode(x, dim), torch.mode(x, dim, keepdim=True)[0]

    assert_runs(both, [[drawn(*sizes, dtype=dtype, seed=seed)] for seed in range(3)], official_runtime)


HISTOGRAMS: dict[str, Callable[..., Any]] = {
    "range": lambda x: torch.histogram(x, 5, range=(-2.0, 2.0)),
    "no range": lambda x: torch.histogram(x, 4),
    "density": lambda x: torch.histogram(x, 4, range=(-3.0, 3.0), density=True),
    "weights": lambda x: torch.histogram(x, 6, range=(-1.0, 2.0), weight=x * 2),
    "one end": lambda x: torch.histogram(x, 3, range=(0.0, 0.0)),
    "bins": lambda x: torch.histogram(x, torch.tensor([-2.0, -0.75, 0.0, 1.5, 1.75])),
}


@pytest.mark.executorch
@pytest.mark.parametrize("name", HISTOGRAMS)
def test_histograms(name: str, official_runtime: OfficialRuntime) -> None:
    calls = [[drawn(5, 7, seed=seed)] for seed in range(2)]
    assert_runs(HISTOGRAMS[name], calls, official_runtime)


@pytest.mark.executorch
@pytest.mark.parametrize("sizes", [(1, 1), (4, 4), (2, 3, 5, 5), (7, 7)])
def test_inverses(sizes: tuple[int, ...], official_runtime: OfficialRuntime) -> None:
    torch.manual_seed(len(sizes))
    # Rows change places: the first pivot of one of them is zero.
    calls = [[torch.randn(sizes) + 2 * torch.eye(sizes[-1]).flip(0)] for _ in range(2)]
    assert_runs(
        lambda x: torch.linalg.inv(x),
        calls,
        official_runtime,
        tolerance=Tolerance(1e-3, 1e-4, "another order of steps"),
    )


def test_the_row_without_pivot_is_told() -> None:
    singular = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.0, 1.0, 0.0]])
    assert_runs(lambda x: torch.linalg.inv_ex(x)[1], [[singular], [torch.eye(3)]])


@pytest.mark.executorch
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
def test_samples_of_volumes(mode: str, padding: str, align: bool, official_runtime: OfficialRuntime) -> None:
    torch.manual_seed(0)
    volume, grid = torch.randn(2, 3, 4, 5, 2), torch.randn(2, 3, 2, 4, 3) * 1.5

    def sampled(volume: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.grid_sample(volume, grid, mode, padding, align_corners=align)

    assert_runs(sampled, [[volume, grid]], official_runtime, tolerance=NEAR)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.linalg.inv(x.expand(20, 20)),
        lambda x: torch.unique(x, dim=0),
        lambda x: torch.cumprod(x.to(torch.complex64), 0),
    ],
)
def test_what_is_left_has_a_way_out(function: Callable[..., Any]) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return function(x)

    exported = torch.export.export(Model(), (torch.randn(20, 1),))
    with pytest.raises(DiagnosticError) as caught:
        to_edge(exported)
    (finding,) = [one for one in caught.value.diagnostics if one.code == "EK301"]
    assert finding.hint is not None
    assert len(finding.notes) > 1 or "complex" in finding.message, "no advice"
