"""Models whose tensors XNNPACK has to lay out in both orders: what makes, keeps, and asks for channels last."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export


class Around(nn.Module):
    """Something between convolutions that have as many channels as it gives and takes.

    Args:
        between: What is computed of the result of the first convolution.
        channels: How many it gives.
        last: Whether a convolution follows.
    """

    def __init__(self, between: Callable[[Tensor], Any], channels: int = 8, *, last: bool = True) -> None:
        super().__init__()
        self.between = between
        self.first = nn.Conv2d(4, 8, 3, padding=1)
        self.second = nn.Conv2d(channels, 4, 1) if last else None

    def forward(self, x: Tensor) -> Any:
        y = self.between(self.first(x))
        return self.second(y) if self.second is not None else y


class Stored(nn.Module):
    """Stored images that are added where tensors lie in either order, one of them in both."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.table = nn.Parameter(torch.randn(1, 8, 6, 7))
        self.rows = nn.Parameter(torch.randn(7))

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x) + self.table) * self.rows
        return y.reshape(2, -1) + self.table.reshape(1, -1)


class Squeeze(nn.Module):
    """Channels that are scaled by their means."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down, self.up = nn.Conv2d(4, 8, 3), nn.Conv2d(8, 2, 1), nn.Conv2d(2, 8, 1)
        self.top = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        y = y * torch.sigmoid(self.up(torch.relu(self.down(y.mean((2, 3), keepdim=True)))))
        return self.top(y.mean((2, 3)))


class Sequences(nn.Module):
    """Convolutions over sequences, transposed ones and such of several groups among them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(4, 8, 3, stride=2, padding=1, dilation=2)
        self.second = nn.ConvTranspose1d(8, 6, 3, stride=2)
        self.third = nn.Conv1d(6, 6, 3, groups=6, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        return self.third(torch.nn.functional.relu6(self.second(y))) * 2.0


class Padded(nn.Module):
    """Zeros around values, once around some that are used beside it as well."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 8, 3), nn.Conv2d(8, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(torch.nn.functional.pad(x, (1, 1, 2, 0))))
        return self.second(torch.nn.functional.pad(y, (0, 1, 0, 1))) + y[:, :4, 1:, 1:]


class Pair(nn.Module):
    """Two branches of which one is permuted and comes together with the other as an image."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.top = nn.Conv2d(4, 8, 1), nn.Conv2d(4, 8, 1), nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        left, right = self.left(x), torch.tanh(self.right(x))
        both = torch.cat([left, right], -3)
        return self.top(both), right.permute(0, 2, 3, 1) @ left.permute(0, 2, 1, 3)


_IMAGE = (2, 4, 6, 7)


def _chunked(y: Tensor) -> Tensor:
    a, b = y.chunk(2, 1)
    return torch.cat([b, a[:, :, :, :]], 1) + y


def _cut(y: Tensor) -> Tensor:
    return y[:, :, 1:4, 2:5] * 2.0


def _largest(y: Tensor) -> Any:
    values, places = torch.max(y, 2, keepdim=True)
    return values * 2.0, places


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "softmax-of-rows": lambda: (Around(lambda y: torch.softmax(y, -1)), (torch.randn(_IMAGE),)),
    "softmax-of-channels": lambda: (Around(lambda y: torch.softmax(y, 1)), (torch.randn(_IMAGE),)),
    "softmax-of-columns": lambda: (Around(lambda y: torch.softmax(y, 2)), (torch.randn(_IMAGE),)),
    "largest-and-places": lambda: (Around(_largest, last=False), (torch.randn(_IMAGE),)),
    "largest": lambda: (Around(lambda y: torch.amax(y, (2, 3), keepdim=True)), (torch.randn(_IMAGE),)),
    "chunked": lambda: (Around(_chunked), (torch.randn(_IMAGE),)),
    "cut": lambda: (Around(_cut), (torch.randn(_IMAGE),)),
    "prelu": lambda: (Around(nn.PReLU(8)), (torch.randn(_IMAGE),)),
    "pooled": lambda: (Around(nn.MaxPool2d(2)), (torch.randn(_IMAGE),)),
    "wide-window": lambda: (Around(nn.MaxPool2d(13, 1, 6)), (torch.randn(1, 4, 16, 16),)),
    "wide-sequences": lambda: (
        nn.Sequential(nn.Conv1d(4, 8, 40, padding=64, groups=2), nn.ReLU(), nn.Conv1d(8, 4, 3, dilation=48)),
        (torch.randn(1, 4, 64),),
    ),
    "averaged": lambda: (Around(nn.AvgPool2d(2, count_include_pad=False)), (torch.randn(_IMAGE),)),
    "resized": lambda: (Around(nn.UpsamplingBilinear2d(scale_factor=2)), (torch.randn(_IMAGE),)),
    "gelu": lambda: (Around(nn.GELU()), (torch.randn(_IMAGE),)),
    "view-in-between": lambda: (Around(lambda y: y.reshape(2, 8, 7, 6)), (torch.randn(_IMAGE),)),
    "permuted": lambda: (Around(lambda y: y.permute(0, 1, 3, 2)), (torch.randn(_IMAGE),)),
    "transposed-to-channels": lambda: (Around(lambda y: y.permute(0, 3, 1, 2), 7), (torch.randn(_IMAGE),)),
    "norm-of-channels": lambda: (
        Around(lambda y: torch.nn.functional.layer_norm(y.permute(0, 2, 3, 1), (8,)).permute(0, 3, 1, 2)),
        (torch.randn(_IMAGE),),
    ),
    "input-channels-last": lambda: (
        Around(torch.relu, last=False),
        (torch.randn(_IMAGE).to(memory_format=torch.channels_last),),
    ),
    "made-channels-last": lambda: (
        Around(lambda y: torch.relu(y.to(memory_format=torch.channels_last)), last=False),
        (torch.randn(_IMAGE),),
    ),
    "there-and-back": lambda: (
        Around(lambda y: (y.to(memory_format=torch.channels_last) + 1.0).contiguous()),
        (torch.randn(_IMAGE),),
    ),
    "one-pixel": lambda: (Around(torch.relu), (torch.randn(2, 4, 1, 1),)),
    "one-channel": lambda: (
        nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU(), nn.Conv2d(1, 2, 1)),
        (torch.randn(2, 1, 5, 6),),
    ),
    "stored": lambda: (Stored(), (torch.randn(_IMAGE),)),
    "squeeze": lambda: (Squeeze(), (torch.randn(_IMAGE),)),
    "sequences": lambda: (Sequences(), (torch.randn(2, 4, 33),)),
    "padded": lambda: (Padded(), (torch.randn(_IMAGE),)),
    "pair": lambda: (Pair(), (torch.randn(_IMAGE),)),
    "half-sequences": lambda: (Sequences().half(), (torch.randn(2, 4, 33).half(),)),
}
"""Models with their inputs by name."""

QUANTIZED = ("chunked", "cut", "pooled", "squeeze", "sequences", "padded", "pair", "view-in-between", "there-and-back")
"""Names of those that are quantised as well."""
DYNAMIC = ("pooled", "squeeze")
"""Names of those whose convolutions quantise their inputs as they come."""
ANY_BATCH = ("pooled", "squeeze", "chunked")
"""Names of those that are exported for any batch as well."""

CASES = (
    *MODELS,
    *(f"{name}/static" for name in QUANTIZED),
    *(f"{name}/dynamic" for name in DYNAMIC),
    *(f"{name}/any-batch" for name in ANY_BATCH),
)


def exported(case: str) -> tuple[ExportedProgram, tuple[Tensor, ...]]:
    """Return a program and its inputs.

    Args:
        case: One of `CASES`.
    """
    torch.manual_seed(5)
    name, _, way = case.partition("/")
    module, inputs = MODELS[name]()
    module = module.eval()
    if way == "any-batch":
        sizes: Any = tuple({0: Dim("batch", min=1, max=8)} for _ in inputs)
        return export(module, inputs, dynamic_shapes=sizes, strict=False), inputs
    if way:
        module = _quantized(module, inputs, is_dynamic=way == "dynamic")
    return export(module, inputs, strict=False), inputs


def _quantized(module: nn.Module, inputs: tuple[Tensor, ...], *, is_dynamic: bool) -> nn.Module:
    quantizers = importlib.import_module("executorch.backends.xnnpack.quantizer.xnnpack_quantizer")
    steps = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
    quantizer = quantizers.XNNPACKQuantizer().set_global(
        quantizers.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=is_dynamic)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = steps.prepare_pt2e(export(module, inputs, strict=False).module(), quantizer)
        prepared(*inputs)
        converted: nn.Module = steps.convert_pt2e(prepared)
    return converted
