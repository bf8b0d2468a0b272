"""Propagations for what reads values elsewhere: attributes that say them, rows about its kernels, and bases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tests.patterns.propagation.declarations import LAYOUTS, checked, parsed
from torch import nn

from exirkit import ModelError, to_edge
from exirkit.ir import ATTRIBUTE_KEYS
from exirkit.passes import PropagationPass
from exirkit.patterns import load_propagation, propagation_schema_text

WRITTEN = """propagation: 1
id: test.tags
based_on: layout.channels-last
write: {attribute: order, key: ORDER, fields: {last: "True", name: value}}
transfer:
- ops: aten.slice_copy.Tensor
  args: same
  result: same
  compare: elements
"""


class Sliced(nn.Module):
    """A slice between convolutions, and one input that is used as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))[:, :4]
        return self.second(y).reshape(1, -1) + x.sum()


def _converted(path: Path, text: str) -> torch.export.ExportedProgram:
    path.write_text(text)
    edge = to_edge(torch.export.export(Sliced().eval(), (torch.randn(1, 3, 6, 7),)))
    return edge.transform([PropagationPass(path, tries=False)]).exported_program()


def test_tensors_at_other_values_get_the_attribute(tmp_path: Path) -> None:
    program = _converted(tmp_path / "tags.yaml", WRITTEN)
    tagged = {node.name for node in program.graph.nodes if "ORDER" in node.meta}
    names = {node.target.__name__: node.name for node in program.graph.nodes if hasattr(node.target, "__name__")}
    copies = [node for node in program.graph.nodes if "to_dim_order" in str(node.target)]
    # From the first conversion to the last convolution, and none behind the conversion back.
    assert len(copies) == 2
    expected = {copies[0].name, names["aten.relu.default"], names["aten.slice_copy.Tensor"]}
    assert expected < tagged
    assert copies[1].name not in tagged
    assert names["aten.view_copy.default"] not in tagged
    assert all(
        node.meta["ORDER"] == {"last": True, "name": "nhwc"} for node in program.graph.nodes if node.name in tagged
    )
    assert all(node.meta[ATTRIBUTE_KEYS] == ("ORDER",) for node in program.graph.nodes if node.name in tagged)


def test_what_an_earlier_run_wrote_does_not_stay(tmp_path: Path) -> None:
    path = tmp_path / "tags.yaml"
    path.write_text(WRITTEN)
    edge = to_edge(torch.export.export(Sliced().eval(), (torch.randn(1, 3, 6, 7),)))
    (given,) = [node for node in edge.exported_program().graph.nodes if node.name == "x"]
    given.meta["ORDER"] = {"last": True, "name": "nhwc"}
    given.meta[ATTRIBUTE_KEYS] = ("ORDER", "OTHER")
    program = edge.transform([PropagationPass(path, tries=False)]).exported_program()
    (given,) = [node for node in program.graph.nodes if node.name == "x"]
    assert "ORDER" not in given.meta
    assert given.meta[ATTRIBUTE_KEYS] == ("OTHER",)


def test_notes_and_choices_are_told_apart() -> None:
    text = WRITTEN[: WRITTEN.index("transfer:")]
    with pytest.raises(ModelError, match="transfer"):
        parsed(text)


def test_without_a_row_for_elements_the_slice_is_row_major(tmp_path: Path) -> None:
    text = WRITTEN[: WRITTEN.index("transfer:")] + "transfer:\n- ops: aten.slice_copy.Tensor\n"
    program = _converted(tmp_path / "tags.yaml", text)
    assert sum("to_dim_order" in str(node.target) for node in program.graph.nodes) == 4


def test_rows_about_kernels_compare_elements_only() -> None:
    row = "- ops: aten.slice_copy.Tensor\n  args: same\n  result: same\n"
    drawn = "{vars: {x: 'f32 [N, C, H, W]'}, call: 'return aten.slice_copy.Tensor(x, 1, 0, 2)'}"
    draw = f"draw:\n  aten.slice_copy.Tensor: {drawn}\n"
    assert {one.code for one in checked(LAYOUTS + row + draw).found} == {"EK292"}
    assert checked(LAYOUTS + row + "  compare: elements\n" + draw).is_accepted
    # Elements are compared still.
    wrong = row + "  adapt: {start: start + 1}\n  compare: elements\n"
    assert {one.code for one in checked(LAYOUTS + wrong + draw).found} == {"EK292"}


def test_a_base_says_what_is_left_out() -> None:
    made = parsed(WRITTEN)
    base = load_propagation("layout.channels-last")
    assert made.is_valid
    assert made.names == base.names
    assert made.model.compare == "layouts"
    assert made.rows[0].model.compare == "elements"
    assert len(made.rows) == len(base.rows) + 1
    # A row without conditions takes all calls of its operators.
    taken = parsed(WRITTEN.replace("aten.slice_copy.Tensor", "aten.permute_copy.default"))
    (permute,) = [op for op in taken.rows_of if str(op) == "aten.permute_copy.default"]
    assert len(taken.rows_of[permute]) == 1
    assert len(taken.rows) == len(base.rows)
    conditional = WRITTEN.replace("aten.slice_copy.Tensor", "aten.permute_copy.default\n  where: dims == [0, 2, 3, 1]")
    assert len(parsed(conditional).rows_of[permute]) == 2


def test_what_a_base_draws_can_be_drawn_in_another_way() -> None:
    draw = (
        "draw:\n  aten.cat.default:\n    vars: {x: 'f32 [N, C, H, W]'}\n    call: return aten.cat.default([x, x], 1)\n"
    )
    made, base = parsed(WRITTEN + draw), load_propagation("layout.channels-last")
    assert made.draws.keys() == base.draws.keys()
    assert [str(op) for op in made.draws if made.draws[op] is not base.draws[op]] == ["aten.cat.default"]


@pytest.mark.parametrize("name", ["layout.channels-lost", "no/such/file.yaml"])
def test_a_base_that_is_not_there(name: str) -> None:
    with pytest.raises(ModelError) as raised:
        parsed(WRITTEN.replace("layout.channels-last", name))
    (found,) = raised.value.diagnostics
    assert (found.code, found.location.line) == ("EK291", 3)


def test_bases_in_a_cycle(tmp_path: Path) -> None:
    one, other = tmp_path / "one.yaml", tmp_path / "other.yaml"
    one.write_text(WRITTEN.replace("layout.channels-last", str(other)))
    other.write_text(WRITTEN.replace("layout.channels-last", str(one)))
    with pytest.raises(ModelError, match="is a cycle"):
        load_propagation(one)
    one.write_text(WRITTEN.replace("layout.channels-last", str(one)))
    with pytest.raises(ModelError, match="is a cycle"):
        load_propagation(one)


def test_a_base_that_only_infers() -> None:
    with pytest.raises(ModelError) as raised:
        parsed(WRITTEN.replace("layout.channels-last", "ranges.elements"))
    assert raised.value.diagnostics[0].code == "EK249"


@pytest.mark.parametrize(
    ("field", "code"), [("perm", "EK259"), ("nowhere", "EK220"), ("1 // 0", "EK259"), ("value[9]", "EK259")]
)
def test_fields_are_plain_data(field: str, code: str) -> None:
    text = LAYOUTS.replace("values: [nchw, nhwc]", "values:\n  nchw: {perm: {}}\n  nhwc: {perm: {a: 1}}")
    text += f"write: {{attribute: order, fields: {{last: '{field}'}}}}\n"
    assert [one.code for one in parsed(text).found] == [code]


def test_the_schema_asks_for_values_or_a_base() -> None:
    (chosen,) = [one for one in json.loads(propagation_schema_text())["anyOf"] if "based_on" in one["properties"]]
    assert chosen["anyOf"] == [{"required": ["values", "of", "materialise"]}, {"required": ["based_on"]}]
    assert not {"values", "of", "materialise"} & set(chosen["required"])
