"""Graphs inside of graphs, as migrated backends ask for them."""

from __future__ import annotations

from typing import Any

import torch

from exirkit.exir.provided import graphs
from exirkit.ir import control_flow_calls


class Branches(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda it: it + 1, lambda it: it.sin(), (x,))


def test_branches_are_found_with_the_call() -> None:
    graph_module = torch.export.export(Branches(), (torch.ones(3),)).graph_module
    (call,) = control_flow_calls(graph_module)
    found = graphs.get_control_flow_submodules(graph_module)
    assert [(getattr(graph_module, name), node) for name, _, node in found] == [
        (graph, call.node) for _, graph, _ in found
    ]
    assert len(found) == 2
    assert graphs.get_cond_while_submodules(graph_module) == found
    assert graphs.get_scan_submodules(graph_module) == []
    assert graphs._get_control_flow_submodules(graph_module, {torch.ops.higher_order.cond: [2]}) == found[1:]
    assert graphs.contains_any_call_fn_target_op(graph_module, [torch.ops.aten.sin.default])
    assert not graphs.contains_any_call_fn_target_op(graph_module, [torch.ops.aten.cos.default])
    assert graphs.get_lowered_submodules(graph_module) == []
