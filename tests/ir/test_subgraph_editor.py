"""Editors of the bodies of control flow: operands, and undoing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.export import ExportedProgram

from exirkit.ir import GraphEditor, ModelError, SubgraphEditor, called_graphs, copy_program, subgraph_editors


class Branches(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x * self.w, lambda x: x.sin(), (x,))


@pytest.fixture
def editor() -> GraphEditor:
    return GraphEditor(copy_program(torch.export.export(Branches(), (torch.ones(3),))))


def state_of(program: ExportedProgram) -> list[str]:
    graphs = [str(one.graph) for one in called_graphs(program.graph_module)]
    return [*graphs, str(program.graph_signature), str(list(program.constants))]


def body(editor: GraphEditor, name: str = "true_graph_0") -> SubgraphEditor:
    return next(one for one in subgraph_editors(editor) if one.path == name)


def test_operands_are_looked_through(editor: GraphEditor) -> None:
    inputs = body(editor).graph.find_nodes(op="placeholder")
    operands = [body(editor).operand_of(one) for one in inputs]
    assert {one.name for one in operands if one is not None} == {"x", "p_w"}


def test_constants_of_a_body_are_undone_with_it(editor: GraphEditor) -> None:
    before = state_of(editor.program)
    with pytest.raises(ValueError, match="stop"), editor.transaction("outer"):  # noqa: PT012
        one = body(editor)
        with one.transaction("inner") as inner:
            node = one.add_constant(torch.arange(3.0), name="ramp")
            assert one.operand_of(node) is not None
        assert inner.modified
        assert state_of(editor.program) != before
        raise ValueError("stop")
    assert state_of(editor.program) == before


def test_a_constant_that_nothing_uses_goes_again(editor: GraphEditor) -> None:
    before = state_of(editor.program)
    with editor.transaction("outer"):
        one = body(editor)
        node = one.add_constant(torch.arange(3.0), name="ramp")
        assert one.add_constant(torch.tensor(2.0), name="two") is one.add_constant(torch.tensor(2.0), name="two")
        one.remove_inputs([node, *(n for n in one.graph.find_nodes(op="placeholder") if n.name.startswith("two"))])
    assert state_of(editor.program) == before


def test_bodies_that_two_calls_run_get_no_operand(editor: GraphEditor) -> None:
    call = next(node for node in editor.graph.nodes if "cond" in str(node.target) and node.op == "call_function")
    with editor.transaction("twice"):
        editor.call(call.target, call.args, before=call.next, origins=call, val=call.meta["val"])
    before = state_of(editor.program)
    with pytest.raises(ModelError, match="EK120"), editor.transaction("constant"):
        body(editor).add_constant(torch.arange(3.0), name="ramp")
    assert state_of(editor.program) == before


def test_code_is_made_again_after_an_edit(editor: GraphEditor) -> None:
    x = torch.tensor([1.0, 2.0, 3.0])
    torch.testing.assert_close(editor.program.module()(x), x)
    one = body(editor)
    product = one.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)[0]
    with one.transaction("double"):
        one.rewire(product, (product.args[0], product.args[0]))
    torch.testing.assert_close(editor.program.module()(x), x * x)
