"""Operators and shapes that real models use rarely and compilers get wrong often."""

from __future__ import annotations

import torch
from tests.models.case import DEEP, EXACT, ROUNDING, SHALLOW, Built, Call, Family, Function, single
from torch import nn
from torch.nn import functional

family = Family("odd")


def masks(x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Choose by masks, against numbers and against tensors of fewer dimensions."""
    return (
        torch.where(mask, x, -x),
        x.masked_fill(mask, float("-inf")).amax(-1),
        torch.where(x > 0, x, x.new_zeros(())),
        x.masked_fill(mask[:1], 2.0),
        torch.tril(x) + torch.triu(x, diagonal=1),
    )


@family.case(EXACT, "boolean")
def where_and_masked_fill() -> Built:
    mask = torch.tensor([[True, False, False], [False, False, True], [True, True, False]])
    return single(Function(masks), Call(torch.randn(3, 3), mask), Call(torch.randn(3, 3), ~mask))


def products(x: torch.Tensor, y: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Multiply matrices in many spellings."""
    return (
        torch.einsum("bij,bjk->bik", x, y),
        torch.einsum("bij,bkj->bik", x, x),
        torch.einsum("bij,j->bi", x, v),
        torch.bmm(x, y),
        torch.matmul(x, v),
        torch.baddbmm(torch.ones(2, 3, 5), x, y, beta=0.5, alpha=2.0),
        torch.addmm(v, x[0], torch.eye(4)),
        x.transpose(1, 2) @ x,
        torch.dot(v, v),
        torch.outer(v, v),
        x @ y[0],
    )


@family.case(SHALLOW, "matmul")
def einsum_and_bmm() -> Built:
    return single(Function(products), Call(torch.randn(2, 3, 4), torch.randn(2, 4, 5), torch.randn(4)))


class Norms(nn.Module):
    """Every normalisation layer, with and without weights."""

    def __init__(self) -> None:
        super().__init__()
        self.group = nn.GroupNorm(2, 6)
        self.plain_group = nn.GroupNorm(3, 6, affine=False)
        self.layer = nn.LayerNorm((4, 4))
        self.plain_layer = nn.LayerNorm(4, elementwise_affine=False)
        self.batch = nn.BatchNorm2d(6, affine=False)
        self.instance = nn.InstanceNorm2d(6, affine=True)
        self.rms = nn.RMSNorm(4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        answers: list[torch.Tensor] = [layer(x) for layer in self.children()]
        return *answers, functional.normalize(x, dim=1), torch.std(x, dim=1), torch.var(x, dim=(2, 3), correction=0)


@family.case(SHALLOW, "normalisation")
def norms() -> Built:
    return single(Norms(), Call(torch.randn(2, 6, 4, 4)))


class Convolutions(nn.Module):
    """Strides, dilations, groups, transposition and padding of convolutions in one and two dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Conv1d(4, 6, 3, stride=2, padding=1)
        self.line_grouped = nn.Conv1d(4, 8, 3, dilation=2, groups=2, bias=False)
        self.line_transposed = nn.ConvTranspose1d(4, 3, 4, stride=2, padding=1)
        self.depthwise = nn.Conv2d(4, 8, 3, padding="same", groups=4)
        self.dilated = nn.Conv2d(4, 2, 3, dilation=(2, 1), stride=(1, 2), padding=(2, 0))
        self.circular = nn.Conv2d(4, 2, 3, padding=1, padding_mode="circular")
        self.transposed = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.uneven = nn.Conv2d(4, 3, (1, 5))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        line = x[:, :, 0]
        lines = [self.line(line), self.line_grouped(line), self.line_transposed(line)]
        planes = [self.depthwise(x), self.dilated(x), self.circular(x), self.transposed(x), self.uneven(x)]
        return *lines, *planes


@family.case(SHALLOW, "convolution")
def convolutions() -> Built:
    return single(Convolutions(), *(Call(torch.randn(2, 4, 5, 7)) for _ in range(2)))


class Volume(nn.Module):
    """A convolution over three dimensions, written with planes as channels: portable kernels take two at most."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 2, 3, 3, 3) * 0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, depth, height, width = x.shape
        windows = torch.stack([x[:, :, first : first + 3].transpose(1, 2) for first in range(depth - 2)], dim=1)
        windows = windows.reshape(-1, 3 * channels, height, width)
        kernel = self.weight.permute(0, 2, 1, 3, 4).reshape(4, 3 * channels, 3, 3)
        planes = functional.conv2d(windows, kernel)
        return planes.view(batch, depth - 2, 4, height - 2, width - 2).transpose(1, 2)


@family.case(SHALLOW, "convolution")
def conv3d_by_planes() -> Built:
    return single(Volume(), Call(torch.randn(1, 2, 5, 4, 4)))


def pools(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Pool in every way."""
    return (
        functional.max_pool2d(x, 2),
        functional.max_pool2d(x, 3, stride=2, padding=1, ceil_mode=True),
        functional.max_pool2d(x, 2, dilation=2),
        *functional.max_pool2d(x, 2, return_indices=True),
        functional.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False),
        functional.avg_pool2d(x, (2, 3), ceil_mode=True),
        functional.adaptive_avg_pool2d(x, (2, 3)),
        functional.adaptive_avg_pool2d(x, 1),
        functional.max_pool1d(x[0], 2),
        functional.avg_pool1d(x[0], 3, padding=1),
        functional.interpolate(x, size=(4, 9), mode="bilinear", align_corners=True),
        functional.interpolate(x, scale_factor=(2.0, 1.5), mode="nearest"),
    )


@family.case(ROUNDING, "pooling")
def pooling() -> Built:
    return single(Function(pools), Call(torch.randn(1, 2, 6, 7)))


def activations(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Apply every usual activation."""
    return (
        functional.relu6(x),
        functional.hardswish(x),
        functional.hardsigmoid(x),
        functional.hardtanh(x, -0.5, 0.75),
        functional.leaky_relu(x, 0.2),
        functional.elu(x, 1.5),
        functional.selu(x),
        functional.gelu(x, approximate="tanh"),
        functional.silu(x),
        functional.mish(x),
        functional.softplus(x),
        functional.prelu(x, torch.tensor([0.3])),
        functional.glu(x),
        functional.softsign(x),
        functional.log_softmax(x, 0),
        functional.softmin(x, -1),
        torch.logsumexp(x, 1),
    )


@family.case(SHALLOW, "activation")
def activation_functions() -> Built:
    return single(Function(activations), Call(torch.randn(3, 4) * 3))


def elementary(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Apply elementary functions."""
    positive = x.abs() + 0.1
    return (
        torch.exp(x), torch.expm1(x), torch.log(positive), torch.log1p(positive), torch.sqrt(positive),
        torch.rsqrt(positive), torch.reciprocal(positive), torch.sin(x), torch.cos(x), torch.tan(x),
        torch.atan2(x, positive), torch.tanh(x), torch.erf(x), torch.floor(x), torch.ceil(x), torch.round(x),
        torch.trunc(x), torch.frac(x), torch.fmod(x, 0.7), torch.remainder(x, 0.7), torch.pow(positive, x),
        torch.log2(positive), torch.sinh(x), torch.asinh(x), torch.sigmoid(x).logit(),
    )  # fmt: skip


@family.case(DEEP, "elementwise")
def elementary_functions() -> Built:
    return single(Function(elementary), Call(torch.randn(2, 5)), Call(torch.randn(2, 5) * 2))


def reductions(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Reduce over no, one, several and all dimensions, with and without keeping them."""
    return (
        x.sum(), x.sum(dim=(0, 2)), x.mean(-1, keepdim=True), x.mean(), x.amax((0, 1)), x.amin(2), x.prod(1),
        x.argmax(), x.argmax(1), x.argmin(-1, keepdim=True), *x.max(dim=1), *x.min(dim=2, keepdim=True),
        x.max(), x.var(dim=1), x.std(), (x > 0).any(), (x > -9).all(), x.norm(dim=-1), x.sum(()), x.cumsum(1),
    )  # fmt: skip


@family.case(SHALLOW, "reduction")
def reduction_forms() -> Built:
    return single(Function(reductions), Call(torch.randn(2, 3, 4)), Call(torch.randn(2, 3, 4)))


class ChannelsLast(nn.Module):
    """Takes a picture in channels-last order, works on it in that order and changes to the usual one."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(x) + x
        z: torch.Tensor = self.conv(y.contiguous())
        return z, y * y


@family.case(SHALLOW, "layout")
def channels_last_input() -> Built:
    def call() -> Call:
        return Call(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))

    return single(ChannelsLast(), call(), call())


def convert_layout(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Convert to channels-last and back."""
    last = x.to(memory_format=torch.channels_last)
    return (last + last).contiguous(memory_format=torch.contiguous_format), last.clone(), last.abs()


@family.case(EXACT, "layout")
def layout_changed_inside() -> Built:
    return single(Function(convert_layout), Call(torch.randn(2, 3, 4, 5)))
