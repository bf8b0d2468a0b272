"""What is known of single nodes: of inputs, of results, in bodies, and of lowered programs."""

from __future__ import annotations

import torch
from tests.devtools.damaged_archives import exported

from exirkit import to_edge
from exirkit.devtools import describe_node, nodes_named


def test_inputs_results_and_bodies_are_told_apart() -> None:
    manager = to_edge(exported())
    edge = manager.exported_program()

    def said(name: str) -> list[str]:
        (node,) = nodes_named(edge, name)
        return describe_node(node, edge).splitlines()

    assert "stands for: parameter linear.weight" in said("p_linear_weight")
    assert "stands for: user_input x" in said("x")
    returned = edge.graph.output_node().args[0][0].name
    assert "result 0: user_output" in said(returned)
    (call,) = (node for node in edge.graph.nodes if node.target is torch.ops.higher_order.cond)
    assert "users: " + ", ".join(f"%{one.name} (getitem)" for one in call.users) in said(call.name)
    bodies = [node for node in nodes_named(edge, "aten_relu_default") if node.graph is not edge.graph]
    assert len(bodies) == 1
    inside = describe_node(bodies[0], edge).splitlines()
    assert "in the body: true_graph_0" in inside
    assert any(line.startswith("debug handle: ") for line in inside)
    assert nodes_named(edge, "nothing") == []
    # Without its program, none of that is known, and nothing fails.
    assert not any(line.startswith(("stands", "result", "in the body")) for line in describe_node(call).splitlines())
