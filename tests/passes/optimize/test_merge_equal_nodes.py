"""Merging of equal nodes, beyond the fixtures: provenance, time, and random programs."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.lowering import edge_program
from tests.passes.lowering import run as run_graph
from tests.passes.programs import Holder, exported

from exirkit import MergeEqualNodes
from exirkit.ir import GraphEditor
from exirkit.passes import GenerateDebugHandles

X = torch.randn(3, 4)


def test_provenance_is_united() -> None:
    program = exported(lambda x: torch.relu(x) + torch.relu(x) * torch.relu(x), X)
    GenerateDebugHandles().run(GraphEditor(program))
    relus = program.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)
    handles = tuple(node.meta["debug_handle"] for node in relus)
    origins = [origin for node in relus for origin in node.meta.get("from_node", ())]
    MergeEqualNodes().run(GraphEditor(program))
    assert relus[0].meta["debug_handle"] == handles
    assert relus[0].meta.get("from_node", []) == list(dict.fromkeys(origins))


def test_many_equal_nodes_take_no_time() -> None:
    program = exported(lambda x: sum(torch.relu(x) for _ in range(200)), X)
    report = MergeEqualNodes().run(GraphEditor(program))
    assert report.erased == 199
    assert report.seconds < 3


_OPS = (torch.relu, torch.neg, lambda t: t + 1, lambda t: t + 1.0, lambda t: t * 2, lambda t: t.t().t())


@settings(max_examples=12)
@given(
    steps=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 40), st.integers(0, 40)), min_size=2, max_size=20),
    writes=st.booleans(),
    lower=st.booleans(),
)
def test_random_programs(steps: list[tuple[int, int, int]], writes: bool, lower: bool) -> None:
    def model(m: Any, x: torch.Tensor) -> Any:
        values = [x, m.a, m.b, m.state * 1]
        for step, (op, left, right) in enumerate(steps):
            first, second = values[left % len(values)], values[right % len(values)]
            values.append(_OPS[op](first) if op < len(_OPS) else (torch.add, torch.mul)[op - len(_OPS)](first, second))
            if writes and step % 5 == 2:
                m.state.add_(values[-1].sum())
                values.append(m.state * 1)
        return tuple(values[4:])

    tensors = {name: torch.ones(3, 4) for name in ("a", "b", "state")}
    program = (edge_program if lower else exported)(Holder(model, **tensors), X)
    state = [{name: tensor.clone() for name, tensor in program.state_dict.items()} for _ in range(2)]
    before = [run_graph(program, [x], state[0]) for x in (X, -X)]
    MergeEqualNodes().run(GraphEditor(program))
    program.graph.lint()
    after = [run_graph(program, [x], state[1]) for x in (X, -X)]
    torch.testing.assert_close(after, before, rtol=0, atol=0, equal_nan=True)
    assert not MergeEqualNodes().run(GraphEditor(program)).modified
