"""What quantizers annotate: matches, shared parameters, selectors, and what torchao makes of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from exirkit import DiagnosticError, to_edge
from exirkit.passes import (
    Annotator,
    account_of_model,
    data_quantizer,
    load_quantizer,
    parse_quantizer,
    quantize_program,
    with_numbers_as_tensors,
)
from exirkit.passes.quantizer.annotating import Point
from exirkit.runtime_ref import Runtime

HEAD = """quantizer: 1
id: small
settings: {per_channel: false}
vars: {x: "f32 [*S]", y: "f32 [*Y]", w: "f32 [*W]", b: "f32 [*B] | none"}
specs:
  act: {dtype: i8}
  narrow: {dtype: i8, limits: [-8, 7]}
  unit: {dtype: u8, scale: 0.00390625, zero_point: 0}
  weight:
  - {when: per_channel, dtype: i8, limits: [-127, 127], symmetric: true, axis: 0}
  - {dtype: i8, limits: [-127, 127], symmetric: true}
  bias: {dtype: i32, symmetric: true, derived: [x, w]}
"""
LINEAR = """- name: linear
  match: return aten.linear.default(x, w, b)
  annotate: {x: act, w: weight, b: bias, result: act}
"""
CAT = """- name: cat
  vars: {xs: "list of f32 [...]"}
  match: return aten.cat.default(xs, _)
  annotate: {xs: act, result: act}
  share: [[xs, result]]
"""


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.first(x)
        return torch.cat([first, self.second(x).view(-1, 4)]).view(-1)


def exported(module: nn.Module, *inputs: torch.Tensor) -> Any:
    return torch.export.export(module.eval(), inputs).module()


def annotated(text: str, module: Any, **settings: bool) -> Any:
    return Annotator(parse_quantizer(HEAD + text), settings).plan(module)


def quantized(text: str, module: nn.Module, *inputs: torch.Tensor, **settings: bool) -> Any:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(exported(module, *inputs), data_quantizer(parse_quantizer(HEAD + text), **settings))
    prepared(*inputs)
    return convert_pt2e(prepared)


def test_first_rule_that_matches_has_a_call() -> None:
    doubled = LINEAR.replace("name: linear", "name: again")
    plan = annotated(f"rules:\n{LINEAR}{doubled}{CAT}", exported(Blocks(), torch.randn(2, 4)))
    assert [one.rule for one in plan.annotations] == ["linear", "linear", "cat"]


def test_groups_are_what_shares_and_what_carries() -> None:
    module = exported(Blocks(), torch.randn(2, 4))
    plan = annotated(f"rules:\n{LINEAR}{CAT}carry: [aten.view.default]\n", module)
    nodes = {node.name: node for node in module.graph.nodes}
    groups = [set(map(str, group)) for group in plan.groups.values() if len(group) > 1]
    joined = {"%linear as %cat reads it", "%view as %cat reads it", "%cat", "%cat as %view_1 reads it", "%view_1"}
    assert joined in groups
    assert {"%linear_1", "%linear_1 as %view reads it", "%view"} in groups
    assert len(groups) == 2
    assert plan.way_at(Point(nodes["view_1"])).dtype == "i8"


def test_torchao_shares_what_the_plan_says() -> None:
    made = quantized(f"rules:\n{LINEAR}{CAT}carry: [aten.view.default]\n", Blocks(), torch.randn(2, 4))
    (cat,) = (node for node in made.graph.nodes if node.target is torch.ops.aten.cat.default)
    (after,) = cat.users
    parameters = {one.args[1:3] for one in cat.all_input_nodes} | {after.args[1:3]}
    assert len(parameters) == 1


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_bias_is_derived_from_input_and_weight(per_channel: bool) -> None:
    text = f"rules:\n{LINEAR}"
    if per_channel:
        text = text.replace("b: bias, ", "")
    torch.manual_seed(3)
    x = torch.randn(2, 4)
    made = quantized(text, Blocks(), x, per_channel=per_channel)
    (linear, *_) = (node for node in made.graph.nodes if node.target is torch.ops.aten.linear.default)
    if per_channel:
        assert "per_channel" in str(linear.args[1].target)
        return
    value, weight, bias = linear.args
    assert bias.args[1] == pytest.approx(value.args[1] * weight.args[1], rel=1e-6)
    assert bias.args[2] == 0
    assert bias.args[5] is torch.int32
    program = to_edge(torch.export.export(made, (x,))).to_executorch()
    (got,) = Runtime().load_program(program.buffer).load_method("forward").execute([x])
    torch.testing.assert_close(got, made(x), rtol=0, atol=0.05)


def test_parameters_that_are_given_are_not_observed() -> None:
    class Gate(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sigmoid(x)

    rule = "- {name: sigmoid, match: return aten.sigmoid.default(x), annotate: {x: act, result: unit}}\n"
    made = quantized(f"rules:\n{rule}", Gate(), torch.randn(5))
    (after,) = next(node for node in made.graph.nodes if node.target is torch.ops.aten.sigmoid.default).users
    assert after.args[1:] == (0.00390625, 0, 0, 255, torch.uint8)


def test_a_conflict_names_both_rules_and_the_line_of_the_model() -> None:
    wide = CAT.replace("xs: act, result: act", "xs: narrow, result: narrow") + "  join: xs\n"
    with pytest.raises(DiagnosticError) as raised:
        annotated(f"rules:\n{LINEAR}{wide}", exported(Blocks(), torch.randn(2, 4)))
    (found,) = raised.value.diagnostics
    assert found.code == "EK469"
    assert [note.split()[1] for note in found.notes] == ["'linear'", "'cat'"]
    assert "test_annotations.py" in str(found.location.source)


@pytest.mark.parametrize(
    ("leave", "left"),
    [
        ("module: first", {"linear"}),
        ("type: Linear", {"linear", "linear_1"}),
        ("type: '*.Lin*'", {"linear", "linear_1"}),
    ],
)
def test_what_is_left(leave: str, left: set[str]) -> None:
    module = exported(Blocks(), torch.randn(2, 4))
    plan = annotated(f"leave: [{{{leave}}}]\nrules:\n{LINEAR}{CAT}", module)
    names = {node.name for node in plan.by_call}
    assert {"linear", "linear_1"} - names == left
    assert "cat" in names


@pytest.mark.parametrize("selector", ["module: frist", "type: Linaer", "type: torch.nn.Linear"])
def test_a_selector_that_means_nothing(selector: str) -> None:
    module = exported(Blocks(), torch.randn(2, 4))
    for text in (f"leave: [{{{selector}}}]\nrules:\n{LINEAR}", f"rules:\n{LINEAR}  {selector}\n"):
        with pytest.raises(DiagnosticError, match="EK477"):
            annotated(text, module)


def test_integers_and_what_nothing_uses_stay() -> None:
    class Sums(nn.Module):
        def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
            x.relu() + x
            return (x + 1)[at + 1 + at] + x.to(torch.float64).sum()

    rule = "- {name: add, match: 'return aten.add.Tensor(x, y)', vars: {x: 'any [*S]', y: 'any [*Y]'}, "
    rule += "annotate: {x: act, y: act, result: act}}\n"
    module = exported(Sums(), torch.randn(6), torch.tensor([0, 2]))
    with_numbers_as_tensors(module, ["aten.add.Tensor"])
    adds = [node for node in module.graph.nodes if node.target is torch.ops.aten.add.Tensor]
    numbers = {node.name: isinstance(node.args[1], torch.fx.Node) for node in adds}
    assert numbers == {"add": True, "add_1": True, "add_2": False, "add_3": True, "add_4": True}
    torch.testing.assert_close(
        module(torch.arange(6.0), torch.tensor([0, 2])), torch.tensor([17.0, 21.0]), check_dtype=False
    )
    accounts = {one.node: one for one in account_of_model(Annotator(parse_quantizer(f"{HEAD}rules:\n{rule}")), module)}
    assert "add" not in accounts
    assert accounts["add_1"].rule == "add"
    assert "only floats" in accounts["add_3"].reasons["add"]


def test_one_value_that_is_read_twice() -> None:
    class Square(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x

    rule = "- {name: add, match: 'return aten.add.Tensor(x, y)', annotate: {x: act, y: act, result: act}}\n"
    plan = annotated(f"rules:\n{rule}", exported(Square(), torch.randn(3)))
    assert len(plan.ways) == 2
    quantized(f"rules:\n{rule}", Square(), torch.randn(3))


def test_values_share_with_the_first_that_is_met() -> None:
    class Pooled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.adaptive_avg_pool2d(torch.relu(x + x), 1).flatten(1)

    policy = load_quantizer("xnnpack")
    plan = Annotator(policy).plan(exported(Pooled(), torch.randn(1, 2, 4, 4)))
    pool = next(one for one in plan.annotations if one.rule == "mean-of-windows")
    assert str(plan.group_of[pool.points["result"][0]]) == "%relu"
    # Where a value refers to one behind it, torchao fails.
    quantize_program(torch.export.export(Pooled(), (torch.randn(1, 2, 4, 4),)), "xnnpack", [(torch.randn(1, 2, 4, 4),)])


def test_the_model_is_not_changed() -> None:
    module = exported(Blocks(), torch.randn(2, 4))
    before = str(module.graph)
    annotated(f"rules:\n{LINEAR}{CAT}", module)
    assert str(module.graph) == before
    assert not any("quantization_annotation" in node.meta for node in module.graph.nodes)
