"""Programs whose quantized values have parameters that cannot be right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.diagnostics.programs import call_of, edge, exported
from tests.diagnostics.provocation import provokes
from torch.export import ExportedProgram

from exirkit import Diagnostic
from exirkit.ir import register_quantized_decomposed
from exirkit.verifiers import check_quantization

register_quantized_decomposed()
quantized = torch.ops.quantized_decomposed
X = torch.randn(2, 3)
WEIGHT = torch.ones(4, 3, dtype=torch.int8)


def there_and_back(x: torch.Tensor) -> torch.Tensor:
    narrow = quantized.quantize_per_tensor(x, 0.5, 3, -128, 127, torch.int8)
    return quantized.dequantize_per_tensor(narrow, 0.5, 3, -128, 127, torch.int8)


class Linear(torch.nn.Module):
    """A linear layer of dequantized operands."""

    weight: torch.Tensor
    scales: torch.Tensor
    zeros: torch.Tensor
    bias: torch.Tensor

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.register_buffer("weight", torch.ones(4, width, dtype=torch.int8))
        self.register_buffer("scales", torch.full((4,), 0.25))
        self.register_buffer("zeros", torch.zeros(4, dtype=torch.int64))
        self.register_buffer("bias", torch.ones(4, dtype=torch.int32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = quantized.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -127, 127, torch.int8)
        bias = quantized.dequantize_per_tensor(self.bias, 0.125, 0, -(2**31), 2**31 - 1, torch.int32)
        return torch.nn.functional.linear(there_and_back(x), weight, bias)


def changed(model: Any, name: str, place: int, value: Any, x: torch.Tensor = X) -> list[Diagnostic]:
    """Return what is found if one argument of one call is another."""
    program = edge(exported(model, x))
    set_argument(program, name, place, value)
    return check_quantization(program)


def set_argument(program: ExportedProgram, name: str, place: int, value: Any) -> None:
    node = call_of(program, name)
    node.args = (*node.args[:place], value, *node.args[place + 1 :])


def one_of(code: str, findings: list[Diagnostic]) -> list[Diagnostic]:
    """Return the findings of one code: a change may break several promises."""
    return [one for one in findings if one.code == code]


CHANGES: dict[str, tuple[Callable[[], Any], str, int, Any]] = {
    "EK362": (lambda: there_and_back, "quantize_per_tensor", 1, 0.0),
    "EK363": (lambda: there_and_back, "quantize_per_tensor", 4, -128),
    "EK364": (lambda: there_and_back, "quantize_per_tensor", 4, 255),
    "EK365": (lambda: there_and_back, "quantize_per_tensor", 2, 200),
    "EK367": (Linear, "dequantize_per_channel", 3, 2),
    "EK368": (Linear, "dequantize_per_channel", 3, 1),
    "EK369": (lambda: there_and_back, "dequantize_per_tensor", 5, torch.uint8),
    "EK372": (lambda: there_and_back, "dequantize_per_tensor", 1, 0.25),
}


def provoke(code: str) -> None:
    """Register one of the changes."""
    make, name, place, value = CHANGES[code]

    @provokes(code)
    def provoked(_: Path) -> list[Diagnostic]:
        return one_of(code, changed(make(), name, place, value))


for _code in CHANGES:
    provoke(_code)


@provokes("EK366")
def zero_points_of_floats(_: Path) -> list[Diagnostic]:
    program = edge(exported(Linear(), X))
    node = call_of(program, "dequantize_per_channel")
    node.args = (*node.args[:2], node.args[1], *node.args[3:])
    return one_of("EK366", check_quantization(program))


@provokes("EK370")
def positions_that_are_quantized(_: Path) -> list[Diagnostic]:
    program = edge(exported(there_and_back, X))
    source = call_of(program, "quantize_per_tensor").all_input_nodes[0]
    source.meta["val"] = source.meta["val"].to(torch.int64)
    return one_of("EK370", check_quantization(program))


@provokes("EK371")
def weight_beyond_its_limits(_: Path) -> list[Diagnostic]:
    model = Linear()
    model.weight[0, 0] = -128
    return one_of("EK371", check_quantization(edge(exported(model, X))))


@provokes("EK373")
def bias_of_another_scale(_: Path) -> list[Diagnostic]:
    model = Linear()
    model.scales.fill_(0.5)
    return one_of("EK373", check_quantization(edge(exported(model, X))))


@provokes("EK374")
def sums_beyond_32_bits(_: Path) -> list[Diagnostic]:
    return one_of("EK374", check_quantization(edge(exported(Linear(140_000), torch.randn(1, 140_000)))))


@provokes("EK375")
def rescaled_by_a_view(_: Path) -> list[Diagnostic]:
    def model(x: torch.Tensor) -> torch.Tensor:
        wide = quantized.dequantize_per_tensor(x, 0.5, 3, -128, 127, torch.int8).reshape(-1)
        return quantized.quantize_per_tensor(wide, 0.25, 3, -128, 127, torch.int8)

    return check_quantization(edge(exported(model, WEIGHT)))
