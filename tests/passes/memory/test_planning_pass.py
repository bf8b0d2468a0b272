from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.export.graph_signature import ExportGraphSignature, InputKind
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassResult

from exirkit.ir import ContractError, ModelError, TensorShapeDynamism, TensorSpec, UsageError
from exirkit.passes.memory.planners import (
    MemoryAlgoResult,
    MemoryPlanningAlgorithmSuite,
    SpecAllocResult,
    greedy,
    naive,
)
from exirkit.passes.memory.planning_pass import MemoryPlanningPass


def spec_of(node: Node) -> TensorSpec:
    return node.meta["spec"]


def placed(node: Node) -> bool:
    return spec_of(node).mem_offset is not None


def place(node: Node) -> tuple[int | None, int | None]:
    return spec_of(node).mem_id, spec_of(node).mem_offset


def test_chain_reuses_memory(builder: Any) -> None:
    x = builder.input("x", [100])
    values = [x]
    for _ in range(6):
        values.append(builder.op(values[-1], [100]))
    module, signature = builder.finish(values[-1])
    result = MemoryPlanningPass().run(module, signature)
    assert isinstance(result, PassResult)
    assert result.graph_module is module
    assert result.modified
    assert module.meta["non_const_buffer_sizes"] == [0, 224]
    assert {place(value) for value in values} == {(1, 0), (1, 112)}
    assert spec_of(values[1]).lifetime == [1, 4]


def test_second_run_changes_nothing_and_says_so(builder: Any) -> None:
    x = builder.input("x", [100])
    request = builder.op(x, [64])
    spec_of(request).mem_id, spec_of(request).mem_offset = 2, 4096
    module, signature = builder.finish(builder.op(request, [64]))
    planner = MemoryPlanningPass()
    assert planner.run(module, signature).modified
    sizes = list(module.meta["non_const_buffer_sizes"])
    assert not planner.run(module, signature).modified
    assert module.meta["non_const_buffer_sizes"] == sizes
    assert place(request) == (2, 4096)
    assert sizes[2] == 4160


def test_other_policy_takes_back_what_the_first_planned(builder: Any) -> None:
    x = builder.input("x", [100])
    module, signature = builder.finish(builder.op(builder.op(x, [8]), [8]))
    MemoryPlanningPass().run(module, signature)
    assert placed(x)
    assert MemoryPlanningPass(alloc_graph_input=False).run(module, signature).modified
    assert not placed(x)


@pytest.mark.parametrize("alloc_input", [True, False])
@pytest.mark.parametrize("alloc_output", [True, False])
@pytest.mark.parametrize("alloc_state", [True, False])
def test_who_provides_what(builder: Any, alloc_input: bool, alloc_output: bool, alloc_state: bool) -> None:
    weight = builder.input("weight", [32], InputKind.PARAMETER)
    fixed = builder.input("fixed", [32], InputKind.BUFFER)
    state = builder.input("state", [32], InputKind.BUFFER)
    x = builder.input("x", [32])
    handed = builder.input("handed", [32])
    inner = builder.add(builder.add(builder.add(weight, fixed, [32]), state, [32]), x, [32])
    write = builder.write(state, inner)
    result = builder.op(inner, [32])
    module, signature = builder.finish(write, result, handed, weight)
    planner = MemoryPlanningPass(
        alloc_graph_input=alloc_input, alloc_graph_output=alloc_output, alloc_mutable_buffers=alloc_state
    )
    planner.run(module, signature)
    assert not placed(weight)
    assert not placed(fixed)
    assert placed(inner)
    assert placed(state) == alloc_state
    assert placed(x) == alloc_input
    assert placed(result) == alloc_output
    assert placed(handed) == (alloc_input and alloc_output)


def test_state_is_overwritten_by_nothing(builder: Any) -> None:
    state = builder.input("state", [64], InputKind.BUFFER)
    value = builder.op(state, [64])
    write = builder.write(state, value)
    for _ in range(4):
        value = builder.op(value, [64])
    module, signature = builder.finish(write, value)
    MemoryPlanningPass().run(module, signature)
    others = {place(node) for node in module.graph.nodes if node.meta.get("spec") not in (None, spec_of(state))}
    assert place(state) not in others


def test_view_gets_the_place_of_its_base(builder: Any) -> None:
    base = builder.op(builder.input("x", [4]), [64])
    flat = builder.view(base, [8, 8])
    late = builder.view(base, [4, 16], linked=False)
    row = builder.view(flat, [8], 24)
    other = builder.op(base, [64])
    module, signature = builder.finish(builder.add(other, row, [64]), late)
    MemoryPlanningPass().run(module, signature)
    assert place(flat) == place(late) == place(base)
    assert place(row) == (1, (spec_of(base).mem_offset or 0) + 24)
    assert place(other) != place(base)


def test_view_of_what_is_not_planned_has_no_place(builder: Any) -> None:
    weight = builder.input("weight", [16], InputKind.PARAMETER)
    x = builder.input("x", [16])
    views = [builder.view(weight, [4, 4]), builder.view(x, [4, 4])]
    module, signature = builder.finish(builder.add(*views, [4, 4]))
    MemoryPlanningPass(alloc_graph_input=False).run(module, signature)
    assert not any(map(placed, views))


def test_result_of_in_place_operator_takes_the_spec_of_its_argument(builder: Any) -> None:
    state = builder.input("state", [16], InputKind.BUFFER)
    write = builder.write(state, builder.op(state, [16]))
    write.meta["spec"] = TensorSpec(torch.uint8, [16])
    module, signature = builder.finish(write)
    MemoryPlanningPass().run(module, signature)
    assert spec_of(write) is spec_of(state)


def test_outputs_of_one_operator(builder: Any) -> None:
    values, indices = builder.topk(builder.input("x", [8]), [4])
    module, signature = builder.finish(builder.add(values, indices, [4]))
    MemoryPlanningPass().run(module, signature)
    assert placed(values)
    assert placed(indices)
    assert place(values) != place(indices)


def test_subclass_may_choose_arenas(builder: Any) -> None:
    """The example of the ExecuTorch documentation: results of add lie in arena 2."""

    class CustomPoolMemoryPlanningPass(MemoryPlanningPass):
        def run(self, graph_module: GraphModule, graph_signature: ExportGraphSignature | None = None) -> PassResult:
            for subgm in graph_module.modules():
                if not isinstance(subgm, GraphModule):
                    continue
                for node in subgm.graph.nodes:
                    if node.op == "placeholder":
                        node.meta["spec"].mem_id = 1
                    elif node.op == "call_function" and node.target == torch.ops.aten.add.out:
                        node.meta["spec"].mem_id = 2
            return super().run(graph_module, graph_signature)

    weight = builder.input("weight", [64], InputKind.PARAMETER)
    x = builder.input("x", [64])
    added = builder.add(weight, x, [64])
    module, signature = builder.finish(builder.op(added, [32]))
    CustomPoolMemoryPlanningPass(memory_planning_algo=greedy).run(module, signature)
    assert place(x)[0] == 1
    assert place(added)[0] == 2
    assert module.meta["non_const_buffer_sizes"] == [0, 64, 64]


def test_algorithms_of_all_kinds(builder: Any) -> None:
    x = builder.input("x", [16])
    module, signature = builder.finish(builder.op(builder.op(x, [16]), [16]))

    def writes_itself(alignment: int, specs: Sequence[TensorSpec], *_: object) -> list[int]:
        for index, spec in enumerate(specs):
            spec.mem_id, spec.mem_offset = 1, index * alignment
        return [0, len(specs) * alignment]

    expected: dict[Any, int] = {
        naive: 48,
        greedy: 32,
        writes_itself: 48,
        MemoryPlanningAlgorithmSuite([naive, greedy]): 32,
    }
    for algorithm, size in expected.items():
        MemoryPlanningPass(algorithm).run(module, signature)
        assert module.meta["non_const_buffer_sizes"] == [0, size]
        assert not MemoryPlanningPass(algorithm).run(module, signature).modified


def test_overlapping_plan_is_rejected_and_names_the_algorithm(builder: Any) -> None:
    x = builder.input("x", [16])
    module, signature = builder.finish(builder.op(builder.op(x, [16]), [16]))

    def everything_at_zero(alignment: int, specs: Sequence[TensorSpec], *_: object) -> MemoryAlgoResult:
        return MemoryAlgoResult({spec: SpecAllocResult(1, 0, 0) for spec in specs}, [0, 16])

    with pytest.raises(ContractError, match=r"algorithm=everything_at_zero") as caught:
        MemoryPlanningPass(functools.partial(everything_at_zero)).run(module, signature)
    assert caught.value.code == "EK341"
    MemoryPlanningPass(everything_at_zero, allow_lifetime_and_storage_overlap=True).run(module, signature)


@pytest.mark.parametrize(
    "result",
    [
        None,
        [0, -1],
        [16, 16],
        MemoryAlgoResult({}, [0, 16]),
        "places",
    ],
)
def test_malformed_results_are_rejected(builder: Any, result: Any) -> None:
    x = builder.input("x", [16])
    module, signature = builder.finish(builder.op(x, [16]))
    with pytest.raises(ContractError, match="EK455"):
        MemoryPlanningPass(lambda *_: result).run(module, signature)


def test_algorithm_that_moves_a_pinned_tensor_is_rejected(builder: Any) -> None:
    x = builder.input("x", [16])
    spec_of(x).mem_offset = 64
    module, signature = builder.finish(builder.op(x, [16]))

    def sequential(alignment: int, specs: Sequence[TensorSpec], *_: object) -> MemoryAlgoResult:
        places = {spec: SpecAllocResult(1, 0, 16 * index) for index, spec in enumerate(specs)}
        return MemoryAlgoResult(places, [0, 256])

    with pytest.raises(ContractError, match="pinned to byte 64"):
        MemoryPlanningPass(sequential).run(module, signature)


def test_large_alignment(builder: Any) -> None:
    x = builder.input("x", [16])
    values = [builder.op(x, [16]), builder.op(x, [5000])]
    module, signature = builder.finish(*values)
    MemoryPlanningPass(alignment=4096).run(module, signature)
    assert module.meta["non_const_buffer_sizes"] == [0, 4 * 4096]
    assert all((spec_of(value).mem_offset or 0) % 4096 == 0 for value in values)
    assert spec_of(values[1]).allocated_memory == 8192


def test_calling_without_signature_plans_everything(builder: Any) -> None:
    x = builder.input("x", [16])
    module, _ = builder.finish(builder.op(x, [16]))
    assert MemoryPlanningPass()(module).modified
    assert module.meta["non_const_buffer_sizes"] == [0, 32]


def test_nothing_to_plan(builder: Any) -> None:
    weight = builder.input("weight", [16], InputKind.PARAMETER)
    module, signature = builder.finish(weight)
    MemoryPlanningPass().run(module, signature)
    assert module.meta["non_const_buffer_sizes"] == [0, 0]


def test_what_is_shared_has_to_be_planned() -> None:
    with pytest.raises(UsageError, match="EK457"):
        MemoryPlanningPass(share_mutable_buffers=True, alloc_mutable_buffers=False)
    MemoryPlanningPass(share_mutable_buffers=True).run_multimethod()


def test_unbounded_tensor_is_rejected_with_its_node(builder: Any) -> None:
    unbounded = builder.op(builder.input("x", [16]), [16])
    spec_of(unbounded).shape_dynamism = TensorShapeDynamism.DYNAMIC_UNBOUND
    module, signature = builder.finish(builder.op(unbounded, [16]))
    with pytest.raises(ModelError, match="EK452") as caught:
        MemoryPlanningPass().run(module, signature)
    assert caught.value.diagnostics[0].location.node == "%alloc"


def test_returned_view_needs_planned_outputs(builder: Any) -> None:
    base = builder.op(builder.input("x", [16]), [16])
    module, signature = builder.finish(builder.view(base, [4, 4]))
    MemoryPlanningPass().run(module, signature)
    with pytest.raises(ContractError, match="EK454"):
        MemoryPlanningPass(alloc_graph_output=False).run(module, signature)


def test_view_without_spec_and_with_lost_base(builder: Any) -> None:
    view = builder.view(builder.op(builder.input("x", [16]), [16]), [4, 4])
    module, signature = builder.finish(view)
    spec_of(view).storage_base = TensorSpec(torch.uint8, [16])
    with pytest.raises(ContractError, match="EK462"):
        MemoryPlanningPass().run(module, signature)
    del view.meta["spec"]
    with pytest.raises(ContractError, match="EK456"):
        MemoryPlanningPass().run(module, signature)


def test_xnnpack_kernels_read_past_the_end(builder: Any) -> None:
    delegate = torch.nn.Module()
    delegate.backend_id = "XnnpackBackend"  # type: ignore[assignment]
    builder.root.add_module("lowered", delegate)
    x = builder.input("x", [16])
    builder.graph.get_attr("lowered")
    module, signature = builder.finish(builder.op(x, [16]))
    MemoryPlanningPass().run(module, signature)
    assert module.meta["non_const_buffer_sizes"] == [0, 32 + 64]


def test_bad_alignment() -> None:
    with pytest.raises(UsageError, match="EK459"):
        MemoryPlanningPass(alignment=-16)


def test_symbolic_shape_is_rejected_with_its_node(builder: Any) -> None:
    symbolic = builder.op(builder.input("x", [16]), [16])
    spec_of(symbolic).shape = [torch.fx.experimental.symbolic_shapes.ShapeEnv().create_unbacked_symint()]
    module, signature = builder.finish(symbolic)
    with pytest.raises(ModelError, match="EK451") as caught:
        MemoryPlanningPass().run(module, signature)
    assert caught.value.diagnostics[0].location.node == "%alloc"


def test_an_arena_beyond_its_limit_is_rejected_and_what_fills_it_is_named(builder: Any) -> None:
    x = builder.input("x", [64])
    large = builder.op(x, [160])
    module, signature = builder.finish(builder.op(large, [16]))
    MemoryPlanningPass(arena_limits={1: 224, 7: 0}).run(module, signature)
    with pytest.raises(ModelError, match="EK466") as caught:
        MemoryPlanningPass(arena_limits={1: 223}).run(module, signature)
    (finding,) = caught.value.diagnostics
    assert finding.message == "arena 1 needs 224 bytes, 1 more than the 223 there are"
    assert finding.notes[0].startswith("224 bytes are live at step ")
    assert [note.partition(":")[0] for note in finding.notes[1:]] == [f"%{large.name}", f"%{x.name}"]
    assert "in_place" in (finding.hint or "")
    with pytest.raises(ModelError, match="another planner may do"):
        MemoryPlanningPass(naive, arena_limits={1: 230}).run(module, signature)
    for limits in ({0: 1}, {1: -1}, {1: 1.5}):
        with pytest.raises(UsageError, match="EK467"):
            MemoryPlanningPass(arena_limits=limits)  # type: ignore[arg-type]
