"""Declarations are read with places; what is wrong with them is found before anything is tried."""

from __future__ import annotations

import json

import pytest
from tests.patterns.propagation.declarations import BASE, parsed, with_rows

from exirkit.ir import ModelError
from exirkit.patterns import load_analysis, propagation_schema_text, shipped_propagations

ROW = "- ops: aten.cat.default\n  args: same\n  result: same\n"


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        (BASE.replace("nchw -> nhwc:", "nchw -> nwhc:"), "EK291", 9, 3),
        (BASE.replace("  nhwc -> nchw: return aten.permute_copy.default(x, [0, 3, 1, 2])\n", ""), "EK291", 8, 1),
        (with_rows(ROW.replace("result: same", "result: nhcw")), "EK291", 14, 11),
        (with_rows(ROW.replace("args: same", "args: {tensor: same}")), "EK291", 13, 10),
        (with_rows(ROW.replace("args: same", "args: {dim: same}")), "EK291", 13, 10),
        (with_rows(ROW + "  adapt: {dims: dim}\n"), "EK291", 15, 11),
        (with_rows(ROW + "  adapt: {tensors: tensors}\n"), "EK291", 15, 11),
        (with_rows(ROW + '  adapt: {dim: "inverse(prem)[dim]"}\n'), "EK220", 15, 25),
        (with_rows(ROW + "  where: users(tensors) == 1\n"), "EK291", 15, 10),
        (with_rows(ROW + "  where: dim = 1\n"), "EK220", 15, 14),
        (with_rows(ROW + "  call: return tensors\n  adapt: {dim: dim}\n"), "EK291", 16, 3),
        (with_rows(ROW.replace("cat.default", "cat.defalt")), "EK291", 12, 8),
        (with_rows("- family: pointwyse\n  args: same\n  result: same\n"), "EK291", 12, 11),
        (with_rows("- ops: aten.relu.default\n  args: nhwc\n  result: nhwc\n  cost: {nhwc: 1}\n"), "EK291", 15, 3),
        (BASE + "draw:\n  aten.rleu.default: {vars: {x: f32}, call: return aten.relu.default(x)}\n", "EK291", 16, 3),
        (BASE + "draw:\n  aten.relu.default: {vars: {x: f32}, call: return aten.abs.default(x)}\n", "EK291", 16, 45),
        (BASE.replace("values:", "solve: cut\nvalues:").replace("  nhwc: {", "  chwn: {}\n  nhwc: {"), "EK291", 10, 1),
    ],
)
def test_contradictions_have_a_place(text: str, code: str, line: int, column: int) -> None:
    found = parsed(text).found
    assert found, text
    places = [(one.code, one.location.line, one.location.column) for one in found]
    assert (code, line, column) in places, [one.render() for one in found]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (BASE.replace("transfer:", "transfers:"), 11),
        (BASE.replace("propagation: 1", "propagation: 2"), 1),
        (BASE.replace("  args: same", "  arg: same"), 13),
        (BASE.replace("  result: same", "\tresult: same"), 14),
        (with_rows("- args: same\n"), 12),
        ("propagation: 1\npropagation: 1\n", 2),
    ],
)
def test_the_form_has_a_place(text: str, line: int) -> None:
    with pytest.raises(ModelError) as raised:
        parsed(text)
    assert raised.value.diagnostics[0].code == "EK290"
    assert line in [one.location.line for one in raised.value.diagnostics]


def test_cut_needs_two_values() -> None:
    text = BASE.replace("  nhwc: {", "  chwn: {perm: [1, 2, 3, 0]}\n  nhwc: {").replace(
        "transfer:",
        "  nchw -> chwn: return aten.permute_copy.default(x, [1, 2, 3, 0])\n"
        "  chwn -> nchw: return aten.permute_copy.default(x, [3, 0, 1, 2])\nsolve: cut\ntransfer:",
    )
    assert [one.code for one in parsed(text).found] == ["EK296"]
    assert parsed(text.replace("solve: cut", "solve: forward")).is_valid


def test_several_errors_are_reported_together_in_order() -> None:
    found = parsed(with_rows(ROW.replace("args: same", "args: nwhc") + ROW.replace("cat.", "cta."))).found
    assert [one.location.line for one in found] == sorted(one.location.line or 0 for one in found)
    assert len(found) == 2


def test_shipped_propagations_are_found_by_name() -> None:
    assert "layout.channels-last" in shipped_propagations()
    for name in shipped_propagations():
        assert load_analysis(name).require_valid().model.id == name


def test_the_schema_knows_what_the_model_accepts() -> None:
    schema = json.loads(propagation_schema_text())
    row = schema["$defs"]["TransferRow"]["properties"]
    assert {"ops", "family", "delegates", "where", "args", "result", "adapt", "call", "cost", "compare"} == set(row)
    assert all("description" in one for one in row.values())
    claim = schema["$defs"]["ClaimRow"]["properties"]
    assert {"ops", "family", "where", "result", "nan", "given"} == set(claim)
    assert all("description" in one for one in claim.values())
    assert "anyOf" in schema["anyOf"][0]["properties"]["values"]
