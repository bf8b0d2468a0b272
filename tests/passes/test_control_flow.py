"""What passes do to the bodies of control flow, beyond what they do to any graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.passes.lowering import after, edge_program
from torch._higher_order_ops import map as _map
from torch._higher_order_ops import while_loop as _while_loop

from exirkit.ir import ModelError, control_flow_call, control_flow_calls
from exirkit.passes import (
    GenerateDebugHandles,
    PropagateSpecs,
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


def test_handles_are_unique_over_all_bodies() -> None:
    program = edge_program(rotating, torch.tensor(3), torch.ones(2))
    (call,) = control_flow_calls(program.graph_module)
    graphs = [program.graph, *(body.graph for body in call.subgraphs)]
    handles = [{node.meta["debug_handle"] for node in graph.nodes if node.op == "call_function"} for graph in graphs]
    assert all(handles)
    assert sum(map(len, handles)) == len(set().union(*handles))
    assert not GenerateDebugHandles()(program).modified


def test_a_call_of_another_form_is_rejected() -> None:
    program = edge_program(chosen, torch.ones(2), YES)
    (call,) = control_flow_calls(program.graph_module)
    call.node.args = (*call.node.args, 3)
    assert control_flow_call(call.node) is None
    with pytest.raises(ModelError, match="EK432"):
        after(program, PropagateSpecs())
