"""Calls that write to their first argument, in programs and in patterns."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.patterns.matching.test_operator_forms import Whole
from torch.nn import functional

from exirkit import to_edge
from exirkit.ir import GraphEditor, UsageError, copy_program
from exirkit.patterns import RuleEngine, parse_book, trace_rule
from exirkit.patterns.operators.in_place import functional_variant_of

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(2))
ABS = """  vars: {x: "f32 [*S]"}
  match: return aten.abs.default(OP(aten.tanh.default(x)))
  replace: return aten.abs.default(OP(aten.sin.default(aten.tanh.default(x))))
"""
TWICE = "  vars: {x: 'f32 [*S]'}\n  match: return aten.neg.default(aten.neg.default(x))\n  replace: return x\n"


def rules(text: str) -> list[Any]:
    """Return the rules of a book."""
    book = parse_book(f"rulebook: 1\nrules:\n- id: one\n{text}")
    assert not book.found, [one.render() for one in book.found]
    return book.rules


def applied(text: str, model: torch.nn.Module, *given: torch.Tensor) -> tuple[int, bool]:
    """Return how often a rule fires in an exported program, and whether that computes the same afterwards."""
    program = torch.export.export(copy.deepcopy(model), given)
    wanted = model(*(one.clone() for one in given))
    editor = GraphEditor(copy_program(program))
    count = len(RuleEngine(rules(text)).run(editor).journal)
    found = editor.program.module()(*(one.clone() for one in given))
    same = all(torch.equal(a, b) for a, b in zip(_listed(found), _listed(wanted), strict=True))
    return count, same


def _listed(value: Any) -> list[torch.Tensor]:
    return list(value) if isinstance(value, list | tuple) else [value]


IN_PLACE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "aten.relu.default": lambda x: x.relu_(),
    "aten.silu.default": lambda x: functional.silu(x, inplace=True),
    "aten.hardtanh.default": lambda x: functional.hardtanh(x, inplace=True),
    "aten.sigmoid.default": lambda x: x.sigmoid_(),
    "aten.hardswish.default": lambda x: functional.hardswish(x, inplace=True),
}


@pytest.mark.parametrize("operator", IN_PLACE)
def test_a_rule_fires_where_a_model_works_in_place(operator: str) -> None:
    """One text for both, and in Edge, where nothing is in place."""
    function = IN_PLACE[operator]
    model = Whole(lambda x: torch.abs(function(torch.tanh(x))))
    program = torch.export.export(model, (X,))
    assert any(str(node.target).endswith("_.default") for node in program.graph.nodes)
    for one in (program, to_edge(program).exported_program()):
        for written in (operator, operator.replace(".default", "_.default")):
            report = RuleEngine(rules(ABS.replace("OP", written))).run(GraphEditor(copy_program(one)))
            assert len(report.journal) == 1, (operator, written)


def test_a_sum_in_place_is_a_sum() -> None:
    text = (
        "  vars: {x: 'f32 [*S]', y: 'f32 [*S]'}\n  match: return aten.abs.default(aten.add.Tensor(x, y))\n"
        "  replace: return aten.abs.default(aten.sub.Tensor(x, aten.neg.default(y)))\n"
    )
    assert applied(text, Whole(lambda x: torch.abs(x.neg().add_(x))), X) == (1, True)
    # The result has the dtype of what is written to, which a sum would not have.
    widened = Whole(lambda x: torch.abs(x.to(torch.float16).add_(x.double())))
    assert applied(text.replace("f32", "f*"), widened, X) == (0, True)


def test_a_program_in_which_no_rule_fires_stays_as_it_is() -> None:
    program = torch.export.export(Whole(lambda x: x.exp().relu_()), (X,))
    editor = GraphEditor(copy_program(program))
    with editor.transaction("test") as transaction:
        assert not RuleEngine(rules(TWICE)).run(editor).journal
    assert not transaction.modified
    assert [str(node.target) for node in editor.graph.nodes] == [str(node.target) for node in program.graph.nodes]


def _private(x: torch.Tensor) -> torch.Tensor:
    value = x.exp()
    kept = value.neg().neg()
    value.relu_()
    return kept + value


def _seen_by_a_view(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    value = x.exp()
    view = value.view(-1)
    kept = value.neg().neg()
    value.add_(1)
    return kept + value, view


def _between(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    value = x.exp()
    view = value.view(-1)
    half = value.neg()
    view.add_(1)
    return half.neg(), value


class Counter(torch.nn.Module):
    """Counts how often it is called."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.count.neg().neg()
        self.count.add_(1)
        return before + x


def test_what_is_written_to_later_is_not_what_it_was() -> None:
    """Only a write that nothing else sees makes no difference."""
    assert applied(TWICE, Whole(_private), X) == (1, True)
    assert applied(TWICE, Whole(_seen_by_a_view), X) == (0, True)
    assert applied(TWICE, Whole(_between), X) == (0, True)
    assert applied(TWICE, Counter(), torch.zeros(3)) == (0, True)


def test_a_pattern_that_is_traced_may_work_in_place() -> None:
    traced = trace_rule(
        lambda x, y: torch.relu_(x.add_(y)), lambda x, y: (x + y).clamp(min=0), {"x": X, "y": X}, rule_id="one",
        decide={"new_clamp_min": "exact"},
    )  # fmt: skip
    assert "aten.relu.default(aten.add.Tensor(x, y))" in traced.text
    with pytest.raises(UsageError, match="writes to a tensor"):
        trace_rule(lambda x: x.relu(), lambda x: x.relu_(), {"x": X}, rule_id="one")


def test_functional_variants() -> None:
    aten = torch.ops.aten
    assert functional_variant_of(aten.relu_.default) is aten.relu.default
    assert functional_variant_of(aten.add_.Tensor) is aten.add.Tensor
    assert functional_variant_of(aten.eq_.Tensor) is None
    assert functional_variant_of(aten.relu.default) is None
    assert functional_variant_of(aten._foreach_add_.Scalar) is None
