"""torch's own decomposition as a replacement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.patterns.replacements.test_loops import Whole

from exirkit import to_edge
from exirkit.ir import GraphEditor, copy_program
from exirkit.patterns import RuleEngine, check_book, parse_book
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.operators.tracing import call_decomposed

A = torch.ops.aten
BOOK = """rulebook: 1
rules:
- id: one
  dialect: aten
  vars: {{{variables}}}
  match: return {call}
  replace: return traced({call})
"""


def rewritten(text: str, function: Callable[..., Any], *given: torch.Tensor, dynamic: Any = None) -> list[str]:
    """Return the operators of an exported program after the rules of a book; its results must stay."""
    book = parse_book(text, "book.yaml")
    assert not book.found, [one.render() for one in book.found]
    program = torch.export.export(Whole(function), given, dynamic_shapes=dynamic)
    editor = GraphEditor(copy_program(program))
    report = RuleEngine(book.rules).run(editor)
    assert len(report.journal) == 1, report.rejections
    torch.testing.assert_close(editor.program.module()(*given), function(*given), rtol=1e-4, atol=1e-5)
    return [str(node.target) for node in editor.graph.nodes if node.op == "call_function"]


def test_parts_of_an_einsum() -> None:
    text = BOOK.format(variables="e: 'str', x: 'f32 [*S]', y: 'f32 [*T]'", call="aten.einsum.default(e, [x, y])")
    for equation, one, other in (
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        ("ij,kj->ki", (3, 4), (5, 4)),
        ("i,j->ij", (3,), (4,)),
        ("ii,ij->i", (3, 3), (3, 2)),
    ):
        calls = rewritten(text, lambda x, y, e=equation: torch.einsum(e, x, y), torch.randn(one), torch.randn(other))
        assert not any("einsum" in call for call in calls)


def test_several_results_and_operators_inside() -> None:
    text = BOOK.format(
        variables="x: 'f32 [*B, D]', w: 'f32 [D]'", call="aten.native_layer_norm.default(x, [D], w, none, 1e-5)"
    )
    text = text.replace("replace: return traced(", "replace: return *traced(").replace(
        "match: return ", "match: return *"
    )
    text = text.replace("1e-5)\n  replace", "1e-5),\n  replace")
    calls = rewritten(
        text, lambda x, w: A.native_layer_norm.default(x, [4], w, None, 1e-5)[0], torch.randn(2, 3, 4), torch.randn(4)
    )
    assert "aten.var_mean.correction" in calls


def test_operators_to_decompose_as_well() -> None:
    call = "aten.scaled_dot_product_attention.default(q, k, v)"
    text = BOOK.format(variables="q: 'f32 [*B, L, D]', k: 'f32 [*B, S, D]', v: 'f32 [*B, S, D]'", call=call)
    given = tuple(torch.randn(2, 3, 4, 8) for _ in range(3))
    kept = rewritten(text, torch.nn.functional.scaled_dot_product_attention, *given)
    assert any("flash" in one for one in kept)
    flash = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    text = text.replace(f"traced({call})", f"traced({call}, [{flash}])")
    assert "aten.bmm.default" in rewritten(text, torch.nn.functional.scaled_dot_product_attention, *given)


def test_sizes_that_vary_and_views_in_edge() -> None:
    text = """rulebook: 1
rules:
- id: one
  vars: {x: 'f32 [N, 2 * K]'}
  varying: [N]
  match: return aten.exp.default(x)
  replace: return aten.cat.default([traced(aten.glu.default(x, 1)), traced(aten.glu.default(x, 1))], 1)
"""
    book = parse_book(text, "book.yaml")
    batch = torch.export.Dim("batch", min=2, max=9)
    exported = torch.export.export(Whole(torch.exp), (torch.randn(3, 4),), dynamic_shapes=(({0: batch},),))
    editor = GraphEditor(to_edge(exported).exported_program())
    assert RuleEngine(book.rules).run(editor).journal
    calls = [str(node.target) for node in editor.graph.nodes if node.op == "call_function"]
    assert any("slice_copy" in call for call in calls)
    x = torch.randn(7, 4)
    torch.testing.assert_close(editor.program.module()(x), torch.cat([torch.nn.functional.glu(x)] * 2, 1))


def test_a_traced_call_is_tried() -> None:
    text = BOOK.format(variables="x: 'f32 [*S, 2 * K]'", call="aten.glu.default(x, -1)").replace(
        "dialect: aten", "tags: []"
    )
    verdict = check_book(parse_book(text, "book.yaml"), trials=15)
    assert verdict.is_accepted
    assert [one.code for one in verdict.rules[0].found] == ["EK247"]
    wrong = text.replace("traced(aten.glu.default(x, -1))", "traced(aten.glu.default(aten.neg.default(x), -1))")
    found = check_book(parse_book(wrong, "book.yaml"), trials=15).rules[0].found
    assert "EK240" in [one.code for one in found]


WRONG = {
    "traced(x)": "traced takes a call",
    "traced(aten.glu.default(x, -1), [], 1)": "traced takes a call",
    "traced(aten.convolution.default(x, x, none, [1], [0], [1], False, [0], 1))": "torch has no decomposition of",
    "traced(aten.glu.default(x, -1), [aten.convolution.default])": "torch has no decomposition of",
    "traced(aten.gluu.default(x))": "gluu",
    "traced(aten.glu.default(x, dims=1))": "dims",
}


@pytest.mark.parametrize("replacement", WRONG)
def test_what_cannot_be_traced(replacement: str) -> None:
    text = BOOK.format(variables="x: 'f32 [*S, 2 * K]'", call="aten.glu.default(x, -1)")
    book = parse_book(text.replace("traced(aten.glu.default(x, -1))", replacement), "book.yaml")
    assert book.found
    assert WRONG[replacement] in book.found[0].message


def test_conditions_cannot_trace() -> None:
    text = BOOK.format(variables="x: 'f32 [*S, 2 * K]'", call="aten.glu.default(x, -1)")
    text = text.replace("  replace", "  where: traced(x)\n  replace")
    assert [one.code for one in parse_book(text, "book.yaml").found] == ["EK220"]


CALLS: list[tuple[Any, tuple[Any, ...]]] = [
    (A.triu.default, (torch.randn(4, 5), 1)),
    (A.index_copy.default, (torch.zeros(3, 4), 0, torch.tensor([2, 0]), torch.randn(2, 4))),
    (A.hardsigmoid.default, (torch.randn(7) * 5,)),
    (A.lerp.Scalar, (torch.randn(3), torch.randn(3), 0.3)),
    (A.addmm.default, (torch.randn(3), torch.randn(2, 4), torch.randn(4, 3))),
    (A.matmul.default, (torch.randn(2, 1, 3, 4), torch.randn(5, 4, 2))),
    (A.matmul.default, (torch.randn(0, 3), torch.randn(3, 2))),
    (A.glu.default, (torch.randn(2, 6, dtype=torch.float64), 1)),
]


@pytest.mark.parametrize(("op", "args"), CALLS)
def test_decompositions_compute_the_same(op: Any, args: tuple[Any, ...]) -> None:
    result = call_decomposed(TensorBuilder(), op, args, {})
    torch.testing.assert_close(result, op(*args), rtol=1e-5, atol=1e-5)


def test_one_tensor_twice_is_one_input() -> None:
    x = torch.randn(3, 3)
    torch.testing.assert_close(call_decomposed(TensorBuilder(), A.matmul.default, (x, x), {}), x @ x)
