"""Models whose graphs branch, so that the order of their instructions is open: after well-known ones, but smaller."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from .models import Benchmark


class Inception(nn.Module):
    """Four branches of different width, joined; three times."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, 2, 1)
        self.blocks = nn.ModuleList(nn.ModuleList(self.branches(channels)) for _ in range(3))
        self.head = nn.Linear(channels, 10)

    def branches(self, channels: int) -> list[nn.Module]:
        quarter = channels // 4
        return [
            nn.Conv2d(channels, quarter, 1),
            nn.Sequential(nn.Conv2d(channels, 2 * channels, 1), nn.ReLU(), nn.Conv2d(2 * channels, quarter, 3, 1, 1)),
            nn.Sequential(nn.Conv2d(channels, channels, 1), nn.ReLU(), nn.Conv2d(channels, quarter, 5, 1, 2)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(channels, quarter, 1)),
        ]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            assert isinstance(block, nn.ModuleList)
            opened = [branch(x) for branch in block]
            x = torch.cat([torch.relu(one) for one in opened], 1)
        return self.head(x.mean((2, 3)))


class MixedHeads(nn.Module):
    """A segmentation head over features of two resolutions, weighted by a pooled branch, as in LR-ASPP."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Conv2d(3, 32, 3, 2, 1)
        self.high = nn.Sequential(nn.Conv2d(32, 96, 3, 2, 1), nn.ReLU(), nn.Conv2d(96, 96, 3, 2, 1))
        self.wide = nn.Sequential(nn.Conv2d(96, 128, 1), nn.BatchNorm2d(128), nn.ReLU())
        self.scale = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(96, 128, 1), nn.Sigmoid())
        self.low_classes, self.high_classes = nn.Conv2d(32, 21, 1), nn.Conv2d(128, 21, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = torch.relu(self.low(x))
        low_classes = self.low_classes(low)
        high = self.high(low)
        mixed = self.wide(high) * self.scale(high)
        upper = functional.interpolate(self.high_classes(mixed), size=low.shape[-2:], mode="nearest")
        return low_classes + upper


class Dense(nn.Module):
    """Every layer reads all before it."""

    def __init__(self, layers: int = 6, growth: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, growth, 3, 2, 1)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(growth * count), nn.ReLU(), nn.Conv2d(growth * count, 4 * growth, 1),
                nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, 1, 1),
            )
            for count in range(1, layers + 1)
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1).mean((2, 3))


class Towers(nn.Module):
    """Views of one picture through towers of their own, all started before any is finished."""

    def __init__(self, towers: int = 6) -> None:
        super().__init__()
        self.first = nn.ModuleList(nn.Conv2d(3, 32, 3, 1, 1) for _ in range(towers))
        self.second = nn.ModuleList(nn.Conv2d(32, 8, 3, 4, 1) for _ in range(towers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        opened = [torch.relu(layer(x)) for layer in self.first]
        return torch.cat([layer(one).flatten(1) for layer, one in zip(self.second, opened, strict=True)], 1)


def inception() -> Benchmark:
    return Benchmark(Inception(), (torch.randn(1, 3, 64, 64),))


def mixed_heads() -> Benchmark:
    return Benchmark(MixedHeads(), (torch.randn(1, 3, 128, 128),))


def dense() -> Benchmark:
    return Benchmark(Dense(), (torch.randn(1, 3, 64, 64),))


def towers() -> Benchmark:
    return Benchmark(Towers(), (torch.randn(1, 3, 32, 32),))


BRANCHING_MODELS: dict[str, Callable[[], Benchmark]] = {
    builder.__name__: builder for builder in (inception, mixed_heads, dense, towers)
}


def build_branching(name: str) -> Benchmark:
    """Build one of the models with weights that depend on nothing but its name."""
    torch.manual_seed(20260102)
    return BRANCHING_MODELS[name]()
