"""The passes from core ATen to Edge, one by one and together."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import pytest
import torch
from tests.passes.programs import apply, core, edge, exported, outputs, targets
from torch.fx import Node

from exirkit import EdgeCompileConfig, to_edge
from exirkit.ir import GraphEditor, ModelError, copy_program, infer_value, same_value
from exirkit.passes import (
    GenerateDebugHandles,
    LiftConstants,
    RemoveMetadataAsserts,
    ScalarsToTensors,
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


def test_a_preserved_operator_stays_though_it_changes_nothing() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x.clone()[torch.tensor([0, 2])])

    program = exported(model, torch.randn(3))
    copies = [torch.ops.aten.lift_fresh_copy.default, torch.ops.aten.clone.default]
    for kept in ([], copies[:1], copies[1:], copies):
        made = to_edge(program, compile_config=EdgeCompileConfig(preserve_ops=kept)).exported_program()
        found = [name for name in targets(made) if "clone" in name or "copy" in name]
        assert len(found) == len(kept), (kept, found)


def test_metadata_asserts_go() -> None:
    program = copy_program(exported(lambda x: x.to(torch.float64), torch.randn(2)))
    had = any("_assert_tensor_metadata" in name for name in targets(program))
    assert RemoveMetadataAsserts().run(GraphEditor(program)).modified == had
    assert not any("_assert_tensor_metadata" in name for name in targets(program))


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
        for _ in range(600):
            x = torch.relu(x + 1.0)
        return x

    program = edge(model, torch.randn(2))
    assert len([node for node in program.graph.nodes if isinstance(node, Node)]) > 1_200


def test_arguments_that_passes_name_are_written_by_position() -> None:
    program = exported(torch.nn.Hardtanh(-1.0, 1.0), torch.randn(3))
    (node,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten.hardtanh.default)
    node.target, node.args, node.kwargs = torch.ops.aten.clamp.default, node.args[:1], {"max": 0.5}
    lowered = to_edge(program).exported_program()
    (call,) = (one for one in lowered.graph.nodes if one.op == "call_function")
    assert call.args[1:] == (None, 0.5)
    assert not call.kwargs


@pytest.mark.parametrize(
    ("function", "operator_name", "hint"),
    [
        (lambda x: torch.fft.fftn(x, dim=(0, 1)).real, "aten::_fft_c2c", "matrices of cosines and sines"),
        (lambda x: torch.fft.rfft(x).real, "aten::view_as_real", "in two real tensors"),
        (lambda x: torch.view_as_real(torch.polar(x, x)), "aten::polar", "in two real tensors"),
    ],
)
def test_complex_numbers_are_rejected_with_a_way_out(function: Any, operator_name: str, hint: str) -> None:
    with pytest.raises(ModelError) as caught:
        to_edge(exported(function, torch.randn(2, 4)))
    first = caught.value.diagnostics[0]
    assert first.code == "EK301"
    assert first.message == f"{operator_name} is not a core ATen operator: it computes complex numbers"
    assert hint in (first.hint or "")
    assert first.location.source is not None


def test_lists_among_the_results_of_a_decomposition_are_left_to_torch() -> None:
    with pytest.raises(ModelError) as caught:
        to_edge(exported(lambda x: torch.histogramdd(x, [3, 3]).hist, torch.randn(10, 2)))
    assert caught.value.diagnostics[0].message.startswith("aten::_histogramdd_from_bin_cts is not a core ATen operator")


def test_a_complex_result_that_no_file_can_hold_has_its_place() -> None:
    with pytest.raises(ModelError) as caught:
        to_edge(exported(torch.fft.rfft, torch.randn(2, 4))).to_executorch()
    (found,) = caught.value.diagnostics
    assert (found.code, found.location.node) == ("EK501", "%aten__fft_r2c_default")
    assert found.hint == "keep real and imaginary parts in two real tensors"
