"""What passes do to the bodies of control flow, beyond what they do to any graph."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from tests.passes.lowering import after, edge_program
from torch._higher_order_ops import map as _map
from torch._higher_order_ops import while_loop as _while_loop
from torch.fx import Node

from exirkit.ir import ModelError, TensorShapeDynamism, control_flow_call, control_flow_calls, results_of_graph
from exirkit.passes import (
    ConvertToOutVariants,
    GenerateDebugHandles,
    LegalizeDimOrder,
    PropagateSpecs,
    RemoveUnusedInputs,
    SeparateBodyResults,
)

# Annotated more narrowly than what they take.
map_rows: Any = _map
while_loop: Any = _while_loop
YES = torch.tensor(True)


def chosen(x: torch.Tensor, flag: torch.Tensor) -> Any:
    return torch.cond(flag, lambda y: (y.clone(), y + 1), lambda y: (y * 2, y.clone()), (x,))


def rotating(count: torch.Tensor, x: torch.Tensor) -> Any:
    return while_loop(
        lambda i, a, b, c: i > 0, lambda i, a, b, c: (i - 1, b.clone(), a.clone(), c.clone()), (count, x, x + 1, x + 2)
    )


def results(program: Any, place: int = -1) -> list[Any]:
    (call,) = control_flow_calls(program.graph_module)
    return results_of_graph(call.bodies[place])


def test_a_branch_returns_what_it_has_computed() -> None:
    program = edge_program(chosen, torch.ones(2), YES)
    assert [one.op for one in results(program, 0)] == ["placeholder", "call_function"]
    made = after(program, SeparateBodyResults())
    for place in (0, 1):
        returned = results(made, place)
        assert [one.op for one in returned] == ["call_function"] * 2
        assert len(set(returned)) == 2
    assert not SeparateBodyResults()(made).modified


def test_what_a_loop_carries_is_copied_only_where_it_changes_places() -> None:
    program = edge_program(rotating, torch.tensor(3), torch.ones(2))
    made = after(program, SeparateBodyResults())
    (call,) = control_flow_calls(made.graph_module)
    inputs = call.body.graph.find_nodes(op="placeholder")
    _, second, third, fourth = results(made)
    assert (second.op, third.op) == ("call_function", "call_function")
    assert (second.args[0], third.args[0], fourth) == (inputs[2], inputs[1], inputs[3])
    # What decides whether the loop goes on is one value as before, not a tuple of one.
    assert isinstance(call.bodies[0].graph.output_node().args[0], Node)


def test_memory_is_shared_across_the_border() -> None:
    for model, args in ((chosen, (torch.ones(2), YES)), (rotating, (torch.tensor(3), torch.ones(2)))):
        made = after(edge_program(model, *args), SeparateBodyResults(), PropagateSpecs(), ConvertToOutVariants())
        (call,) = control_flow_calls(made.graph_module)
        specs = call.node.meta["spec"]
        taken = [node for node in made.graph.nodes if node.target is operator.getitem]
        assert all(node.meta["spec"] is specs[node.args[1]] for node in taken)
        for body in call.bodies:
            inputs = body.graph.find_nodes(op="placeholder")
            outside = [*specs, *(one.meta["spec"] for one in call.shared)] if call.is_loop else None
            outside = outside or [one.meta["spec"] for one in call.shared]
            assert all(one.meta["spec"] is spec for one, spec in zip(inputs, outside, strict=True))
            returned = results_of_graph(body)
            if not call.is_loop:
                assert all(one.meta["spec"] is spec for one, spec in zip(returned, specs, strict=True))
                assert all(one.kwargs["out"].meta["spec"] is one.meta["spec"] for one in returned)


def test_results_that_grow_by_rows_may_change_their_size() -> None:
    def rows(x: torch.Tensor) -> Any:
        return map_rows(lambda row: row + 1, x)

    made = after(edge_program(rows, torch.ones(3, 2)), PropagateSpecs())
    (call,) = control_flow_calls(made.graph_module)
    assert [spec.shape_dynamism for spec in call.node.meta["spec"]] == [TensorShapeDynamism.DYNAMIC_BOUND]
    assert results(made)[0].meta["spec"].shape == [2]


def test_inputs_that_no_body_reads_go() -> None:
    def model(x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda a, b: a.relu(), lambda a, b: a.neg(), (x, y))

    program = edge_program(model, torch.ones(2), torch.ones(3))
    (call,) = control_flow_calls(program.graph_module)
    assert len(call.shared) == 1
    assert {len(body.graph.find_nodes(op="placeholder")) for body in call.bodies} == {1}
    assert not RemoveUnusedInputs()(program).modified


def test_handles_are_unique_over_all_bodies() -> None:
    program = edge_program(rotating, torch.tensor(3), torch.ones(2))
    (call,) = control_flow_calls(program.graph_module)
    graphs = [program.graph, *(body.graph for body in call.bodies)]
    handles = [{node.meta["debug_handle"] for node in graph.nodes if node.op == "call_function"} for graph in graphs]
    assert all(handles)
    assert sum(map(len, handles)) == len(set().union(*handles))
    assert not GenerateDebugHandles()(program).modified


def test_results_are_row_major_in_every_branch() -> None:
    def model(x: torch.Tensor, flag: torch.Tensor) -> Any:
        last = x.to(memory_format=torch.channels_last)
        return torch.cond(flag, torch.relu, torch.neg, (last,))

    program = edge_program(model, torch.ones(1, 2, 3, 4), YES)
    made = after(program, SeparateBodyResults(), LegalizeDimOrder())
    (call,) = control_flow_calls(made.graph_module)
    (operand,) = call.shared
    assert operand.meta["val"].is_contiguous(memory_format=torch.channels_last)
    assert all(one.is_contiguous() for one in call.node.meta["val"])
    for body in call.bodies:
        (given,) = body.graph.find_nodes(op="placeholder")
        assert given.meta["val"].stride() == operand.meta["val"].stride()
        assert all(one.meta["val"].is_contiguous() for one in results_of_graph(body))


def test_a_call_of_another_form_is_rejected() -> None:
    program = edge_program(chosen, torch.ones(2), YES)
    (call,) = control_flow_calls(program.graph_module)
    call.node.args = (*call.node.args, 3)
    assert control_flow_call(call.node) is None
    with pytest.raises(ModelError, match="EK432"):
        after(program, PropagateSpecs())
