"""Rows are tried as commuting squares: wrong ones are rejected, with arguments for which they are wrong."""

from __future__ import annotations

import pytest
from tests.patterns.propagation.declarations import BASE, LAYOUTS, checked, with_rows

from exirkit.patterns import Demands, Inference, check_propagation, load_analysis, shipped_propagations

WRONG_ROWS = {
    "cat without its dim": ("ops: aten.cat.default", "args: same", "result: same"),
    "cat with another dim": ("ops: aten.cat.default", "args: same", "result: same", "adapt: {dim: 'perm[dim]'}"),
    "softmax over a wrong axis": ("ops: aten._softmax.default", "args: same", "result: same"),
    "softmax counted from the wrong end": (
        "ops: aten._softmax.default",
        "args: same",
        "result: same",
        "adapt: {dim: '3 - dim'}",
    ),
    "reduction whose dims stay": ("ops: aten.mean.dim", "where: keepdim", "args: same", "result: same"),
    "reduction that drops dims in another order": (
        "ops: aten.amax.default",
        "where: not keepdim",
        "args: {self: same}",
        "adapt: {dim: '[inverse(perm)[d] for d in dim]'}",
    ),
    "slice without its dim": ("ops: aten.slice_copy.Tensor", "args: same", "result: same"),
    "cumulative sum without its dim": ("ops: aten.cumsum.default", "args: same", "result: same"),
    "flip of dims that stay": ("ops: aten.flip.default", "args: same", "result: same"),
    "only the arguments are converted": ("ops: aten.relu.default", "args: nhwc"),
    "only the result is converted": ("ops: aten.relu.default", "result: nhwc"),
    "an operand is left out": ("ops: aten.sub.Tensor", "args: {self: same}", "result: same"),
    "absorbed permutation the wrong way": (
        "ops: aten.permute_copy.default",
        "where: dims == [0, 2, 3, 1]",
        "result: nhwc",
        "call: return self",
    ),
    "another operator": ("ops: aten.relu.default", "args: same", "result: same", "call: return aten.abs.default(self)"),
}

WRONG_LAYOUTS = {
    "cumulative sum writes row by row": ("ops: aten.amax.default", "where: keepdim", "args: same", "result: same"),
    "a view is row-major": ("ops: aten.roll.default", "args: same", "result: same"),
    "cat with empty tensors": ("ops: aten.cat.default", "args: same", "result: same"),
}


def rows_of(lines: tuple[str, ...]) -> str:
    return "- " + "\n  ".join(lines) + "\n"


DRAWN = """draw:
  aten.permute_copy.default:
    vars: {x: "f32 [N, C, H, W]"}
    call: "return aten.permute_copy.default(x, [0, 2, 3, 1])"
"""


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_wrong_rows_are_rejected_with_a_counterexample(name: str) -> None:
    drawn = DRAWN if "permute_copy" in WRONG_ROWS[name][0] else ""
    found = checked(with_rows(rows_of(WRONG_ROWS[name])) + drawn).found
    assert [one.code for one in found] == ["EK292"], found
    assert found[0].location.line == 12
    assert any(note.startswith(("self = ", "tensors = ")) for note in found[0].notes)


CAT = """draw:
  aten.cat.default:
    vars: {x: "f32 [N, C, H, W]", y: "f32 [N, D, H, W]"}
    call: return aten.cat.default([x, y], 1)
"""


@pytest.mark.parametrize("name", WRONG_LAYOUTS)
def test_wrong_layouts_are_rejected(name: str) -> None:
    text = with_rows(rows_of(WRONG_LAYOUTS[name]), LAYOUTS) + (CAT if "cat" in name else "")
    found = checked(text).found
    assert [one.code for one in found] == ["EK292"], found
    assert "strides" in found[0].message


@pytest.mark.parametrize("base", [BASE, LAYOUTS])
def test_a_right_row_is_accepted(base: str) -> None:
    verdict = checked(base)
    assert verdict.is_accepted, verdict.found
    assert [one.trials for one in verdict.rows] == [24]


@pytest.mark.parametrize("name", shipped_propagations())
def test_shipped_propagations_are_accepted(name: str) -> None:
    made = load_analysis(name)
    # What is claimed of elements is tried four times as often.
    verdict = check_propagation(made, seed=1, trials=6 if isinstance(made, Inference | Demands) else 24)
    assert verdict.is_accepted, [one.render() for one in verdict.found]
    # Delegates are the business of their backends: rows of them are not tried.
    assert all(one.trials for one in verdict.rows if one.operators)


def test_the_same_seed_finds_the_same_counterexample() -> None:
    text = with_rows(rows_of(WRONG_ROWS["softmax over a wrong axis"]))
    assert checked(text).found == checked(text).found


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("x, [0, 3, 1, 2])", "x, [0, 2, 3, 1])", "EK294", "does not undo it"),
        ("x, [0, 2, 3, 1])", "x, [0, 2, 3])", "EK294", "cannot be computed"),
        ("x, [0, 2, 3, 1])", "x, [0, 1, 2, 3])", "EK294", "does not undo it"),
        ("return aten.permute_copy.default(x, [0, 2, 3, 1])", "return aten.mul.Scalar(x, 2)", "EK294", "undo"),
        ("transfer:", "cost: numel(x) / 2\ntransfer:", "EK295", "not a whole number"),
        ("transfer:", "cost: 1 - numel(x)\ntransfer:", "EK295", "not a whole number"),
        ("rank(x) == 4", "rank(x) == 9", "EK293", "no tensor was found"),
        ("transfer:", "recorded: {nhwc: numel(x) > 3}\ntransfer:", "EK294", "is not what"),
    ],
)
def test_conversions_and_costs_are_tried(old: str, new: str, code: str, message: str) -> None:
    assert old in BASE
    found = checked(BASE.replace(old, new)).found
    assert [one.code for one in found[:1]] == [code], found
    assert message in found[0].message


def test_conversions_that_change_nothing_are_rejected() -> None:
    found = checked(LAYOUTS.replace("compare: layouts\n", "")).found
    assert {one.code for one in found} == {"EK294"}
    assert "compare: layouts" in found[0].message


def test_a_recorded_value_must_be_what_the_conversion_makes() -> None:
    found = checked(LAYOUTS.replace("channels_last(x) and not is_contiguous(x)", "not is_contiguous(x)")).found
    assert [one.code for one in found] == ["EK294"]


def test_what_cannot_be_tried_is_rejected() -> None:
    found = checked(with_rows("- ops: aten.convolution.default\n  args: {input: nhwc}\n  result: nhwc\n")).found
    assert [one.code for one in found] == ["EK293"]
    assert "draw" in (found[0].hint or "")


def test_a_row_that_an_earlier_one_hides_is_rejected() -> None:
    row = "- ops: aten.relu.default\n  args: same\n  result: same\n"
    found = checked(with_rows(row + row)).found
    assert [one.code for one in found] == ["EK293"]
    assert "an earlier row takes" in found[0].message


def test_special_case_rows_are_tried_where_they_hold() -> None:
    """A condition that keeps the wrong calls away makes the row right."""
    rows = "- ops: aten.cumsum.default\n  where: dim == 0\n  args: same\n  result: same\n"
    assert checked(with_rows(rows)).is_accepted
