"""Graphs in a better order: less memory, the same results, and nothing that must not move has moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.passes.memory.conftest import GraphBuilder
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node

import exirkit
from exirkit import ExecutorchBackendConfig, MemoryPlanningPass, ModelError
from exirkit.passes.memory.graph.specs import AllocationPolicy
from exirkit.passes.memory.planners import MemoryAlgoResult, greedy
from exirkit.passes.memory.scheduling.graph_schedule import GraphSchedule
from exirkit.program import ExecutorchProgramManager
from exirkit.runtime_ref import Runtime

ATEN = torch.ops.aten


def planned(module: GraphModule, signature: Any, **options: Any) -> int:
    MemoryPlanningPass(**options).run(module, signature)
    return int(sum(module.meta["non_const_buffer_sizes"]))


def names(module: GraphModule) -> list[str]:
    return [node.name for node in module.graph.nodes]


def calls(module: GraphModule) -> list[Node]:
    return [node for node in module.graph.nodes if node.op == "call_function"]


def fan(builder: GraphBuilder, count: int = 4) -> list[Node]:
    """Large values first, then a small one of each."""
    x = builder.input("x", [16])
    large = [builder.op(x, [1024]) for _ in range(count)]
    return [builder.op(one, [16], target=ATEN.sum.IntList_out) for one in large]


def joined(builder: GraphBuilder, parts: list[Node]) -> Node:
    total = parts[0]
    for part in parts[1:]:
        total = builder.add(total, part, [16])
    return total


def test_large_values_are_made_one_after_another(builder: GraphBuilder) -> None:
    module, signature = builder.finish(joined(builder, fan(builder)))
    before = names(module)
    assert planned(module, signature) == 4 * 1024 + 16
    assert names(module) == before
    assert planned(module, signature, schedule=True) <= 1024 + 4 * 16
    assert sorted(names(module)) == sorted(before)
    assert names(module) != before
    module.graph.lint()
    # In the new order there is nothing to do.
    again = names(module)
    result = MemoryPlanningPass(schedule=True).run(module, signature)
    assert not result.modified
    assert names(module) == again


def test_where_nothing_is_gained_nothing_moves(builder: GraphBuilder) -> None:
    x = builder.input("x", [64])
    left, right = builder.op(x, [64]), builder.op(x, [64])
    module, signature = builder.finish(builder.add(left, right, [64]))
    before = names(module)
    schedule = GraphSchedule(module, signature, AllocationPolicy(), 16)
    assert not schedule.is_changed
    assert names(module) == before


def test_undo_and_redo(builder: GraphBuilder) -> None:
    module, signature = builder.finish(joined(builder, fan(builder)))
    before = names(module)
    schedule = GraphSchedule(module, signature, AllocationPolicy(), 16)
    assert schedule.is_changed
    assert schedule.peak_nbytes_before == 4 * 1024 + 16
    better = names(module)
    schedule.undo()
    assert names(module) == before
    assert not schedule.is_changed
    schedule.redo()
    assert names(module) == better


def test_state_is_read_before_it_is_written(builder: GraphBuilder) -> None:
    state = builder.input("state", [16], InputKind.BUFFER)
    small = fan(builder)
    old = builder.add(state, small[0], [16])
    written = builder.write(state, small[1])
    new = builder.add(state, small[2], [16])
    viewed = builder.op(builder.view(state, [4, 4]), [16])
    module, signature = builder.finish(written, joined(builder, [old, new, viewed, small[3]]))
    assert planned(module, signature, schedule=True) < 2 * 1024
    order = names(module)
    assert order.index(old.name) < order.index(written.name) < order.index(new.name)
    assert order.index(written.name) < order.index(viewed.name)


def test_nothing_passes_control_flow(builder: GraphBuilder, new_builder: Callable[[], GraphBuilder]) -> None:
    branches = [builder.submodule(f"branch{number}", new_builder().branch(64, 16)) for number in range(2)]
    small = fan(builder, 3)
    flag, operand = builder.input("p", [1]), builder.input("y", [4])
    chosen = builder.cond(flag, branches, [operand], [16])
    after = [builder.op(builder.op(operand, [1024]), [16], target=ATEN.sum.IntList_out) for _ in range(2)]
    module, signature = builder.finish(joined(builder, [*small, chosen, *after]))
    call = next(node for node in module.graph.nodes if node.target is torch.ops.higher_order.cond)
    sides = [{node.name for node in calls(module)[: calls(module).index(call)]}]
    planned(module, signature, schedule=True)
    sides.append({node.name for node in calls(module)[: calls(module).index(call)]})
    assert sides[0] == sides[1]


def test_bodies_are_ordered_as_well(builder: GraphBuilder, new_builder: Callable[[], GraphBuilder]) -> None:
    bodies = []
    for _ in range(2):
        body = new_builder()
        bodies.append(body.finish(joined(body, fan(body)))[0])
    branches = [builder.submodule(f"branch{number}", body) for number, body in enumerate(bodies)]
    chosen = builder.cond(builder.input("p", [1]), branches, [builder.input("y", [16])], [16])
    module, signature = builder.finish(builder.op(chosen, [16]))
    before, after = planned(module, signature), planned(module, signature, schedule=True)
    assert after < before / 2


def test_random_draws_stay_in_their_order(builder: GraphBuilder) -> None:
    x = builder.input("x", [16])
    draws = [builder.op(x, [1024], dtype=torch.float32, target=ATEN.rand_like.out) for _ in range(4)]
    small = [builder.op(one, [16], target=ATEN.sum.IntList_out) for one in reversed(draws)]
    module, signature = builder.finish(joined(builder, small))
    planned(module, signature, schedule=True)
    order = names(module)
    assert sorted(draws, key=lambda node: order.index(node.name)) == draws


def test_results_of_one_operator_stay_with_it(builder: GraphBuilder) -> None:
    x = builder.input("x", [8, 64], dtype=torch.float32)
    small = []
    for values, indices in [builder.topk(x, [8, 64]) for _ in range(3)]:
        small += [builder.op(values, [16]), builder.op(indices, [16])]
    module, signature = builder.finish(joined(builder, small))
    before = planned(module, signature)
    assert planned(module, signature, schedule=True) < 0.6 * before
    module.graph.lint()


def test_a_limit_that_only_a_better_order_keeps(builder: GraphBuilder) -> None:
    module, signature = builder.finish(joined(builder, fan(builder)))
    with pytest.raises(ModelError, match="EK466"):
        planned(module, signature, arena_limits={1: 2000})
    assert planned(module, signature, schedule=True, arena_limits={1: 2000}) <= 2000


def test_a_planner_that_does_worse_in_the_new_order(builder: GraphBuilder) -> None:
    module, signature = builder.finish(joined(builder, fan(builder)))
    given = names(module)

    def moody(alignment: int, specs: Any, graph_module: GraphModule, *rest: Any) -> MemoryAlgoResult:
        result = greedy(alignment, specs, graph_module, *rest)
        if names(graph_module) != given:
            result.bufsizes[1] += 100_000
        return result

    assert planned(module, signature, schedule=True, memory_planning_algo=moody) == 4 * 1024 + 16
    assert names(module) == given


class Fan(torch.nn.Module):
    """Branches with views, several results, state that is read and written between, and an unused result."""

    state: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", torch.arange(8.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        wide = [torch.cat([x * number, x.sin()] * 8, 1) for number in range(1, 5)]
        before = wide[0].view(-1, 8) @ self.state
        self.state.mul_(0.5).add_(wide[1].sum())
        values, indices = wide[2].topk(3, 1)
        small = [one.reshape(4, -1).amax(1) for one in wide]
        after = torch.stack(small).sum(0) + self.state[:4]
        self.state.add_(before[:8])
        return after, indices, before.mean(), values.sum() + self.state.sum()


@pytest.mark.parametrize("in_place", [False, True])
def test_a_model_with_state_answers_bit_for_bit(in_place: bool) -> None:
    exported = torch.export.export(Fan(), (torch.randn(4, 16),))
    edge = exirkit.to_edge(exported)

    def lowered(schedule: bool) -> ExecutorchProgramManager:
        planning = MemoryPlanningPass(in_place=in_place, schedule=schedule)
        return edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))

    given, better = lowered(False), lowered(True)
    sizes = [each.executorch_program.execution_plan[0].non_const_buffer_sizes[1] for each in (given, better)]
    assert sizes[1] < sizes[0]
    assert sorted(given.debug_handle_map["forward"].values(), key=str) == sorted(
        better.debug_handle_map["forward"].values(), key=str
    )
    plain = Runtime.get().load_program(given.buffer).load_method("forward")
    knowing = (
        Runtime.get()
        .load_program(better.buffer, sanitize=True, views=better.view_bases, in_place=in_place)
        .load_method("forward")
    )
    for _ in range(3):
        x = torch.randn(4, 16)
        for one, other in zip(plain.execute([x]), knowing.execute([x]), strict=True):
            assert torch.equal(one, other)
    again = lowered(True)
    assert again.buffer == better.buffer
