"""The passes from core ATen to Edge, one by one and together."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import pytest
import torch
from tests.passes.programs import apply, core, edge, exported, outputs, targets
from torch.fx import Node

from exirkit import to_edge
from exirkit.ir import EdgeOpOverload, GraphEditor, ModelError, copy_program, infer_value, same_value
from exirkit.passes import (
    ConvertToEdgeOperators,
    EliminateDeadCode,
    GenerateDebugHandles,
    LiftConstants,
    PromoteTypes,
    RemoveMetadataAsserts,
    RemoveNoops,
    RemoveUnusedInputs,
    ReplaceViewsWithCopies,
    ScalarsToTensors,
    UseDimOrderOperators,
    run_passes,
    to_edge_passes,
)
from exirkit.verifiers import check_edge_program


def metadata_is_true(program: Any) -> bool:
    """Run every node again on the recorded values of its arguments, and compare with what is recorded."""
    mode = GraphEditor(program).fake_mode
    return all(
        same_value(infer_value(mode, node.target, node.args, node.kwargs), node.meta["val"])
        for node in program.graph.nodes
        if node.op == "call_function"
    )


class Mixed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 6)
        self.unused = torch.nn.Parameter(torch.randn(3))

    def forward(self, x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.linear(x).view(2, 3, 3).transpose(1, 2)
        z = torch.relu(y) * 2 + 1
        return z, x[:, :4] + i, (i + 1).to(torch.int64), torch.cat([x, x[:0]])


MIXED_INPUTS = (torch.randn(3, 4), torch.arange(4))


def test_the_whole_sequence_keeps_the_results_and_makes_a_legal_program() -> None:
    program = edge(Mixed(), *MIXED_INPUTS)
    model = Mixed().eval()
    model.load_state_dict({**model.state_dict(), **program.state_dict}, strict=False)
    assert check_edge_program(program) == []
    assert metadata_is_true(program)
    program.validate()
    for ours, eager in zip(outputs(program, *MIXED_INPUTS), model(*MIXED_INPUTS), strict=True):
        assert ours.dtype == eager.dtype
        torch.testing.assert_close(ours, eager)


def test_a_second_run_of_the_sequence_changes_nothing() -> None:
    program = edge(Mixed(), *MIXED_INPUTS)
    reports = run_passes(GraphEditor(program), to_edge_passes())
    assert [report.name for report in reports if report.modified] == []


def test_views_become_row_major_copies_and_users_follow() -> None:
    program = core(lambda x: torch.relu(x.transpose(0, 1)) + x.t(), torch.randn(3, 4))
    assert apply(ReplaceViewsWithCopies(), program).modified
    assert "aten.permute_copy.default" in targets(program)
    assert not any("aten.permute.default" in name for name in targets(program))
    assert metadata_is_true(program)
    for node in program.graph.nodes:
        if node.op == "call_function":
            assert node.meta["val"].is_contiguous()


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.view(-1),
        lambda x: x.unsqueeze(0).squeeze(0),
        lambda x: x.expand(2, 3, 4),
        lambda x: x[1:, ::2],
        lambda x: x.select(0, 1),
        lambda x: torch.stack(x.split([1, 2])[0].unbind(1)),
        lambda x: x.diagonal(),
        lambda x: x.unfold(1, 2, 1),
        lambda x: x.detach().alias() if hasattr(x, "alias") else x.detach(),
        lambda x: x.to(torch.float32),
    ],
)
def test_no_view_is_left(view: Any) -> None:
    x = torch.randn(3, 4)
    program = edge(lambda x: view(x) + 0.5, x)
    for node in program.graph.nodes:
        if isinstance(node.target, EdgeOpOverload):
            assert not node.target.is_view, node
    torch.testing.assert_close(outputs(program, x)[0], view(x) + 0.5, rtol=0, atol=0)


DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)


@pytest.mark.parametrize("function", [operator.add, operator.sub, operator.mul, operator.truediv, torch.minimum])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scalars_keep_the_dtype_and_the_value_of_eager(function: Any, dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 1, 2], [3, 5, 7]]).to(dtype)
    for scalar in (2, 2.5, True):
        if function is operator.sub and (dtype is torch.bool or scalar is True):
            continue
        other = torch.tensor(scalar) if function is torch.minimum else scalar

        def with_scalar(x: torch.Tensor, other: Any = other) -> torch.Tensor:
            result: torch.Tensor = function(x, other)
            return result

        program = edge(with_scalar, x)
        eager = with_scalar(x)
        ours = outputs(program, x)[0]
        assert ours.dtype == eager.dtype, (scalar, dtype)
        torch.testing.assert_close(ours, eager)
        assert check_edge_program(program) == []


def test_a_float_scalar_costs_no_cast_at_run_time() -> None:
    program = edge(lambda x: (x + 1) * 2, torch.randn(3))
    assert targets(program) == ["aten.add.Tensor", "aten.mul.Tensor"]
    assert {str(tensor.dtype) for tensor in program.constants.values()} == {"torch.float32"}


def test_equal_scalars_share_a_constant_and_different_ones_do_not() -> None:
    program = edge(lambda x, i: (x + 1 + 1.0, x * -0.0 + 0.0, i + 1), torch.randn(3), torch.arange(3))
    values = sorted((str(tensor.dtype), str(tensor.item())) for tensor in program.constants.values())
    assert values == [
        ("torch.float32", "-0.0"),
        ("torch.float32", "0.0"),
        ("torch.float32", "1.0"),
        ("torch.int64", "1"),
    ]


def test_a_number_too_large_for_any_tensor_is_an_error_with_its_place() -> None:
    program = core(lambda i: i + 1, torch.arange(3))
    node = next(node for node in program.graph.nodes if node.op == "call_function")
    node.args = (node.args[0], 2**70)
    with pytest.raises(ModelError) as caught:
        ScalarsToTensors().run(GraphEditor(program))
    assert caught.value.code == "EK423"
    assert node.args[1] == 2**70, "the pass was rolled back"


@pytest.mark.parametrize(("left", "right"), list(itertools.combinations(DTYPES[1:], 2)), ids=str)
def test_promoted_operands_agree_and_results_are_those_of_eager(left: torch.dtype, right: torch.dtype) -> None:
    a, b = torch.tensor([1, 2, 3]).to(left), torch.tensor([3, 2, 1]).to(right)
    program = edge(lambda a, b: (a + b, a * b, torch.maximum(a, b)), a, b)
    for node in program.graph.nodes:
        if str(node.target) in ("aten.add.Tensor", "aten.mul.Tensor", "aten.maximum.default"):
            assert node.args[0].meta["val"].dtype == node.args[1].meta["val"].dtype
    for ours, eager in zip(outputs(program, a, b), (a + b, a * b, torch.maximum(a, b)), strict=True):
        assert ours.dtype == eager.dtype
        torch.testing.assert_close(ours, eager, rtol=0, atol=0)


def test_what_counts_for_kernels_only_is_cast_before_a_choice() -> None:
    condition, x, zero = torch.tensor([True, False]), torch.ones(2), torch.tensor(0.5, dtype=torch.float64)
    program = edge(torch.where, condition, x, zero)
    (node,) = (node for node in program.graph.nodes if str(node.target) == "aten.where.self")
    assert [one.meta["val"].dtype for one in node.args] == [torch.bool, torch.float32, torch.float32]
    (chosen,) = outputs(program, condition, x, zero)
    assert torch.equal(chosen, torch.where(condition, x, zero))
    # Kernels promote tensors with dims as torch does.
    assert not PromoteTypes().run(GraphEditor(core(torch.where, condition, x, torch.tensor([1, 2])))).modified


def test_promotion_leaves_equal_dtypes_alone() -> None:
    program = core(lambda a, b: a + b, torch.randn(2), torch.randn(2))
    assert not PromoteTypes().run(GraphEditor(program)).modified


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (lambda x: x.clone() + x, ["aten.add.Tensor"]),
        (lambda x: x.to(torch.float32, copy=True) + x, ["aten.add.Tensor"]),
        (lambda x: x[:] + x[:, 0:9], ["aten.add.Tensor"]),
        (lambda x: x.expand(3, 4) + x.view(3, 4), ["aten.add.Tensor"]),
        (lambda x: x.permute(0, 1) + x.repeat(1, 1), ["aten.add.Tensor"]),
        (lambda x: torch.cat([x]) + x, ["aten.add.Tensor"]),
        (lambda x: torch.cat([x, x[:0]]) + x, ["aten.add.Tensor"]),
        (lambda x: x.to(torch.float64) + x, ["aten._to_copy.default", "aten._to_copy.default", "aten.add.Tensor"]),
        (lambda x: x[1:] + x[:-1], ["aten.slice_copy.Tensor", "aten.slice_copy.Tensor", "aten.add.Tensor"]),
    ],
)
def test_noops_go_and_others_stay(function: Any, left: list[str]) -> None:
    x = torch.randn(3, 4)
    program = core(function, x)
    editor = GraphEditor(program)
    passes = [RemoveMetadataAsserts(), ReplaceViewsWithCopies(), PromoteTypes(), RemoveNoops(), EliminateDeadCode()]
    run_passes(editor, passes)
    assert targets(program) == left
    torch.testing.assert_close(outputs(program, x)[0], function(x), rtol=0, atol=0)


def test_a_copy_that_changes_the_layout_is_no_noop() -> None:
    program = core(lambda x: x.contiguous(memory_format=torch.channels_last) + 1.0, torch.randn(1, 2, 3, 4))
    assert not RemoveNoops().run(GraphEditor(program)).modified


def test_a_clone_of_an_input_stays_where_the_program_returns_it() -> None:
    x = torch.randn(3)
    program = edge(lambda x: (x.clone(), x + 1, x.clone() + 2), x)
    torch.testing.assert_close(outputs(program, x)[0], x)
    assert [str(target) for target in targets(program)].count("dim_order_ops._clone_dim_order.default") == 1


def test_dim_order_operators_state_the_layout() -> None:
    x = torch.randn(1, 2, 3, 4)
    program = edge(lambda x: x.to(memory_format=torch.channels_last).to(torch.float64), x)
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    assert {str(node.target) for node in calls} == {"dim_order_ops._to_dim_order_copy.default"} or {
        str(node.target) for node in calls
    } == {"dim_order_ops._to_dim_order_copy.default", "dim_order_ops._clone_dim_order.default"}
    assert calls[-1].kwargs["dim_order"] == [0, 2, 3, 1]
    assert outputs(program, x)[0].stride() == x.to(memory_format=torch.channels_last).stride()


def test_dim_order_operators_can_be_skipped() -> None:
    program = copy_program(core(lambda x: x.to(torch.float64), torch.randn(3)))
    run_passes(GraphEditor(program), to_edge_passes(skip_dim_order=True))
    assert targets(program) == ["aten._to_copy.default"]
    assert UseDimOrderOperators().run(GraphEditor(program)).modified


def test_unused_weights_go_from_graph_signature_and_state() -> None:
    program = core(Mixed(), *MIXED_INPUTS)
    assert apply(RemoveUnusedInputs(), program).modified
    assert "unused" not in program.state_dict
    assert all(spec.target != "unused" for spec in program.graph_signature.input_specs)


def test_unused_inputs_of_the_user_stay() -> None:
    program = edge(lambda x, y: x + 1, torch.randn(2), torch.randn(2))
    assert len(program.graph_signature.user_inputs) == 2


def test_dead_code_goes_in_one_sweep_and_writes_stay() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        _ = torch.relu(torch.sin(x) + 1)
        return x * 2

    program = copy_program(exported(model, torch.randn(2)))
    report = apply(EliminateDeadCode(), program)
    assert report.erased == 3 or targets(program) == ["aten.mul.Tensor"]


def test_debug_handles_count_from_one_and_parts_share_the_handle_of_the_whole() -> None:
    program = edge(
        lambda x: torch.nn.functional.linear(torch.relu(x), torch.ones(2, 4), torch.ones(2)), torch.randn(3, 4)
    )
    handles = {
        str(node.target): node.meta["debug_handle"] for node in program.graph.nodes if node.op == "call_function"
    }
    assert min(handles.values()) >= 1
    assert handles["aten.addmm.default"] == handles["aten.permute_copy.default"]
    assert handles["aten.addmm.default"] != handles["aten.relu.default"]
    assert not GenerateDebugHandles().run(GraphEditor(program)).modified


def test_every_call_of_an_edge_program_leads_back_to_a_source_line() -> None:
    program = edge(Mixed(), *MIXED_INPUTS)
    for node in program.graph.nodes:
        if node.op == "call_function":
            assert "test_to_edge.py" in node.meta["stack_trace"], node


def test_tensor_attributes_become_constants() -> None:
    program = core(lambda x: x + 1.0, torch.randn(2))
    module = program.graph_module
    module.register_buffer("extra", torch.tensor([3.0, 4.0]))
    add = next(node for node in module.graph.nodes if node.op == "call_function")
    with module.graph.inserting_before(add):
        attribute = module.graph.get_attr("extra")
    add.args = (add.args[0], attribute)
    assert apply(LiftConstants(), program).modified
    assert not program.graph.find_nodes(op="get_attr")
    torch.testing.assert_close(outputs(program, torch.zeros(2))[0], torch.tensor([3.0, 4.0]))


def test_metadata_asserts_go() -> None:
    program = copy_program(exported(lambda x: x.to(torch.float64), torch.randn(2)))
    had = any("_assert_tensor_metadata" in name for name in targets(program))
    assert RemoveMetadataAsserts().run(GraphEditor(program)).modified == had
    assert not any("_assert_tensor_metadata" in name for name in targets(program))


def test_edge_nodes_are_named_after_their_operator() -> None:
    program = core(lambda x: torch.relu(x) + x, torch.randn(2))
    apply(ConvertToEdgeOperators(), program)
    assert [node.name for node in program.graph.nodes if node.op == "call_function"] == [
        "aten_relu_default",
        "aten_add_tensor",
    ]
    spec = program.graph_signature.output_specs[0]
    assert spec.arg.name == "aten_add_tensor"


def test_the_exported_program_is_not_changed() -> None:
    program = exported(Mixed(), *MIXED_INPUTS)
    before = str(program.graph), str(program.graph_signature), sorted(program.state_dict), sorted(program.constants)
    metas = {node.name: dict(node.meta) for node in program.graph.nodes}
    from exirkit import to_edge

    to_edge(program)
    after = str(program.graph), str(program.graph_signature), sorted(program.state_dict), sorted(program.constants)
    assert before == after
    for node in program.graph.nodes:
        assert metas[node.name].keys() == node.meta.keys()
        assert all(metas[node.name][key] is node.meta[key] for key in node.meta)


def test_thousands_of_nodes_need_no_recursion() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        for _ in range(1_500):
            x = torch.relu(x + 1.0)
        return x

    program = edge(model, torch.randn(2))
    assert len([node for node in program.graph.nodes if isinstance(node, Node)]) > 3_000


def test_arguments_that_passes_name_are_written_by_position() -> None:
    program = exported(torch.nn.Hardtanh(-1.0, 1.0), torch.randn(3))
    (node,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten.hardtanh.default)
    node.target, node.args, node.kwargs = torch.ops.aten.clamp.default, node.args[:1], {"max": 0.5}
    lowered = to_edge(program).exported_program()
    (call,) = (one for one in lowered.graph.nodes if one.op == "call_function")
    assert call.args[1:] == (None, 0.5)
    assert not call.kwargs
