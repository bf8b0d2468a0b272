"""Wrong parameters of quantized programs: each mutant of a right program must be found.

The list was written before it was first run. All weights are square, so that no length gives a wrong axis away.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from exirkit.ir import register_quantized_decomposed
from exirkit.verifiers import check_quantization

register_quantized_decomposed()
Q = torch.ops.quantized_decomposed
INT32 = torch.iinfo(torch.int32)
XS, YS = 0.05, 0.1
CONV = torch.tensor([0.02, 0.01, 0.005, 0.04])
LINEAR = torch.tensor([0.03, 0.02, 0.01, 0.06])
ZEROS = torch.zeros(4, dtype=torch.int64)

RIGHT: dict[str, Any] = {
    "input quantize": (XS, 3, -128, 127, torch.int8),
    "input dequantize": (XS, 3, -128, 127, torch.int8),
    "conv weight": (CONV, ZEROS, 0, -127, 127, torch.int8),
    "conv bias": (CONV * XS, ZEROS, 0, INT32.min, INT32.max, torch.int32),
    "conv quantize": (YS, -7, -128, 127, torch.int8),
    "conv dequantize": (YS, -7, -128, 127, torch.int8),
    "view quantize": (YS, -7, -128, 127, torch.int8),
    "view dequantize": (YS, -7, -128, 127, torch.int8),
    "linear weight": (LINEAR, ZEROS, 0, -127, 127, torch.int8),
    "linear bias": (LINEAR * YS, ZEROS, 0, INT32.min, INT32.max, torch.int32),
    "linear quantize": (0.2, 0, -128, 127, torch.int8),
    "linear dequantize": (0.2, 0, -128, 127, torch.int8),
}
SCALE, ZERO, AXIS, LOW, HIGH = 0, 1, 2, 2, 3

Change = tuple[str, int, Any]
MUTANTS: dict[str, tuple[Change, ...]] = {
    # Scales
    "scale of zero": (("input quantize", SCALE, 0.0), ("input dequantize", SCALE, 0.0)),
    "negative scale": (("conv quantize", SCALE, -YS), ("conv dequantize", SCALE, -YS)),
    "scale that is NaN": (("linear dequantize", SCALE, float("nan")),),
    "infinite scale": (("linear quantize", SCALE, float("inf")),),
    "scale without a reciprocal": (("linear quantize", SCALE, 1e-39),),
    "one channel of scale zero": (("conv weight", SCALE, CONV * torch.tensor([1, 1, 0, 1])),),
    "one channel of a negative scale": (("linear weight", SCALE, LINEAR * torch.tensor([1, -1, 1, 1])),),
    "too few scales": (("conv weight", SCALE, CONV[:3]),),
    "too many scales": (("linear weight", SCALE, torch.cat([LINEAR, LINEAR])),),
    "another scale when read": (("input dequantize", SCALE, 2 * XS),),
    "scale that differs in the fifth digit": (("linear dequantize", SCALE, 0.2 * (1 + 1e-5)),),
    "another scale behind a view": (("view quantize", SCALE, 0.2), ("view dequantize", SCALE, 0.2)),
    "scales of two channels exchanged": (("conv weight", SCALE, CONV[[1, 0, 2, 3]]),),
    "scales of one channel doubled": (("linear weight", SCALE, LINEAR * torch.tensor([1, 1, 2, 1])),),
    "scale of the input doubled": (("input quantize", SCALE, 2 * XS), ("input dequantize", SCALE, 2 * XS)),
    # Zero points
    "zero point above int8": (("conv quantize", ZERO, 200), ("conv dequantize", ZERO, 200)),
    "zero point below the limits": (("linear quantize", ZERO, -129), ("linear dequantize", ZERO, -129)),
    "another zero point when read": (("input dequantize", ZERO, 4),),
    "zero point behind a view": (("view quantize", ZERO, 0), ("view dequantize", ZERO, 0)),
    "one channel with a zero point outside": (("conv weight", ZERO, ZEROS + torch.tensor([0, 0, 128, 0])),),
    "zero point of a symmetric weight": (("linear weight", ZERO, ZEROS + torch.tensor([0, 3, 0, 0])),),
    "too few zero points": (("conv weight", ZERO, ZEROS[:2]),),
    "zero points that are floats": (("linear weight", ZERO, ZEROS.float()),),
    # Axes
    "axis that does not exist": (("conv weight", AXIS, 4),),
    "axis of the input channels": (("conv weight", AXIS, 1),),
    "axis of the columns": (("linear weight", AXIS, 1),),
    "axis of the bias": (("linear bias", AXIS, 1),),
    "axis of the kernel": (("conv weight", AXIS, 2),),
    # Biases
    "bias with the scale of the weight": (("conv bias", SCALE, CONV),),
    "bias with the scale of the output": (("linear bias", SCALE, torch.full((4,), 0.2)),),
    "bias with scales of other channels": (("conv bias", SCALE, (CONV * XS)[[3, 2, 1, 0]]),),
    "bias with a zero point": (("conv bias", ZERO, ZEROS + 5),),
    "bias with too few scales": (("linear bias", SCALE, (LINEAR * YS)[:1].expand(2).contiguous()),),
    "bias said to be of int8": (("linear bias", 5, torch.int8),),
    # Limits
    "empty limits": (("conv quantize", LOW, 127), ("conv quantize", HIGH, -128)),
    "limits of uint8 for int8": (("linear quantize", LOW, 0), ("linear quantize", HIGH, 255)),
}


class Quantized(torch.nn.Module):
    def __init__(self, parameters: dict[str, Any]) -> None:
        super().__init__()
        self.parameters_of = {}
        for name, values in parameters.items():
            names = []
            for place, value in enumerate(values):
                if isinstance(value, torch.Tensor):
                    # Parameters of one call are not those of another.
                    self.register_buffer(f"{name.replace(' ', '_')}_{place}", value.clone())
                    names.append(f"{name.replace(' ', '_')}_{place}")
                else:
                    names.append(value)
            self.parameters_of[name] = names
        generator = torch.Generator().manual_seed(1)
        for name, sizes in (("conv", (4, 4, 3, 3)), ("linear", (4, 4))):
            self.register_buffer(name, torch.randint(-127, 128, sizes, dtype=torch.int8, generator=generator))
            self.register_buffer(f"{name}_add", torch.tensor([100, -5, 7, 0], dtype=torch.int32))

    def given(self, name: str) -> list[Any]:
        return [getattr(self, one) if isinstance(one, str) else one for one in self.parameters_of[name]]

    def through(self, x: torch.Tensor, name: str) -> torch.Tensor:
        integers = Q.quantize_per_tensor.default(x, *self.given(f"{name} quantize"))
        made: torch.Tensor = Q.dequantize_per_tensor.default(integers, *self.given(f"{name} dequantize"))
        return made

    def stored(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        weight = Q.dequantize_per_channel.default(getattr(self, name), *self.given(f"{name} weight"))
        return weight, Q.dequantize_per_channel.default(getattr(self, f"{name}_add"), *self.given(f"{name} bias"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, (weight, bias) = self.through(x, "input"), self.stored("conv")
        y = torch.ops.aten.convolution.default(x, weight, bias, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        y = self.through(y, "conv").reshape(-1, 4)
        return self.through(torch.nn.functional.linear(self.through(y, "view"), *self.stored("linear")), "linear")


def exported(parameters: dict[str, Any]) -> torch.export.ExportedProgram:
    return torch.export.export(Quantized(parameters), (torch.randn(1, 4, 4, 4),))


def mutated(changes: tuple[Change, ...]) -> torch.export.ExportedProgram:
    """Return the program with other parameters: stored ones are replaced, others are arguments of calls."""
    program = exported(RIGHT)
    nodes = {node.name: node for node in program.graph.nodes}
    stored = {spec.target: nodes[spec.arg.name] for spec in program.graph_signature.input_specs if spec.target}
    order = [node for node in program.graph.nodes if "quantize" in str(node.target)]
    calls = dict(zip(_names(order), order, strict=True))
    for name, place, value in changes:
        node = calls[name]
        if isinstance(value, torch.Tensor):
            target = f"{name.replace(' ', '_')}_{place}"
            program.state_dict[target] = value
            stored[target].meta["val"] = stored[target].meta["val"].fake_mode.from_tensor(value, static_shapes=True)
        else:
            node.args = (*node.args[: place + 1], value, *node.args[place + 2 :])
    return program


def _names(calls: list[Any]) -> list[str]:
    """Return what each call is, by the order in which the model makes them."""
    stored = iter(("conv weight", "conv bias", "linear weight", "linear bias"))
    between = iter(("input", "conv", "view", "linear"))
    names: list[str] = []
    current = ""
    for node in calls:
        if "per_channel" in str(node.target):
            names.append(next(stored))
        elif "dequantize" in str(node.target):
            names.append(f"{current} dequantize")
        else:
            current = next(between)
            names.append(f"{current} quantize")
    return names


def test_nothing_is_found_in_the_right_program() -> None:
    assert not check_quantization(exported(RIGHT))


def test_there_are_thirty_of_them() -> None:
    assert len(MUTANTS) >= 30


@pytest.mark.parametrize("changes", [pytest.param(one, id=name) for name, one in MUTANTS.items()])
def test_a_wrong_parameter_is_found(changes: tuple[Change, ...]) -> None:
    found = check_quantization(mutated(changes))
    assert found
    assert all(one.code.startswith("EK3") for one in found)
