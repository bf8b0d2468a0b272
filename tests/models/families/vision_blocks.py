"""Image models written out here: MobileNet v3, U-Nets, a grouped residual network, a super-resolution head."""

from __future__ import annotations

import torch
from tests.models.case import DEEP, SHALLOW, Built, Call, Family, enliven, single
from torch import nn
from torch.nn import functional

family = Family("vision_blocks")


class SqueezeExcite(nn.Module):
    """Scales channels by a gate computed from their means (hard sigmoid, as MobileNet v3 has it)."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.expand = nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate = self.expand(torch.relu(self.reduce(self.pool(x))))
        return x * functional.hardsigmoid(gate)


def conv_norm(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Return a convolution without bias and its normalisation."""
    conv = nn.Conv2d(inputs, outputs, size, stride, (size - 1) // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs, eps=1e-3))


class InvertedResidual(nn.Module):
    """Expand, filter each channel, gate, project; add the input if the shapes allow it."""

    def __init__(
        self, inputs: int, expanded: int, outputs: int, size: int, stride: int, gated: bool, hard: bool
    ) -> None:
        super().__init__()
        activation: type[nn.Module] = nn.Hardswish if hard else nn.ReLU
        layers: list[nn.Module] = []
        if expanded != inputs:
            layers += [conv_norm(inputs, expanded, 1), activation()]
        layers += [conv_norm(expanded, expanded, size, stride, groups=expanded), activation()]
        if gated:
            layers.append(SqueezeExcite(expanded, max(expanded // 4, 8)))
        layers.append(conv_norm(expanded, outputs, 1))
        self.block = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.block(x)
        return x + y if self.residual else y


class MobileNetV3(nn.Module):
    """The small variant with a third of its width and one block of each kind dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            conv_norm(3, 8, 3, stride=2),
            nn.Hardswish(),
            InvertedResidual(8, 8, 8, 3, 2, gated=True, hard=False),
            InvertedResidual(8, 24, 12, 3, 2, gated=False, hard=False),
            InvertedResidual(12, 28, 12, 3, 1, gated=False, hard=False),
            InvertedResidual(12, 32, 16, 5, 2, gated=True, hard=True),
            InvertedResidual(16, 64, 16, 5, 1, gated=True, hard=True),
            conv_norm(16, 96, 1),
            nn.Hardswish(),
        )
        self.classifier = nn.Sequential(nn.Linear(96, 128), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(128, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.adaptive_avg_pool2d(self.features(x), 1)
        logits: torch.Tensor = self.classifier(torch.flatten(y, 1))
        return logits


@family.case(DEEP)
def mobilenet_v3() -> Built:
    return single(enliven(MobileNetV3()), *(Call(torch.randn(1, 3, 64, 64)) for _ in range(2)))


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    """Return the pair of convolutions between two levels of a U-Net."""
    first, second = conv_norm(inputs, outputs, 3), conv_norm(outputs, outputs, 3)
    return nn.Sequential(first, nn.ReLU(inplace=True), second, nn.ReLU(inplace=True))


class UNet(nn.Module):
    """Three levels with skip connections, growing back by transposed convolution or by interpolation."""

    def __init__(self, interpolation: str | None) -> None:
        super().__init__()
        self.interpolation = interpolation
        self.down = nn.ModuleList([double_conv(3, 8), double_conv(8, 16)])
        self.bottom = double_conv(16, 32)
        grow = [(32, 16), (16, 8)]
        if interpolation is None:
            self.grow = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in grow)
        else:
            self.grow = nn.ModuleList(nn.Conv2d(a, b, 1) for a, b in grow)
        self.up = nn.ModuleList([double_conv(32, 16), double_conv(16, 8)])
        self.head = nn.Conv2d(8, 2, 1)

    def enlarge(self, x: torch.Tensor, level: int) -> torch.Tensor:
        if self.interpolation == "bilinear":
            x = functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        elif self.interpolation:
            x = functional.interpolate(x, scale_factor=2, mode=self.interpolation)
        y: torch.Tensor = self.grow[level](x)
        return y

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips: list[torch.Tensor] = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for level, block in enumerate(self.up):
            x = block(torch.cat([skips.pop(), self.enlarge(x, level)], dim=1))
        logits: torch.Tensor = self.head(x)
        return logits


@family.case(DEEP, "transposed")
def unet_transposed() -> Built:
    return single(enliven(UNet(None)), *(Call(torch.randn(1, 3, 32, 32)) for _ in range(2)))


@family.case(DEEP, "resize")
def unet_bilinear() -> Built:
    return single(enliven(UNet("bilinear")), Call(torch.randn(1, 3, 32, 32)))


@family.case(DEEP, "resize")
def unet_nearest() -> Built:
    return single(enliven(UNet("nearest")), Call(torch.randn(1, 3, 32, 32)))


class GroupedResidual(nn.Module):
    """A ResNeXt block behind a stem, with group normalisation and a dilated branch."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(4, 16) for _ in range(3))
        self.reduce = nn.Conv2d(16, 16, 1, bias=False)
        self.grouped = nn.Conv2d(16, 16, 3, padding=1, groups=8, bias=False)
        self.dilated = nn.Conv2d(16, 16, 3, padding=2, dilation=2, bias=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.silu(self.norms[0](self.stem(x)))
        y = functional.leaky_relu(self.norms[1](self.reduce(x)), 0.1)
        y = self.norms[2](self.grouped(y))
        y = functional.elu(x + y + self.dilated(x))
        logits: torch.Tensor = self.head(y.mean((-2, -1)))
        return logits


@family.case(DEEP)
def resnext_group_norm() -> Built:
    return single(enliven(GroupedResidual()), Call(torch.randn(2, 3, 24, 24)))


class SuperResolution(nn.Module):
    """Sub-pixel convolution: channels become pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, 5, padding=2)
        self.second = nn.Conv2d(16, 8, 3, padding=1, padding_mode="reflect")
        self.last = nn.Conv2d(8, 9, 3, padding=1, padding_mode="replicate")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.second(torch.tanh(self.first(x))))
        return functional.pixel_shuffle(self.last(y), 3)


@family.case(SHALLOW)
def super_resolution() -> Built:
    return single(enliven(SuperResolution()), Call(torch.randn(1, 1, 12, 10)))
