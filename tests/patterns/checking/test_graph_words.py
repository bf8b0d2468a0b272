"""Words about what makes a value and what lies between two: answered alike by trials and by programs."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

from exirkit.ir import GraphEditor, copy_program, register_quantized_decomposed
from exirkit.patterns import parse_book
from exirkit.patterns.checking.pattern_programs import fire
from exirkit.patterns.checking.trials.rule_trials import RuleTrials
from exirkit.patterns.engine.program_facts import ProgramFacts
from exirkit.patterns.functions.graph import per_channel, q_range, qparams, same_q

register_quantized_decomposed()

BOOK = """rulebook: 1
rules:
- id: cat-of-dequantized
  vars: {x: "i8 [N, P]", y: "i8 [M, P]", s: "float in [0.01, 1.0]", z: "int in [-5, 5]"}
  match: |
    a = quantized_decomposed.dequantize_per_tensor.default(x, s, z, -128, 127, i8)
    b = quantized_decomposed.dequantize_per_tensor.default(y, s, z, -128, 127, i8)
    c = aten.neg.default(aten.cat.default([a, b]))
    return c
  where: WHERE
  replace: |
    q = quantized_decomposed.dequantize_per_tensor.default(aten.cat.default([x, y]), s, z, -128, 127, i8)
    return aten.neg.default(q)
"""
HOLD = ["same_q(a, b)", "q_range(a) == [-128, 127]", "qparams(b)[1] == z", "not per_channel(a)", "distance(a, c) == 2",
        "distance(x, c) == 3", "no_mutation_between(a, c)"]  # fmt: skip
FAIL = ["per_channel(a)", "q_range(a)[0] == 0", "distance(a, c) == 3", "qparams(b)[1] == z + 1"]


def trials_of(condition: str) -> RuleTrials:
    (rule,) = parse_book(BOOK.replace("WHERE", f'"{condition}"')).require_valid().rules
    return RuleTrials(rule)


@pytest.mark.parametrize("condition", HOLD)
def test_what_holds_in_trials_holds_in_programs(condition: str) -> None:
    trials = trials_of(condition)
    found = [trials.trial(number)[0] for number in range(1, 4)]
    for trial in found:
        assert trial is not None
        report, problem = fire(trials, trial)
        assert problem is None
        assert report.applied


@pytest.mark.parametrize("condition", FAIL)
def test_what_does_not_hold_gives_no_trial(condition: str) -> None:
    assert not any(trials_of(condition).trial(number)[0] for number in range(1, 4))


class Channels(torch.nn.Module):
    """One value quantised by channels, one as a whole, and a buffer that is written."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor) -> Any:
        ops = torch.ops.quantized_decomposed
        a = ops.dequantize_per_channel.default(x, scales, zeros, 0, -128, 127, torch.int8)
        self.count.add_(1)
        b = ops.dequantize_per_tensor.default(x, 0.5, 3, -127, 127, torch.int8)
        return a, b


def test_answers_from_a_program() -> None:
    import torch.ao.quantization.fx._decomposed

    inputs = (torch.zeros(2, 3, dtype=torch.int8), torch.ones(2), torch.zeros(2, dtype=torch.int64))
    editor = GraphEditor(copy_program(torch.export.export(Channels(), inputs)))
    facts = ProgramFacts(editor)
    nodes = {node.name: node for node in editor.graph.nodes}
    a, b = nodes["dequantize_per_channel"], nodes["dequantize_per_tensor"]
    assert per_channel(facts, a)
    assert not per_channel(facts, b)
    assert qparams(facts, b) == [0.5, 3, -127, 127]
    assert qparams(facts, a)[0] is nodes["scales"]
    assert q_range(facts, a) == [-128, 127]
    assert same_q(facts, a, a) is True
    assert same_q(facts, a, b) is False
    assert facts.distance(nodes["x"], b) == 1
    assert facts.distance(a, b) is None
    assert facts.is_written_between(a, b)
    assert not facts.is_written_between(nodes["x"], a)
    with pytest.raises(TypeError, match="quantised"):
        qparams(facts, nodes["x"])
    assert operator.eq(facts.call_behind(nodes["x"]), ("placeholder", {}))
