"""The model of `exirkit demo`: MobileNetV2 in plain torch, with weights from a seed, so that nothing is downloaded."""

from __future__ import annotations

import torch
from torch import Tensor, nn

IMAGE_PIXELS = 224
CLASSES = 1000

# Expansion of channels, channels out, number of blocks, stride of the first one.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def _convolution(channels: int, out: int, kernel: int, *, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(out)]


class InvertedResidual(nn.Module):
    """Widen, convolve each channel on its own, narrow; add the input where the shape allows it."""

    def __init__(self, channels: int, out: int, *, stride: int, expansion: int) -> None:
        super().__init__()
        width = channels * expansion
        layers = [*_convolution(channels, width, 1), nn.ReLU6()] if expansion != 1 else []
        layers += [*_convolution(width, width, 3, stride=stride, groups=width), nn.ReLU6()]
        self.layers = nn.Sequential(*layers, *_convolution(width, out, 1))
        self.adds = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, channels, height, width]` to `[batch, out, height / stride, width / stride]`."""
        return x + self.layers(x) if self.adds else self.layers(x)  # type: ignore[no-any-return]


class MobileNetV2(nn.Module):
    """The image classifier of 2018, at full width: 3.5 million parameters.

    Source: Sandler et al., MobileNetV2: Inverted Residuals and Linear Bottlenecks, table 2.
    """

    def __init__(self) -> None:
        super().__init__()
        layers = [*_convolution(3, 32, 3, stride=2), nn.ReLU6()]
        channels = 32
        for expansion, out, blocks, stride in _STAGES:
            for block in range(blocks):
                layers.append(InvertedResidual(channels, out, stride=stride if block == 0 else 1, expansion=expansion))
                channels = out
        self.features = nn.Sequential(*layers, *_convolution(channels, 1280, 1), nn.ReLU6())
        self.classifier = nn.Linear(1280, CLASSES)

    def forward(self, image: Tensor) -> Tensor:
        """Map images `[batch, 3, height, width]` to logits `[batch, 1000]`."""
        return self.classifier(self.features(image).mean((2, 3)))  # type: ignore[no-any-return]


def make_demo() -> tuple[MobileNetV2, tuple[Tensor]]:
    """Return the model, ready for inference, and one image; both are the same every time."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = MobileNetV2().eval().requires_grad_(False)
        for module in model.modules():
            # With torch's own defaults signals die out in the depth, and every normalisation is an identity.
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
            elif isinstance(module, nn.BatchNorm2d):
                for statistic, least, most in ((module.running_mean, -0.1, 0.1), (module.running_var, 1.0, 2.0)):
                    assert statistic is not None, "normalisation with statistics"
                    statistic.uniform_(least, most)
        return model, (torch.randn(1, 3, IMAGE_PIXELS, IMAGE_PIXELS),)
