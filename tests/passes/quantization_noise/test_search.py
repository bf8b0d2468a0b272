"""Which modules a search leaves in float."""

from __future__ import annotations

import torch
import yaml
from torch import nn

from exirkit.passes import leaving_text, load_quantizer, parse_quantizer, search_float_modules
from exirkit.passes.quantizer.model import quantizer_text


class Chain(nn.Module):
    """Six linear layers, in one of which weights of two sizes share a scale."""

    def __init__(self) -> None:
        super().__init__()
        made = [nn.Linear(16, 16) for _ in range(6)]
        made[3].weight.data[0] *= 100
        self.layers = nn.ModuleList(made)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def test_the_layer_that_loses_most_is_left() -> None:
    torch.manual_seed(0)
    samples = [(torch.randn(8, 16),) for _ in range(3)]
    program = torch.export.export(Chain().eval(), samples[0])
    before = search_float_modules(program, "xnnpack", samples, at_least=0)
    assert (before.modules, before.left, before.layers) == ((), 0, 6)
    found = search_float_modules(program, "xnnpack", samples, before.score + 6)
    assert found.modules == ("layers.3",)
    assert found.cost - before.cost == 16 * 16 * 3
    assert found.score >= before.score + 6
    text = leaving_text(quantizer_text("xnnpack"), found)
    assert parse_quantizer(text, "made.yaml") == found.policy
    again = leaving_text(text, found)
    assert [one["module"] for one in yaml.safe_load(again)["leave"]] == ["layers.3", "layers.3"]


def test_what_need_not_be_left_is_quantized_though_float_costs_less() -> None:
    torch.manual_seed(0)
    first = nn.Linear(2, 16)
    first.weight.data[:, 0] *= 10
    model = nn.Sequential(first, nn.Tanh(), Chain())
    samples = [(torch.randn(8, 2),) for _ in range(3)]
    program = torch.export.export(model.eval(), samples[0])
    before = search_float_modules(program, "xnnpack", samples, 0, settings={"per_channel": True})
    found = search_float_modules(program, "xnnpack", samples, before.score + 3, settings={"per_channel": True})
    assert found.steps[1].module == "0"
    assert found.steps[1].cost < before.cost, "it has more bytes of scales than of weights"
    assert (found.modules, found.left, found.layers) == (("2.layers.3",), 1, 7)
    assert found.cost > min(step.cost for step in found.steps)


class Outer(nn.Module):
    """A layer inside of a module that computes something itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + x


def test_own_calls_of_a_module() -> None:
    x = torch.randn(2, 4)
    module = torch.export.export(nn.Sequential(Outer(), nn.ReLU()).eval(), (x,)).module()
    from exirkit.passes import Annotator

    def rules(own: str) -> list[str]:
        policy = parse_quantizer(f"{quantizer_text('xnnpack')}leave:\n- {{module: '0', own: {own}}}\n", "q.yaml")
        return sorted(one.rule for one in Annotator(policy).plan(module).annotations)

    assert "linear" in rules("true")
    assert not any(rule.startswith("add") for rule in rules("true"))
    assert rules("false") == []
    assert load_quantizer("xnnpack").leave == ()
