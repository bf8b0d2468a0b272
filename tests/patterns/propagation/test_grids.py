"""Grids per tensor and per channel: what is known of them, and rules and notes that ask for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.patterns.propagation.test_demands import Model
from tests.thoroughness import TRIES_ALL

from exirkit import ApplyRules, to_edge
from exirkit.ir import ATTRIBUTE_KEYS, operator_name
from exirkit.passes import PropagationPass
from exirkit.patterns import check_book, check_propagation, load_analysis, parse_analysis, parse_book
from exirkit.patterns.checking.pattern_programs import fire
from exirkit.patterns.checking.trials.rule_trials import RuleTrials

quantized = torch.ops.quantized_decomposed

# A quantized value that is quantized once more with the same scales is as it was.
GUARD = """rulebook: 1
rules:
- id: same-channels
  vars: {x: "f32 [N, C, *S]", s: "const f32 [C] in [0.001, 16]", z: "const i64 [C] in [-100, 100]"}
  match: |
    q = quantized_decomposed.quantize_per_channel.default(x, s, z, 1, -128, 127, i8)
    return quantized_decomposed.dequantize_per_channel.default(q, s, z, 1, -128, 127, i8)
  where: grid(x) == grid(elements(s), elements(z), -128, 127, i8, 1)
  replace: return aten.clone.default(x)
"""

# Integers are permuted instead of floats, and the channels go with their dim.
ACTION = """rulebook: 1
rules:
- id: permute-integers
  vars: {x: "f32 [*S]", p: "perm of x"}
  match: return aten.permute_copy.default(x, p)
  where: grid(x).axis != none and grid(x).ints == i8
  let: |
    s = tensor(grid(x).scale, f32)
    z = tensor(grid(x).zero_point, i64)
    d = grid(x).axis
  replace: |
    q = quantized_decomposed.quantize_per_channel.default(x, s, z, d, -128, 127, i8)
    y = aten.permute_copy.default(q, p)
    return quantized_decomposed.dequantize_per_channel.default(y, s, z, inverse(p)[d], -128, 127, i8)
"""


def weight(axis: int = 0) -> Any:
    """Return a function that dequantizes channels, and what it takes."""
    scales, zeros = torch.tensor([0.5, 0.25, 0.125]), torch.tensor([0, 3, -7])

    def function(k: torch.Tensor, s: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = quantized.dequantize_per_channel(k, s, z, axis, -128, 127, torch.int8)
        return made

    return function, scales, zeros


class Stored(torch.nn.Module):
    """What is computed of dequantized channels whose scales are stored."""

    def __init__(self, function: Any, axis: int = 0) -> None:
        super().__init__()
        self.function = function
        self.dequantize, scales, zeros = weight(axis)
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", zeros)

    def forward(self, k: torch.Tensor) -> Any:
        return self.function(self.dequantize(k, self.scales, self.zeros))


def integers(*sizes: int) -> torch.Tensor:
    return torch.randint(-128, 128, sizes, dtype=torch.int8, generator=torch.Generator().manual_seed(3))


def test_rules_ask_for_grids_per_channel_and_make_them() -> None:
    # The pattern of the other one has five literals, of each of which near misses are tried.
    for text in (GUARD, ACTION) if TRIES_ALL else (ACTION,):
        (verdict,) = check_book(parse_book(text, "book.yaml"), trials=12).rules
        assert verdict.is_accepted, [one.render() for one in verdict.found]
        assert verdict.positives is not None
        assert verdict.positives.passed == 12
        guards = [one.outcome for one in verdict.near_misses if one.what == "guard"]
        assert guards == ["witness"], text
        (rule,) = parse_book(text).require_valid().rules
        trials = RuleTrials(rule)
        trial = next(one for one in (trials.trial(number)[0] for number in range(1, 400)) if one is not None)
        report, problem = fire(trials, trial)
        assert problem is None
        assert [one.rule for one in report.journal] == [rule.id]


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        (GUARD, "grid(x) == grid(elements(s), elements(z), -128, 127, i8, 1)", "grid(x).scale == elements(s)"),
        (GUARD, "grid(x) == grid(elements(s), elements(z), -128, 127, i8, 1)", "grid(x).zero_point == elements(z)"),
        (ACTION, "inverse(p)[d]", "p[d]"),
        (ACTION, " and grid(x).ints == i8", ""),
    ],
)
def test_rules_that_ask_less_of_channels_are_wrong(text: str, right: str, wrong: str) -> None:
    assert right in text
    (verdict,) = check_book(parse_book(text.replace(right, wrong), "book.yaml"), trials=100).rules
    assert "EK240" in [one.code for one in verdict.found], [one.render() for one in verdict.found]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("inverse([norm(d, self) for d in dims])[grid(self).axis]", "norm(dims[grid(self).axis], self)"),
        ("where: [grid(self).axis == 0, ", "where: ["),
        (
            "- ops: [aten.slice_copy.Tensor]\n  where: norm(dim, self) != grid(self).axis\n",
            "- ops: [aten.slice_copy.Tensor]\n",
        ),
        ("1 if norm(dim, result) <= grid(self).axis", "1 if norm(dim, result) < grid(self).axis"),
        (', "is_none(grid(tensors[0]).axis)"]', "]"),
        ("grid(self).axis < rank(self) - 2", "grid(self).axis < rank(self) - 1"),
    ],
)
def test_rows_that_lose_channels_are_wrong(right: str, wrong: str) -> None:
    text = "\n".join(load_analysis("quantize.grids").source.lines)
    assert right in text
    head, _, rest = text.partition("transfer:\n")
    rows, _, draws = rest.partition("draw:\n")
    row = next(f"- ops{one}" for one in rows.split("- ops") if right in f"- ops{one}")
    text = f"{head}transfer:\n{row.replace(right, wrong)}draw:\n{draws}"
    found = check_propagation(parse_analysis(text, "wrong.yaml"), trials=12).found
    assert "EK255" in {one.code for one in found}, [one.render() for one in found]


@pytest.mark.parametrize(
    ("axis", "function", "expected"),
    [
        (0, lambda x: x.permute(1, 0, 2), 1),
        (1, lambda x: x.transpose(1, 2), 2),
        (1, lambda x: x.unsqueeze(0), 2),
        (1, lambda x: x.select(0, 1), 0),
        (0, lambda x: x.reshape(3, -1), 0),
        (2, lambda x: x[:, 1:], 2),
        (1, lambda x: torch.cat([x, x], 2), 1),
        (1, lambda x: torch.nn.functional.relu(x), 1),
        (1, lambda x: torch.cat([x, x], 1), None),
        (1, lambda x: x.select(1, 0), None),
        (1, lambda x: x.reshape(-1), None),
    ],
)
def test_what_is_known_is_noted(axis: int, function: Any, expected: int | None) -> None:
    sizes = [3, 3, 3]
    model = Stored(function, axis)
    edge = to_edge(torch.export.export(model, (integers(*sizes),)))
    notes = PropagationPass("quantize.notes")
    program = edge.transform([notes]).exported_program()
    torch.testing.assert_close(program.module()(integers(*sizes)), model(integers(*sizes)))
    last = [node for node in program.graph.nodes if node.op == "call_function"][-1]
    noted = last.meta.get("quant_attrs")
    if expected is None:
        assert noted is None
        return
    assert noted["axis"] == expected
    assert (noted["scale"], noted["zero_point"]) == ([0.5, 0.25, 0.125], [0, 3, -7])
    assert last.meta[ATTRIBUTE_KEYS] == ("quant_attrs",)


def test_scales_that_the_program_is_given_are_not_known() -> None:
    function, scales, zeros = weight()
    edge = to_edge(torch.export.export(Model(function), (integers(3, 2), scales, zeros)))
    notes = PropagationPass("quantize.notes")
    edge.transform([notes])
    assert notes.report is not None
    assert notes.report.converted_calls == 0


def test_rules_act_on_grids_of_programs() -> None:
    class Twice(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Stored(torch.relu, 1)

        def forward(self, k: torch.Tensor) -> Any:
            x = self.inner(k)
            q = quantized.quantize_per_channel(x, self.inner.scales, self.inner.zeros, 1, -128, 127, torch.int8)
            return quantized.dequantize_per_channel(q, self.inner.scales, self.inner.zeros, 1, -128, 127, torch.int8)

    model = Twice()
    edge = to_edge(torch.export.export(model, (integers(2, 3, 4),)))
    rules = ApplyRules(parse_book(GUARD))
    program = edge.transform([rules]).exported_program()
    assert rules.report is not None
    assert rules.report.applied == {"same-channels": 1}
    torch.testing.assert_close(program.module()(integers(2, 3, 4)), model(integers(2, 3, 4)), rtol=0, atol=0)
    names = [str(operator_name(node.target)) for node in program.graph.nodes if node.op == "call_function"]
    assert "quantized_decomposed.quantize_per_channel.default" not in names


NOTES = """propagation: 1
id: my.notes
uses: quantize.grids
of: rank(x) == 2
write: {attribute: q, fields: {scale: grid(x).scale, axis: grid(x).axis}}
"""


def test_wrong_notes_are_rejected() -> None:
    assert check_propagation(parse_analysis(NOTES)).is_accepted
    for right, wrong, code in (
        ("grid(x).scale", "grid(x)", "EK259"),
        ("rank(x) == 2", "rank(x) == 9", "EK293"),
        ("quantize.grids", "quantize.grid", "EK291"),
        ("grid(x).axis", "grid(y).axis", "EK220"),
        ("quantize.grids", "dtype.int32", "EK291"),
    ):
        found = check_propagation(parse_analysis(NOTES.replace(right, wrong, 1), "notes.yaml")).found
        assert [one.code for one in found] == [code], (wrong, [one.render() for one in found])
