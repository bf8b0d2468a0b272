"""Small models as `convert_pt2e` leaves them for XNNPACK, with the operators that its quantizer knows."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from tests.official.quantization.quantizer_cache import cache_quantizer_patterns
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export


class Residual(nn.Module):
    """A sum, a product and a concatenation of quantised values, and one value with three users."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        z = self.second(y)
        return torch.cat([y + z, y * z], 1)


class Towers(nn.Module):
    """Two linears beside each other that share an input, and a third behind one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.top = nn.Linear(5, 6), nn.Linear(5, 7, bias=False), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.top(torch.relu(self.left(x))), self.right(x)


class Narrow(nn.Module):
    """A linear that is written down here, so that diagnostics name this line."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, width))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight)


@dataclass(frozen=True)
class Quantized:
    """A model to be quantised.

    Attributes:
        make: Makes the model.
        size: Of its input.
        config: Choices of `get_symmetric_quantization_config`.
        batch: Sizes that the first dimension may have; None if it has one size.
        folded: Whether integers are stored, and not floats that each call quantizes.
    """

    make: Callable[[], nn.Module]
    size: tuple[int, ...]
    config: dict[str, bool | int]
    batch: tuple[int, int] | None = None
    folded: bool = True


TENSOR: dict[str, bool | int] = {"is_per_channel": False}
CHANNEL: dict[str, bool | int] = {"is_per_channel": True}
DYNAMIC: dict[str, bool | int] = {"is_per_channel": True, "is_dynamic": True}
FOUR_BITS: dict[str, bool | int] = {**DYNAMIC, "weight_qmin": -8, "weight_qmax": 7}


def _convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1, groups=8),
        nn.Hardtanh(0.0, 6.0),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(7, 9), nn.ReLU(), nn.Linear(9, 4))


QUANTIZED = {
    "linear-per-tensor": Quantized(_perceptron, (3, 7), TENSOR),
    "linear-per-channel": Quantized(_perceptron, (3, 7), CHANNEL, batch=(2, 8)),
    "linear-dynamic": Quantized(_perceptron, (3, 7), DYNAMIC),
    "linear-of-rank-3": Quantized(_perceptron, (2, 3, 7), CHANNEL),
    "linears-beside-each-other": Quantized(Towers, (2, 5), CHANNEL),
    "linears-beside-each-other-dynamic": Quantized(Towers, (2, 5), DYNAMIC),
    "convolutions-per-tensor": Quantized(_convolutions, (1, 3, 8, 8), TENSOR),
    "convolutions-per-channel": Quantized(_convolutions, (1, 3, 8, 8), CHANNEL),
    "residual": Quantized(Residual, (1, 4, 5, 5), CHANNEL),
    "convolution-1d": Quantized(lambda: nn.Conv1d(4, 6, 3, padding=1), (1, 4, 9), CHANNEL),
    "convolution-transposed": Quantized(lambda: nn.ConvTranspose2d(4, 6, 3, stride=2), (1, 4, 5, 5), TENSOR),
}

# The official chain computes their weights in front of its delegates, in kernels that end the process.
UNFOLDED = {
    f"{name}, float weights": replace(QUANTIZED[name], folded=False) for name in ("linear-per-channel", "residual")
}


# Weights of four bits, and the diagnostic of those with which XNNPACK computes wrong numbers, or nothing.
INT4 = {
    "odd-width": Quantized(lambda: Narrow(7), (2, 7), FOUR_BITS),
    "odd-width-any-batch": Quantized(lambda: nn.Linear(7, 4, bias=False), (3, 7), FOUR_BITS, batch=(2, 8)),
    "odd-width-one-row": Quantized(lambda: nn.Linear(7, 4), (1, 7), FOUR_BITS),
    "odd-width-static": Quantized(lambda: nn.Linear(7, 4), (3, 7), {**FOUR_BITS, "is_dynamic": False}),
    "even-width": Quantized(lambda: nn.Linear(8, 4), (3, 8), FOUR_BITS),
    "even-width-static": Quantized(lambda: nn.Linear(8, 4), (3, 8), {**FOUR_BITS, "is_dynamic": False}),
    "convolution": Quantized(lambda: nn.Conv2d(8, 4, 1), (1, 8, 3, 3), FOUR_BITS),
    "convolution-of-windows": Quantized(lambda: nn.Conv2d(4, 4, 3), (1, 4, 5, 5), {**FOUR_BITS, "is_dynamic": False}),
}
WRONG_INT4 = {
    "odd-width": "EK755",
    "odd-width-any-batch": "EK755",
    "odd-width-static": "EK755",
    "convolution": "EK756",
    "convolution-of-windows": "EK756",
}


# Of torchao's `quantize_`: the weights are objects of tensor subclasses.
# Floats that are computed of them are not kept in memory if they are large.
WIDE = "wide-"
SOURCE = ("int4-weights-of-torchao", "int8-weights-of-torchao", "int8-of-torchao", "int8-affine-weights-of-torchao")


def _by_torchao(name: str) -> tuple[ExportedProgram, tuple[Tensor, ...]]:
    torch.manual_seed(11)
    library = importlib.import_module("torchao.quantization")
    groups, axis = library.PerGroup(32), library.PerAxis(0)
    configs = (
        library.Int8DynamicActivationIntxWeightConfig(weight_dtype=vars(torch)["int4"], weight_granularity=groups),
        library.Int8WeightOnlyConfig(),
        library.Int8DynamicActivationInt8WeightConfig(),
        library.IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=axis),
    )
    config = configs[SOURCE.index(name.removeprefix(WIDE))]
    width = 32 if name in SOURCE else 2048
    model = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 5)).eval().requires_grad_(False)
    library.quantize_(model, config)
    example = (torch.randn(3, 64),)
    return export(model, example), (torch.randn(3, 64),)


def quantized(name: str) -> tuple[ExportedProgram, tuple[Tensor, ...]]:
    """Return a calibrated and converted model, and inputs that it was not calibrated with."""
    if name.removeprefix(WIDE) in SOURCE:
        return _by_torchao(name)
    chosen = {**QUANTIZED, **INT4, **UNFOLDED}[name]
    torch.manual_seed(11)
    model = chosen.make().eval().requires_grad_(False)
    example = (torch.randn(chosen.size),)
    sizes = None if chosen.batch is None else ({0: Dim("batch", min=chosen.batch[0], max=chosen.batch[1])},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pt2e = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
        xnnpack = importlib.import_module("executorch.backends.xnnpack.quantizer.xnnpack_quantizer")
        cache_quantizer_patterns()
        quantizer = xnnpack.XNNPACKQuantizer()
        quantizer.set_global(xnnpack.get_symmetric_quantization_config(**chosen.config))
        prepared = pt2e.prepare_pt2e(export(model, example, dynamic_shapes=sizes).module(), quantizer)
        for _ in range(4):
            prepared(torch.randn(chosen.size))
        program = export(pt2e.convert_pt2e(prepared, fold_quantize=chosen.folded), example, dynamic_shapes=sizes)
    return program, (torch.randn(chosen.size),)
