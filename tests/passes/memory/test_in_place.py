"""In-place results: what is planned, what the verifier rejects, and what a sanitized run sees."""

from __future__ import annotations

from typing import Any

import torch
from tests.passes.memory.conftest import GraphBuilder, share_spec
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec, TensorArgument
from torch.fx import Node

import exirkit
from exirkit.ir import in_place_operators
from exirkit.passes.memory.planners import naive
from exirkit.passes.memory.planning_pass import MemoryPlanningPass
from exirkit.runtime_ref import Runtime
from exirkit.verifiers import check_memory_plan

ATEN = torch.ops.aten


def place(node: Node) -> int | None:
    offset: int | None = node.meta["spec"].mem_offset
    return offset


def planned(module: Any, signature: Any, **options: Any) -> int:
    MemoryPlanningPass(in_place=True, **options).run(module, signature)
    return int(module.meta["non_const_buffer_sizes"][1])


def test_every_entry_names_arguments_of_an_operator() -> None:
    for name, results in in_place_operators().items():
        base, _, overload = name.removeprefix("aten::").partition(".")
        schema = getattr(getattr(ATEN, base), overload)._schema
        outs = {argument.name for argument in schema.arguments if argument.is_out}
        rest = {argument.name for argument in schema.arguments if "Tensor" in str(argument.type)} - outs
        assert results.keys() <= outs, name
        assert all(set(names) <= rest and names for names in results.values()), name


def test_a_chain_of_elementwise_operators_needs_one_place(builder: GraphBuilder) -> None:
    first = builder.op(builder.input("x", [64]), [64])
    second = builder.op(first, [64])
    module, signature = builder.finish(builder.op(second, [64]))
    assert planned(module, signature) == 64
    assert not MemoryPlanningPass(in_place=True).run(module, signature).modified
    assert place(first) == place(second)
    MemoryPlanningPass().run(module, signature)
    assert module.meta["non_const_buffer_sizes"] == [0, 128]


def test_what_is_needed_later_is_not_overwritten(builder: GraphBuilder) -> None:
    first = builder.op(builder.input("x", [64]), [64])
    second = builder.op(first, [64])
    module, signature = builder.finish(builder.add(first, second, [64]), second)
    assert planned(module, signature) == 128
    assert place(first) != place(second)


def test_neither_operators_that_are_not_listed_nor_other_forms(builder: GraphBuilder) -> None:
    x = builder.input("x", [64])
    flipped = builder.op(x, [64], target=ATEN.flip.out)
    narrow = builder.op(flipped, [64], dtype=torch.int8)
    module, signature = builder.finish(builder.op(narrow, [8, 8], dtype=torch.int8))
    assert planned(module, signature) == 128


def test_another_view_of_the_overwritten_memory_may_be_read_in_another_order(builder: GraphBuilder) -> None:
    first = builder.op(builder.input("x", [4]), [4, 4])
    column = builder.view(first, [1, 4, 4])
    total = builder.add(first, column, [4, 4])
    module, signature = builder.finish(total)
    planned(module, signature)
    assert place(total) != place(first)


def test_state_and_constants_are_left_alone(builder: GraphBuilder) -> None:
    weight = builder.input("weight", [64], InputKind.PARAMETER)
    state = builder.input("state", [64], InputKind.BUFFER)
    total = builder.add(state, weight, [64])
    builder.write(state, total)
    module, signature = builder.finish(
        *[node for node in builder.graph.nodes if node.target is ATEN.copy_.default], total
    )
    planned(module, signature)
    assert place(total) != place(state)


def test_a_buffer_that_a_result_is_written_to_takes_over_no_memory(builder: GraphBuilder) -> None:
    state = builder.input("state", [64], InputKind.BUFFER)
    kept = builder.op(state, [64])
    first = builder.op(builder.input("x", [64]), [64])
    total = builder.add(first, kept, [64])
    builder.mutations.append(OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(total.name), "model.state"))
    module, signature = builder.finish(total)
    # As passes leave it that need no copy at the end.
    share_spec(module, total.meta["spec"], state.meta["spec"])
    planned(module, signature)
    assert place(total) == place(state)
    assert place(state) not in (place(first), place(kept))


def test_inputs_of_a_body_are_left_alone(builder: GraphBuilder, new_builder: Any) -> None:
    bodies = [new_builder(), new_builder()]
    names = []
    for number, body in enumerate(bodies):
        argument = body.input("arg", [64])
        inner = body.op(body.op(argument, [64]), [64])
        names.append(builder.submodule(f"branch{number}", body.finish(inner)[0]))
    module, signature = builder.finish(builder.cond(builder.input("p", [1]), names, [builder.input("x", [64])], [64]))
    planned(module, signature)
    assert not check_memory_plan(module, signature, in_place=True)


def test_without_a_gain_nothing_changes(builder: GraphBuilder) -> None:
    first = builder.op(builder.input("x", [16]), [64])
    module, signature = builder.finish(builder.op(first, [16], target=ATEN.sum.IntList_out))
    sizes = [planned(module, signature)]
    MemoryPlanningPass().run(module, signature)
    assert sizes == module.meta["non_const_buffer_sizes"][1:]


def test_the_verifier_rejects_overwriting_that_was_not_asked_for_or_is_wrong(builder: GraphBuilder) -> None:
    first = builder.op(builder.input("x", [64]), [64])
    second = builder.op(first, [64])
    third = builder.add(first, second, [64])
    module, signature = builder.finish(builder.op(third, [64]))
    planned(module, signature)
    assert [one.code for one in check_memory_plan(module, signature)][:1] == ["EK341"]
    assert not check_memory_plan(module, signature, in_place=True)
    second.meta["spec"].mem_offset = place(first)
    assert {one.code for one in check_memory_plan(module, signature, in_place=True)} == {"EK341"}


class Elementwise(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(torch.tanh(x.sin() * y) + y.cos(), -1).view(-1).exp().clone()


def lowered(**options: Any) -> Any:
    inputs = (torch.randn(3, 40), torch.randn(40))
    edge = exirkit.to_edge(torch.export.export(Elementwise(), inputs))
    return edge.to_executorch(exirkit.ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(**options)))


def test_a_sanitized_run_accepts_the_plan_and_gives_the_same_bits() -> None:
    inputs = (torch.randn(3, 40), torch.randn(40))
    results = []
    for options in ({"in_place": True}, {"memory_planning_algo": naive}):
        manager = lowered(**options)
        program = Runtime.get().load_program(
            manager.buffer, sanitize=True, views=manager.view_bases, in_place="in_place" in options
        )
        method = program.load_method("forward")
        results.append([method.execute(inputs)[0] for _ in range(2)])
    assert all(torch.equal(left, right) for left, right in zip(*results, strict=True))
    sizes = [
        lowered(in_place=flag).executorch_program.execution_plan[0].non_const_buffer_sizes for flag in (True, False)
    ]
    assert sum(sizes[0]) < sum(sizes[1])
