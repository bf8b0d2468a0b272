"""Branches and loop bodies lie in blocks of their parent's arena."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch.fx import GraphModule, Node

from exirkit.ir import ContractError, ModelError, TensorSpec, UsageError
from exirkit.passes.memory.planners import naive
from exirkit.passes.memory.planning_pass import MemoryPlanningPass


def ranges(graph_module: GraphModule, nodes: list[Node] | None = None) -> set[tuple[int, int]]:
    found = set()
    for node in graph_module.graph.nodes if nodes is None else nodes:
        for spec in specs_of(node):
            if spec.mem_offset is not None:
                found.add((spec.mem_offset, spec.mem_offset + spec.nbytes()))
    return found


def own(graph: GraphModule, *around: GraphModule) -> set[tuple[int, int]]:
    """Return the places of what a called graph does not share with the graphs around it."""
    shared = {id(spec) for one in around for node in one.graph.nodes for spec in specs_of(node)}
    nodes = [node for node in graph.graph.nodes if shared.isdisjoint(id(spec) for spec in specs_of(node))]
    return ranges(graph, nodes)


def specs_of(node: Node) -> list[TensorSpec]:
    specs = node.meta.get("spec", [])
    return [specs] if isinstance(specs, TensorSpec) else specs


def disjoint(left: set[tuple[int, int]], right: set[tuple[int, int]]) -> bool:
    return all(a_end <= b or b_end <= a for a, a_end in left for b, b_end in right)


@pytest.fixture
def two_conditionals(builder: Any) -> tuple[GraphModule, Any, list[list[GraphModule]]]:
    pred = builder.input("pred", [], dtype=torch.bool)
    x = builder.op(builder.input("x", [4]), [4])
    branches = [[builder.branch(64, 32), builder.branch(16, 32)], [builder.branch(48, 32), builder.branch(80, 32)]]
    results = []
    for place, pair in enumerate(branches):
        names = [builder.submodule(f"branch_{place}_{side}", graph) for side, graph in enumerate(pair)]
        results.append(builder.cond(pred, names, [x], [32]))
    module, signature = builder.finish(builder.add(*results, [32]))
    return module, signature, branches


def test_results_of_two_conditionals_are_kept_apart(two_conditionals: Any) -> None:
    module, signature, (first, second) = two_conditionals
    MemoryPlanningPass().run(module, signature)
    results = [node for node in module.graph.nodes if node.target is operator.getitem]
    assert disjoint(ranges(module, results[:1]), ranges(module, results[1:]))
    for graph in second:
        assert disjoint(ranges(module, results[:1]), ranges(graph))
    for graph, result in (
        (graph, result) for pair, result in zip((first, second), results, strict=True) for graph in pair
    ):
        assert disjoint(own(graph, module), ranges(module, [result]))


def test_a_branch_computes_instead_of_the_result(two_conditionals: Any) -> None:
    module, signature, branches = two_conditionals
    MemoryPlanningPass().run(module, signature)
    results = [node for node in module.graph.nodes if node.target is operator.getitem]
    for result, pair in zip(results, branches, strict=True):
        for graph in pair:
            (computed,) = graph.graph.output_node().args[0]
            assert computed.meta["spec"] is result.meta["spec"]
            assert ranges(graph, [computed]) == ranges(module, [result])


def test_branches_of_one_conditional_share(two_conditionals: Any) -> None:
    module, signature, (first, _) = two_conditionals
    MemoryPlanningPass().run(module, signature)
    assert not disjoint(ranges(first[0]), ranges(first[1]))
    size = module.meta["non_const_buffer_sizes"][1]
    assert all(end <= size for graph in first for _, end in ranges(graph))


@pytest.mark.parametrize("algorithm", [None, naive])
def test_second_run_changes_nothing(two_conditionals: Any, algorithm: Any) -> None:
    module, signature, branches = two_conditionals
    planner = MemoryPlanningPass(algorithm)
    planner.run(module, signature)
    before = [ranges(graph) for pair in branches for graph in pair]
    assert not planner.run(module, signature).modified
    assert before == [ranges(graph) for pair in branches for graph in pair]


def test_conditional_alone_with_unplanned_inputs_and_outputs_has_an_arena(builder: Any) -> None:
    pred = builder.input("pred", [], dtype=torch.bool)
    x = builder.input("x", [4])
    names = [builder.submodule(name, builder.branch(64, 4)) for name in ("yes", "no")]
    module, signature = builder.finish(builder.cond(pred, names, [x], [4]))
    MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False).run(module, signature)
    assert module.meta["non_const_buffer_sizes"] == [0, 64]


def test_block_is_free_after_the_last_use_of_the_result(builder: Any) -> None:
    pred = builder.input("pred", [], dtype=torch.bool)
    x = builder.op(pred, [4])
    names = [builder.submodule(name, builder.branch(1024, 4)) for name in ("yes", "no")]
    after = builder.op(builder.op(builder.cond(pred, names, [x], [4]), [1024]), [1024])
    module, signature = builder.finish(after)
    MemoryPlanningPass().run(module, signature)
    assert module.meta["non_const_buffer_sizes"][1] < 3 * 1024


def test_nested_conditionals_move_together(builder: Any, new_builder: Any) -> None:
    outer = new_builder()
    pred, arg = outer.input("pred", [], dtype=torch.bool), outer.input("arg", [4])
    inner = [outer.branch(64, 16), outer.branch(32, 16)]
    names = [outer.submodule(f"inner_{side}", graph) for side, graph in enumerate(inner)]
    # 256 bytes in front of the conditional, so that the inner block does not lie at 0.
    wide = outer.op(arg, [256])
    result = outer.cond(pred, names, [arg], [16])
    branch, _ = outer.finish(outer.add(wide, result, [16]))
    top = builder.input("pred", [], dtype=torch.bool)
    x = builder.op(top, [512])
    yes, no = builder.submodule("yes", branch), builder.submodule("no", builder.branch(8, 16))
    module, signature = builder.finish(builder.add(builder.cond(top, [yes, no], [top, x], [16]), x, [16]))
    MemoryPlanningPass().run(module, signature)
    for graph in inner:
        assert disjoint(own(graph, branch, module), ranges(branch, [wide]))
        # What is needed behind the call; its result is not there yet, and the predicates have been read.
        assert disjoint(own(graph, branch, module), ranges(module, [x]))
    assert not MemoryPlanningPass().run(module, signature).modified


def test_body_of_a_loop_that_slices_has_memory_for_its_inputs(builder: Any, new_builder: Any) -> None:
    body = new_builder()
    arg = body.input("arg", [4])
    graph, _ = body.finish(body.op(arg, [4]))
    xs = builder.input("xs", [3, 4])
    node = builder.graph.call_function(torch.ops.higher_order.map_impl, (builder.submodule("body", graph), [xs], []))
    node.meta["spec"] = [TensorSpec(torch.uint8, [3, 4])]
    item = builder.graph.call_function(operator.getitem, (node, 0))
    item.meta["spec"] = node.meta["spec"][0]
    module, signature = builder.finish(builder.op(item, [3, 4]))
    MemoryPlanningPass().run(module, signature)
    assert arg.meta["spec"].mem_offset is not None
    assert disjoint(ranges(graph), ranges(module, [xs, item]))


def test_arenas_of_branches_are_kept(builder: Any) -> None:
    pred = builder.input("pred", [], dtype=torch.bool)
    branch = builder.branch(64, 4)
    next(node for node in branch.graph.nodes if node.meta["spec"].nbytes() == 64).meta["spec"].mem_id = 2
    names = [builder.submodule("yes", branch), builder.submodule("no", builder.branch(16, 4))]
    module, signature = builder.finish(builder.cond(pred, names, [pred], [4]))
    MemoryPlanningPass().run(module, signature)
    assert module.meta["non_const_buffer_sizes"][2] == 64


def test_one_graph_for_two_calls_is_rejected(builder: Any) -> None:
    pred = builder.input("pred", [], dtype=torch.bool)
    names = [builder.submodule(name, builder.branch(64, 4)) for name in ("yes", "no")]
    results = [builder.cond(pred, names, [pred], [4]) for _ in range(2)]
    module, signature = builder.finish(builder.add(*results, [4]))
    with pytest.raises(ModelError, match="EK464"):
        MemoryPlanningPass().run(module, signature)


def test_branch_that_computes_elsewhere_is_found(two_conditionals: Any) -> None:
    module, signature, (first, _) = two_conditionals
    (result,) = first[0].graph.output_node().args[0]
    result.meta["spec"] = result.kwargs["out"].meta["spec"] = TensorSpec(torch.uint8, [32])
    with pytest.raises(ContractError, match="EK349"):
        MemoryPlanningPass().run(module, signature)


def test_graph_called_from_two_graphs_is_rejected(builder: Any, new_builder: Any) -> None:
    shared = builder.branch(64, 4)
    pred = builder.input("pred", [], dtype=torch.bool)
    outer = []
    for name in ("yes", "no"):
        inner = new_builder()
        arg = inner.input("arg", [], dtype=torch.bool)
        names = [inner.submodule("a", shared), inner.submodule("b", builder.branch(8, 4))]
        outer.append(builder.submodule(name, inner.finish(inner.cond(arg, names, [arg], [4]))[0]))
    module, signature = builder.finish(builder.cond(pred, outer, [pred], [4]))
    with pytest.raises(ModelError, match="EK464"):
        MemoryPlanningPass().run(module, signature)


def test_pinned_tensor_inside_of_a_branch_is_rejected(builder: Any) -> None:
    pred = builder.input("pred", [], dtype=torch.bool)
    branch = builder.branch(64, 4)
    next(node for node in branch.graph.nodes if node.op == "call_function").meta["spec"].mem_offset = 0
    names = [builder.submodule("yes", branch), builder.submodule("no", builder.branch(16, 4))]
    module, signature = builder.finish(builder.cond(pred, names, [pred], [4]))
    with pytest.raises(UsageError, match="EK460"):
        MemoryPlanningPass().run(module, signature)
