"""What the report says of programs whose noise is known, and which calls it takes for the same."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from exirkit import DiagnosticError
from exirkit.passes import QuantizationReport, quantization_report, quantize_program
from exirkit.passes.quantization_noise.measuring import Noise


def exported(model: nn.Module, *inputs: torch.Tensor, **options: Any) -> ExportedProgram:
    return torch.export.export(model.eval(), inputs, **options)


def measured(model: nn.Module, *inputs: torch.Tensor, **settings: bool) -> QuantizationReport:
    plain = exported(model, *inputs)
    return quantization_report(plain, quantize_program(plain, "xnnpack", [inputs], settings), [inputs])


def decibels(plain: torch.Tensor, other: torch.Tensor) -> float:
    one, two = plain.detach().double(), other.detach().double()
    return 10 * math.log10(float(one.square().sum() / (one - two).square().sum()))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.drop, self.head = nn.Dropout(), nn.Linear(4, 2)
        nn.init.normal_(self.norm.running_mean)  # type: ignore[arg-type]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.conv(x)))
        return torch.sigmoid(self.head(self.drop(y.mean([2, 3]))))


def test_the_same_program_has_no_noise() -> None:
    plain = exported(Net(), torch.randn(2, 3, 5, 5))
    report = quantization_report(plain, plain, [(torch.randn(2, 3, 5, 5),)])
    assert {(one.isolated, one.accumulated, one.quantized) for one in report.layers} == {(math.inf, math.inf, False)}
    assert (report.decibels, report.missing, report.ranked()) == (math.inf, (), [])


def test_noise_of_two_layers_by_hand() -> None:
    torch.manual_seed(0)
    one, two, x = nn.Linear(8, 8), nn.Linear(8, 4), torch.randn(16, 8)
    model = nn.Sequential(one, two)
    plain = exported(model, x)
    made = quantize_program(plain, "xnnpack", [(x,)])
    first, second = quantization_report(plain, made, [(x,)]).layers

    values: dict[str, Any] = {}

    class Kept(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            values[n.name] = super().run_node(n)
            return values[n.name]

    module = made.module(check_guards=False)
    Kept(module).run(x)
    middle, last = (node for node in module.graph.nodes if str(node.target).startswith("aten.linear"))

    def carried(node: torch.fx.Node) -> Any:
        """Return the dequantized value of a call, and how that is made."""
        (quantize,) = node.users
        (dequantize,) = quantize.users
        low, high = quantize.args[3:5]
        return dequantize, lambda one: torch.ops.quantized_decomposed.dequantize_per_tensor(
            torch.ops.quantized_decomposed.quantize_per_tensor(one, *quantize.args[1:3], low, high, torch.int8),
            *quantize.args[1:3], low, high, torch.int8,
        )  # fmt: skip

    hidden = one(x)
    shown, _ = carried(middle)
    assert first.isolated == first.accumulated == pytest.approx(decibels(hidden, values[shown.name]))
    weight = values[last.args[1].name]
    shown, convert = carried(last)
    alone = convert(nn.functional.linear(hidden, weight, two.bias))
    assert second.isolated == pytest.approx(decibels(model(x), alone), abs=1e-3)
    assert second.accumulated == pytest.approx(decibels(model(x), values[shown.name]))
    # Only the first layer: the second is the float one.
    assert first.on_results == pytest.approx(decibels(model(x), two(values[carried(middle)[0].name])), abs=1e-3)
    assert second.on_results == pytest.approx(second.isolated)


@pytest.mark.parametrize("settings", [{}, {"per_channel": True}, {"dynamic": True}])
def test_all_calls_have_a_counterpart(settings: dict[str, bool]) -> None:
    report = measured(Net(), torch.randn(2, 3, 5, 5), **settings)
    assert report.missing == ()
    (merged,) = (one for one in report.layers if one.call != one.value)
    assert (merged.call, merged.value, merged.module) == ("conv2d", "batch_norm", "conv")
    assert merged.isolated > 25
    quantized = {one.operator for one in report.ranked()}
    assert "aten.linear.default" in quantized
    # What reads the quantized value of another layer is not noisy by itself.
    assert "aten.sigmoid.default" not in quantized
    assert ("aten.conv2d.default" in quantized) == ("dynamic" not in settings)


def test_modules_that_were_rewritten_agree_by_their_results() -> None:
    import copy

    from torchao.quantization import Int8WeightOnlyConfig, quantize_
    from torchao.utils import unwrap_tensor_subclass

    model, x = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 8)).eval(), torch.randn(4, 32)
    changed = copy.deepcopy(model)
    quantize_(changed, Int8WeightOnlyConfig())
    report = quantization_report(exported(model, x), exported(unwrap_tensor_subclass(changed), x), [(x,)])
    assert report.missing == ()
    assert [(one.module, one.quantized) for one in report.layers] == [("0", True), ("1", False), ("2", True)]
    assert all(25 < one.isolated < 70 for one in report.ranked())


class Counting(nn.Module):
    """Writes into its state and into a value."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return torch.relu_(self.linear(x)) + self.count


def test_each_sample_begins_with_the_state_of_the_export() -> None:
    x = torch.randn(3, 4)
    plain = exported(Counting(), x)
    made = quantize_program(plain, "xnnpack", [(x,), (x,)])
    assert float(plain.state_dict["count"]) == 0
    once, thrice = (quantization_report(plain, made, [(x,)] * count) for count in (1, 3))
    assert [one.operator for one in once.layers] == [
        "aten.linear.default",
        "aten.relu.default",
        "aten.add.Tensor",
    ]
    for one, other in zip(once.layers, thrice.layers, strict=True):
        assert one.accumulated == pytest.approx(other.accumulated)
    assert float(plain.state_dict["count"]) == 0


@pytest.mark.parametrize("sizes", [(1, 3), (7, 2, 5)])
def test_sizes_may_vary(sizes: tuple[int, ...]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    plain = exported(model, torch.randn(6, 4), dynamic_shapes=({0: Dim("n", max=64)},))
    samples = [(torch.randn(size, 4),) for size in sizes]
    report = quantization_report(plain, quantize_program(plain, "xnnpack", samples), samples)
    assert report.samples == len(sizes)
    assert all(math.isfinite(one.isolated) for one in report.layers)


def test_infinities_and_empty_values() -> None:
    noise = Noise()
    noise.add(torch.empty(0), torch.empty(0))
    assert noise.decibels == math.inf
    noise.add(torch.tensor([-math.inf, math.nan, 1.0]), torch.tensor([-math.inf, math.nan, 1.0]))
    assert noise.decibels == math.inf
    noise.add(torch.tensor([0.0]), torch.tensor([0.1]))
    assert noise.decibels == pytest.approx(20)
    noise.add(torch.tensor([1.0]), torch.tensor([math.inf]))
    assert noise.decibels == -math.inf
    zero = Noise()
    zero.add(torch.zeros(2), torch.ones(2))
    assert zero.decibels == -math.inf


def test_json_has_no_infinities() -> None:
    text = quantization_report(plain := exported(nn.Tanh(), torch.ones(2)), plain, [(torch.ones(2),)]).model_dump_json()
    assert json.loads(text)["layers"][0]["isolated"] == "inf"


def test_a_sample_of_other_sizes_is_an_error() -> None:
    plain = exported(nn.Linear(4, 4), torch.randn(2, 4))
    with pytest.raises(DiagnosticError, match="sample 2 does not run"):
        quantization_report(plain, plain, [(torch.randn(2, 4),), (torch.randn(2, 5),)])
    with pytest.raises(DiagnosticError, match="no sample"):
        quantization_report(plain, plain, [])


def test_groups() -> None:
    torch.manual_seed(0)
    report = measured(Net(), torch.randn(2, 3, 5, 5))
    modules = {one.name: one for one in report.by_module()}
    assert set(modules) == {"conv", "drop", "head", None}
    assert modules["conv"].calls == ("conv2d",)
    assert [one.isolated for one in report.by_line()] == sorted(one.isolated for one in report.by_line())
    assert sum(len(one.calls) for one in report.by_line()) == len(report.ranked())
