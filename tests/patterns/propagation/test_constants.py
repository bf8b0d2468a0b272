"""Constants: rows are computed twice, and what is known is stored in the program."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch

from exirkit import to_edge
from exirkit.ir import operator_name
from exirkit.passes import PropagationPass
from exirkit.patterns import check_propagation, parse_analysis

HEAD = "propagation: 1\nid: test.constants\nvalues: constants\ntransfer:\n"

ZERO = """
draw:
  aten.mul.Scalar:
    vars: {x: "f32 [*S]"}
    call: return aten.mul.Scalar(x, 0)"""

WRONG = {
    "random numbers": ("ops: aten.rand_like.default", "EK255"),
    "a dropout": ("ops: aten.native_dropout.default", "EK255"),
    "a product with something unknown": ("ops: aten.mul.Tensor\n  given: [self]", "EK255"),
    "a product of zero and infinity": ("ops: aten.mul.Scalar\n  where: other == 0\n  given: []" + ZERO, "EK255"),
    "a call that writes": ("ops: aten.relu_.default", "EK291"),
    "an argument that there is not": ("ops: aten.relu.default\n  given: [other]", "EK291"),
    "a result": ("ops: aten.relu.default\n  result: self", "EK291"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rows_are_rejected(name: str) -> None:
    row, code = WRONG[name]
    found = check_propagation(parse_analysis(f"{HEAD}- {row}\n")).found
    assert {one.code for one in found} == {code}, found


def test_what_is_known_needs_a_kind() -> None:
    text = f"{HEAD}- ops: aten.relu.default\n".replace("constants", "ranges")
    assert {one.code for one in check_propagation(parse_analysis(text)).found} == {"EK291"}


class Folded(torch.nn.Module):
    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 3))
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> Any:
        weight = torch.exp(self.weight).t() * 2
        self.seen += 1
        return x @ weight, self.seen * 2, torch.full_like(x, 3.0) + x.sum()


def test_what_only_constants_decide_is_stored() -> None:
    model, x = Folded().eval(), torch.randn(2, 3)
    edge = to_edge(torch.export.export(model, (x,)))
    expected = deepcopy(model)(x)
    folding = PropagationPass("values.constants")
    program = edge.transform([folding]).exported_program()
    names = [str(operator_name(node.target)) for node in program.graph.nodes if node.op == "call_function"]
    assert not {"aten.exp.default", "aten.permute_copy.default"} & set(names), names
    # What the program writes to is not known.
    assert sum(name.startswith("aten.mul") for name in names) == 1
    assert folding.report is not None
    assert folding.report.stored >= 1
    for one, right in zip(program.module()(x), expected, strict=True):
        torch.testing.assert_close(one, right)


def test_known_tensors_larger_than_the_budget_are_not_computed() -> None:
    class Large(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.exp(self.weight)

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(600, 600))

    edge = to_edge(torch.export.export(Large().eval(), (torch.randn(1, 600),)))
    folding = PropagationPass("values.constants")
    edge.transform([folding])
    assert folding.report is not None
    assert folding.report.stored == 0
