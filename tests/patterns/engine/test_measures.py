"""What rules declare about how rewriting with them ends is kept to."""

from __future__ import annotations

import pytest
import torch

from exirkit.ir import GraphEditor, copy_program
from exirkit.patterns import RewriteOptions, RewriteReport, RuleEngine, parse_book, relations_of

RULE = """rulebook: 1
rules:
- id: my-rule
  vars: {x: "f32 [N, *S]"}
  match: return aten.relu.default(x)
  replace: return REPLACE
  measure: MEASURE
"""


class Relu(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu()


def run(measure: str, replace: str) -> RewriteReport:
    text = RULE.replace("REPLACE", replace).replace("MEASURE", measure)
    editor = GraphEditor(copy_program(torch.export.export(Relu(), (torch.ones(2, 3),))))
    return RuleEngine(parse_book(text).require_valid().rules).run(editor, RewriteOptions(is_strict=False))


def test_once_is_not_for_its_own_results() -> None:
    assert run("once", "aten.neg.default(aten.relu.default(aten.neg.default(x)))").applied == {"my-rule": 1}


@pytest.mark.parametrize(
    ("measure", "replace", "is_kept"),
    [
        ("node_count", "aten.clamp_min.default(x, 0)", False),
        ("node_count", "x", True),
        ("weight", "aten.clamp_min.default(x, 0)", False),
        ("weight", "aten.expand_copy.default(aten.sum.dim_IntList(x, [0], True), shape(x))", False),
        ("lex[weight, node_count]", "aten.clamp_min.default(x, 0)", False),
        ("lex[weight, node_count]", "x", True),
        ("lex[ node_count ]", "aten.neg.default(aten.neg.default(x))", False),
        ("none", "aten.clamp_min.default(x, 0)", True),
    ],
)
def test_a_measure_decreases_or_nothing_is_done(measure: str, replace: str, is_kept: bool) -> None:
    report = run(measure, replace)
    assert bool(report.applied) is is_kept
    assert bool(report.rejections) is not is_kept
    text = RULE.replace("REPLACE", replace).replace("MEASURE", measure)
    codes = [one.code for one in relations_of(parse_book(text).require_valid().rules).found]
    assert ("EK248" in codes) is not is_kept
