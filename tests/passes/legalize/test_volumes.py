"""Convolution and pooling over three dims, computed plane by plane."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from tests.official.oracle import OfficialRuntime
from tests.passes.legalize.legalized import assert_runs
from torch import nn
from torch.export import Dim

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.ir import ModelError


def drawn(seed: int, *, return_indices: bool = False) -> tuple[nn.Module, torch.Tensor]:
    """Return a convolution, a transposed one, or a pooling with random options, and an input."""
    draw = random.Random(seed)
    torch.manual_seed(seed)

    def three(*values: int) -> tuple[int, int, int]:
        return (draw.choice(values), draw.choice(values), draw.choice(values))

    kernel, stride, dilation, is_ceil = three(1, 2, 3), three(1, 2, 3), three(1, 2), draw.random() < 0.5
    narrow: Any = tuple(draw.choice([0, size // 2]) for size in kernel)
    groups = draw.choice([1, 1, 2, 4])
    channels = groups * draw.choice([1, 2])
    out = groups * draw.choice([1, 3])
    kind = seed % 4
    x = torch.randn(draw.choice([1, 2]), channels, draw.choice([5, 6]), 7, 6)
    if kind == 0:
        return nn.Conv3d(channels, out, kernel, stride, three(0, 1, 2), dilation, groups, draw.random() < 0.5), x
    if kind == 1:
        extra: Any = tuple(draw.randrange(size) for size in stride)
        return nn.ConvTranspose3d(channels, out, kernel, stride, three(0, 1), extra, groups, draw.random() < 0.5), x
    if kind == 2:
        return nn.MaxPool3d(kernel, stride, narrow, dilation, return_indices, is_ceil), x
    divisor, counted = draw.choice([None, None, 5]), draw.random() < 0.5
    return nn.AvgPool3d(kernel, stride, narrow, is_ceil, counted, divisor), x


@pytest.mark.executorch
@pytest.mark.parametrize("seed", range(24))
def test_random_options(seed: int, official_runtime: OfficialRuntime) -> None:
    module, x = drawn(seed)
    assert_runs(module, [[x]], official_runtime)


@pytest.mark.executorch
@pytest.mark.parametrize("seed", range(12))
def test_places_of_the_largest(seed: int, official_runtime: OfficialRuntime) -> None:
    """Of equal elements and infinite ones, wherever windows lie in the padding."""
    module, x = drawn(4 * seed + 2, return_indices=True)
    numbers = torch.tensor([-torch.inf, -torch.inf, -1.0, 0.0, -0.0, 2.0][: 3 + seed % 4])
    calls = [[numbers[torch.randint(0, len(numbers), x.shape)]] for _ in range(3)]
    assert_runs(module, [*calls, [torch.full_like(x, -torch.inf)]], official_runtime)
    assert_runs(lambda x: module(x[0].nan_to_num().to(torch.int64))[1], calls, official_runtime)
    # Kernels of the official runtime pass over what is not a number.
    numbers[0] = torch.nan
    assert_runs(module, [[numbers[torch.randint(0, len(numbers), x.shape)]] for _ in range(3)])


@pytest.mark.executorch
def test_all_levels(official_runtime: OfficialRuntime) -> None:
    model = nn.Sequential(
        nn.Conv3d(3, 4, (3, 2, 3), 2, 1),
        nn.BatchNorm3d(4),
        nn.ReLU(),
        nn.MaxPool3d(2, 1),
        nn.AdaptiveAvgPool3d((2, 3, 1)),
    )
    assert_runs(model, [[torch.randn(2, 3, 6, 7, 5)]], official_runtime, levels=(0, 1, 2))


@pytest.mark.executorch
@pytest.mark.parametrize("counts_padding", [False, True])
def test_means_of_integers_are_rounded_towards_zero(counts_padding: bool, official_runtime: OfficialRuntime) -> None:
    x = torch.randint(-(2**62), 2**62, (2, 3, 5, 6, 7)) >> torch.randint(0, 62, (2, 3, 5, 6, 7))
    assert_runs(nn.AvgPool3d(3, 2, 1, True, counts_padding), [[x // 27]], official_runtime)


@pytest.mark.parametrize("module", [nn.Conv3d(2, 3, 3), nn.MaxPool3d(2), nn.AdaptiveAvgPool3d((4, 3, 2))])
def test_without_batch(module: nn.Module) -> None:
    assert_runs(module, [[torch.randn(2, 7, 6, 5)]])


@pytest.mark.parametrize(("dim", "sizes"), [(0, (2, 1, 5)), (2, (5, 3, 9, 8)), (4, (5, 3, 8))])
def test_one_size_that_varies(dim: int, sizes: tuple[int, ...]) -> None:
    calls = [[torch.randn(*(size if place == dim else 4 for place in range(5)))] for size in sizes]
    shapes = ({dim: Dim("n", min=1 if dim == 0 else 3, max=9)},)
    assert_runs(nn.Conv3d(4, 3, 3, 2, 1), calls, dynamic_shapes=shapes)


def test_two_sizes_that_vary_are_rejected() -> None:
    x = torch.randn(2, 2, 5, 5, 5)
    shapes = ({0: Dim("n", max=9), 2: Dim("d", min=4, max=9)},)
    program = to_edge(torch.export.export(nn.Conv3d(2, 3, 3), (x,), dynamic_shapes=shapes))
    with pytest.raises(ModelError, match="EK437"):
        program.to_executorch()
    # Other runtimes may have the kernel.
    program.to_executorch(ExecutorchBackendConfig(target="any"))
