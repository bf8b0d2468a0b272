"""Propagations that ask what is known of tensors: narrower integers, and integers between quantized calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from exirkit import to_edge
from exirkit.ir import operator_name
from exirkit.passes import PropagationPass, PropagationReport
from exirkit.patterns import check_book, check_propagation, load_analysis, parse_analysis, parse_book
from exirkit.patterns.checking.pattern_programs import fire
from exirkit.patterns.checking.trials.rule_trials import RuleTrials

quantized = torch.ops.quantized_decomposed
Q = (0.25, 3, -128, 127, torch.int8)
R = (0.5, 0, -128, 127, torch.int8)


def propagated(name: str, model: torch.nn.Module, *inputs: torch.Tensor) -> tuple[list[str], PropagationReport]:
    """Return the operators of a model after a propagation, which changes no result."""
    model.eval()
    edge = to_edge(torch.export.export(model, inputs))
    chosen = PropagationPass(name)
    edge = edge.transform([chosen])
    program = edge.exported_program()
    torch.testing.assert_close(program.module()(*inputs), model(*inputs), rtol=0, atol=0)
    assert chosen.report is not None
    names = [str(operator_name(node.target)) for node in program.graph.nodes if node.op == "call_function"]
    return names, chosen.report


class Places(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(100, 8)
        self.register_buffer("places", torch.arange(100).view(1, -1))

    def forward(self, x: torch.Tensor) -> Any:
        first = x.argmax(-1)
        rows = (first.view(-1, 1) + self.places[:, :6]).clamp(0, 99)  # type: ignore[index]
        return self.table(rows) + self.table(torch.arange(6) + 2), rows[:, 0].float(), first


def test_int64_becomes_int32_where_it_fits() -> None:
    names, report = propagated("dtype.int32", Places(), torch.randn(3, 20))
    # Only the places of the greatest elements are int64: the operator gives nothing else.
    assert (report.conversions, report.cost) == (1, 3)
    assert names.count("aten._to_copy.default") == 1


class Inputs(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return x + 1, x * x


def test_int64_of_which_nothing_is_known_stays() -> None:
    _, report = propagated("dtype.int32", Inputs(), torch.arange(5))
    assert (report.converted_calls, report.conversions) == (0, 0)


class Pooled(torch.nn.Module):
    """Float operators between dequantize and quantize; the second branch is rescaled."""

    def forward(self, x: torch.Tensor) -> Any:
        one = quantized.dequantize_per_tensor(x, *Q)
        pooled = torch.nn.functional.max_pool2d(torch.relu(one), 2)
        same = quantized.quantize_per_tensor(torch.cat([pooled, pooled], 1).flatten(1), *Q)
        other = quantized.quantize_per_tensor(one.permute(0, 2, 3, 1), *R)
        return same, other


def test_tensors_stay_integers_between_quantized_calls() -> None:
    x = torch.randint(-128, 128, (2, 3, 4, 6), dtype=torch.int8)
    names, report = propagated("quantize.integers", Pooled(), x)
    quantizing = [one.partition(".")[2] for one in names if "quantize" in one]
    assert quantizing == ["dequantize_per_tensor.default", "quantize_per_tensor.default"], names
    assert "aten.clamp.default" in names
    assert "aten.relu.default" not in names
    assert report.conversions <= 1


WRONG = {
    "int32 for what does not fit": (
        "dtype.int32",
        "of: x.dtype == i64 and range(x).lo >= -2147483648 and range(x).hi <= 2147483647",
        "of: x.dtype == i64",
        "EK294",
    ),
    "a relu of integers at zero": (
        "quantize.integers",
        "aten.clamp.default(self, grid(self).zero_point, none)",
        "aten.clamp.default(self, 0, none)",
        "EK292",
    ),
    "padding with the integer 0": ("quantize.integers", '"grid(self).zero_point"', '"0"', "EK292"),
    "another grid": (
        "quantize.integers",
        "where: grid(input) == grid(scale, zero_point, quant_min, quant_max, result.dtype)",
        "where: grid(input).ints == result.dtype",
        "EK292",
    ),
    "integers beside the limits": (
        "quantize.grids",
        "where: quant_min == iinfo(input).min and quant_max == iinfo(input).max",
        "where: quant_min < quant_max",
        "EK255",
    ),
    "joined grids that differ": (
        "quantize.grids",
        '"all(grid(t) == grid(tensors[0]) for t in tensors)", "is_none(grid(tensors[0]).axis)"',
        '"is_none(grid(tensors[0]).axis)"',
        "EK255",
    ),
    "an analysis that there is not": ("dtype.int32", "uses: ranges.elements", "uses: ranges.element", "EK291"),
}

LIMITS = """draw:
  quantized_decomposed.dequantize_per_tensor.default:
    vars: {x: "i8 [*S]", z: "int in [-100, 100]", s: "float in [0.001, 10]"}
    call: return quantized_decomposed.dequantize_per_tensor.default(x, s, z, -8, 7, torch.int8)
"""


@pytest.mark.parametrize("name", WRONG)
def test_wrong_declarations_are_rejected(name: str) -> None:
    analysis, right, wrong, code = WRONG[name]
    text = "\n".join(load_analysis(analysis).source.lines).replace(right, wrong)
    assert wrong in text
    if "beside the limits" in name:
        text = text.partition("draw:")[0] + LIMITS
    found = {one.code for one in check_propagation(parse_analysis(text, "wrong.yaml"), trials=12).found}
    assert code in found, found


GRID_RULE = """rulebook: 1
rules:
- id: same-grid
  vars: {x: "f32 [*S]", s: "float in [1.0e-6, 16.0]", z: "int in [-128, 127]"}
  match: |
    q = quantized_decomposed.quantize_per_tensor.default(x, s, z, -128, 127, i8)
    return quantized_decomposed.dequantize_per_tensor.default(q, s, z, -128, 127, i8)
  where:
  - grid(x).scale == s
  - grid(x).zero_point == z
  - grid(x).ints == i8
  replace: return aten.clone.default(x)
"""


def test_rules_that_ask_for_a_grid_are_tried_on_tensors_of_grids() -> None:
    (verdict,) = check_book(parse_book(GRID_RULE, "book.yaml"), trials=30).rules
    assert verdict.is_accepted, verdict.found
    assert verdict.positives is not None
    assert verdict.positives.passed == 30
    guards = [one for one in verdict.near_misses if one.what == "guard"]
    assert [one.outcome for one in guards] == ["witness"] * 3


def test_rules_that_ask_less_of_a_grid_are_wrong() -> None:
    for guard in ("grid(x).scale == s", "grid(x).zero_point == z", "grid(x).ints == i8"):
        text = "\n".join(line for line in GRID_RULE.splitlines() if guard not in line)
        (verdict,) = check_book(parse_book(text, "book.yaml"), trials=200).rules
        assert "EK240" in [one.code for one in verdict.found], guard


def test_rules_about_grids_fire_in_programs_made_from_them() -> None:
    (rule,) = parse_book(GRID_RULE, "book.yaml").require_valid().rules
    trials = RuleTrials(rule)
    trial = next(one for one in (trials.trial(number)[0] for number in range(1, 60)) if one is not None)
    report, problem = fire(trials, trial)
    assert problem is None
    assert [one.rule for one in report.journal] == ["same-grid"]
