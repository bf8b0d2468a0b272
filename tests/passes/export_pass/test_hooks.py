"""`ExportPass`: rewriting, metadata, names, constants, and the truth about `modified`."""

from __future__ import annotations

import copy
import operator
from typing import Any

import pytest
import torch
from tests.passes.export_pass.graphs import (
    AddIsMulSub,
    Swap,
    Untouched,
    as_edge,
    fingerprint,
    nodes_of,
    targets,
    trace,
)
from tests.passes.programs import Function
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule

from exirkit.ir import ops
from exirkit.passes import ExportPass, NodeMetadata, PassResult, ProxyValue

aten = torch.ops.aten
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")


def test_tutorial_pass_on_edge_operators() -> None:
    program = torch.export.export(Function(lambda x: torch.relu(x + 1)), (torch.randn(2, 3),)).run_decompositions()
    module = as_edge(program.graph_module)

    class ConvertReluToSigmoid(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            if op == ops.edge.aten.relu.default:
                return super().call_operator(ops.edge.aten.sigmoid.default, args, kwargs, meta)
            return super().call_operator(op, args, kwargs, meta)

    result = ConvertReluToSigmoid()(module)
    assert result.modified
    assert targets(result.graph_module) == ["aten.add.Tensor", "aten.sigmoid.default"]
    (node,) = nodes_of(result.graph_module, ops.edge.aten.sigmoid.default)
    assert node.name == "aten_sigmoid_default"
    assert node.meta["val"].shape == (2, 3)
    x = torch.randn(2, 3)
    torch.testing.assert_close(result.graph_module(x)[0], torch.sigmoid(x + 1))
    assert "sigmoid" in result.graph_module.code
    assert "sigmoid" in str(result.graph_module)


def test_one_to_many() -> None:
    module = trace(lambda x, y: (x + y).sin(), torch.randn(2), torch.randn(2))
    result = AddIsMulSub()(module)
    assert targets(result.graph_module) == ["aten.mul.Tensor", "aten.sub.Tensor", "aten.sin.default"]
    x, y = torch.randn(2), torch.randn(2)
    torch.testing.assert_close(result.graph_module(x, y)[0], (x * y - y).sin())


def test_one_to_none() -> None:
    module = trace(lambda x: x.detach().clone().sin(), torch.randn(2))

    class RemoveCopies(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            if op in (aten.detach.default, aten.clone.default, aten.alias.default):
                return args[0]
            return super().call_operator(op, args, kwargs, meta)

    result = RemoveCopies()(module)
    assert targets(result.graph_module) == ["aten.sin.default"]
    assert result.modified


@pytest.mark.parametrize("pass_type", [Untouched, ExportPass])
def test_identity_returns_the_same_object(pass_type: type[ExportPass]) -> None:
    module = trace(lambda x, y: torch.max(x @ y, 1)[0] * 2.5, torch.randn(2, 3), torch.randn(3, 4))
    before = fingerprint(module)
    result = pass_type()(module)
    assert result.graph_module is module
    assert not result.modified
    assert fingerprint(module) == before


def test_input_is_not_changed() -> None:
    module = trace(lambda x: (x + x).relu(), torch.randn(2))
    module.meta["note"] = "kept"
    before = fingerprint(module)
    result = AddIsMulSub()(module).graph_module
    assert fingerprint(module) == before
    assert result.meta == module.meta
    assert result.meta is not module.meta


def test_pass_class_without_init_works() -> None:
    class Bare(Swap):
        def __init__(self) -> None:
            self.table = {aten.relu.default: aten.sin.default}

    result = Bare()(trace(torch.relu, torch.randn(2)))
    assert targets(result.graph_module) == ["aten.sin.default"]


def test_new_nodes_inherit_metadata_and_get_their_own_value() -> None:
    module = trace(lambda x, y: x + y, torch.randn(2), torch.randn(2, 1))
    (old,) = nodes_of(module, aten.add.Tensor)
    old.meta["debug_handle"] = 7

    class ToDouble(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            x = super().call_operator(aten._to_copy.default, (args[0],), {"dtype": torch.float64}, meta)
            return super().call_operator(op, (x, args[1]), kwargs, meta)

    result = ToDouble()(module).graph_module
    for node in result.graph.find_nodes(op="call_function", target=aten._to_copy.default) + nodes_of(
        result, aten.add.Tensor
    ):
        assert node.meta["debug_handle"] == 7
        assert node.meta["stack_trace"] == old.meta["stack_trace"]
        assert node.meta["nn_module_stack"] == old.meta["nn_module_stack"]
        assert node.meta["val"].dtype is torch.float64
        assert node.meta["val"].fake_mode is old.meta["val"].fake_mode
    assert nodes_of(result, aten._to_copy.default)[0].meta["val"].shape == (2,)
    assert "tensor_meta" not in nodes_of(result, aten.add.Tensor)[0].meta
    assert old.meta["val"].dtype is torch.float32


def test_annotations_of_hooks_count_as_changes() -> None:
    module = trace(torch.relu, torch.randn(2))

    class Annotate(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            meta["qparams"] = (0.5, 3)
            return super().call_operator(op, args, kwargs, meta)

    result = Annotate()(module)
    assert result.modified
    assert nodes_of(result.graph_module, aten.relu.default)[0].meta["qparams"] == (0.5, 3)
    assert "qparams" not in nodes_of(module, aten.relu.default)[0].meta
    assert not Annotate()(result.graph_module).modified


def test_inputs_named_like_builtins_keep_their_names() -> None:
    class Net(torch.nn.Module):
        def forward(self, input: torch.Tensor, lambda_: torch.Tensor) -> torch.Tensor:
            return torch.relu(input) + lambda_

    module = torch.export.export(Net(), (torch.randn(2), torch.randn(2))).graph_module
    result = Swap(relu=aten.sin.default)(module).graph_module
    assert [node.name for node in result.graph.nodes][:3] == ["input", "lambda_", "sin"]
    torch.testing.assert_close(result(torch.ones(2), torch.ones(2))[0], torch.ones(2).sin() + 1)
    assert not Untouched()(module).modified


def test_untouched_nodes_keep_their_names() -> None:
    module = trace(lambda x: ((x + x) * (x * 2)).relu() + x, torch.randn(2))
    old = {node.name: str(node.target) for node in module.graph.nodes}
    result = AddIsMulSub()(module).graph_module
    for node in result.graph.nodes:
        if node.target not in (aten.mul.Tensor, aten.sub.Tensor):
            assert old[node.name] == str(node.target)
    names = [node.name for node in result.graph.nodes]
    assert len(set(names)) == len(names)
    assert [node.name for node in AddIsMulSub()(module).graph_module.graph.nodes] == names


def test_multi_output_operator_replaced_by_a_tuple() -> None:
    module = trace(lambda x: (torch.max(x, 1)[0] + 1, torch.max(x, 1)[1]), torch.randn(2, 3))

    class MaxInTwo(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            if op != aten.max.dim:
                return super().call_operator(op, args, kwargs, meta)
            highest = super().call_operator(aten.amax.default, args, kwargs, meta)
            return highest, super().call_operator(aten.argmax.default, args, kwargs, meta)

    result = MaxInTwo()(module).graph_module
    assert not nodes_of(result, operator.getitem)
    x = torch.randn(2, 3)
    torch.testing.assert_close(result(x)[0], x.amax(1) + 1)
    torch.testing.assert_close(result(x)[1], x.argmax(1))


def test_constants_become_attributes_read_once() -> None:
    module = trace(lambda x: x.relu().relu(), torch.randn(2))
    two = torch.tensor(2.0)

    class Scale(ExportPass):
        def __init__(self) -> None:
            self.heard: list[torch.Tensor] = []

        def on_attr(self, attr: ProxyValue) -> None:
            self.heard.append(attr.data)

        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            return super().call_operator(aten.mul.Tensor, (args[0], two), {}, meta)

    scale = Scale()
    result = scale(module).graph_module
    (read,) = result.graph.find_nodes(op="get_attr")
    assert getattr(result, read.target) is two
    assert read.meta["val"].shape == ()
    assert read.meta["stack_trace"]
    assert scale.heard == [two]
    torch.testing.assert_close(result(torch.ones(2))[0], torch.full((2,), 4.0))
    assert Untouched()(result).graph_module is result

    again = AddConstant()(result).graph_module
    assert getattr(again, read.target) is two
    torch.testing.assert_close(again(torch.ones(2))[0], torch.full((2,), 5.0))


def test_results_of_two_constants_with_equal_names_do_not_clash() -> None:
    module = AddConstant()(AddConstant()(trace(torch.relu, torch.randn(2))).graph_module).graph_module
    assert len({node.target for node in module.graph.find_nodes(op="get_attr")}) == 2
    torch.testing.assert_close(module(torch.zeros(2))[0], torch.full((2,), 2.0))


def test_hooks_may_be_driven_from_outside() -> None:
    class Builder(ExportPass):
        """Builds a graph by hand, as test helpers of backends do."""

        def __init__(self) -> None:
            self.tracer = self.ExportTracer(self, torch.fx.graph.CodeGen())
            self.fake_tensor_mode = FakeTensorMode(allow_non_fake_inputs=True)
            self.tracer.fake_tensor_mode = self.fake_tensor_mode

        def build(self) -> GraphModule:
            assert self.tracer is not None
            assert self.fake_tensor_mode is not None
            empty = NodeMetadata({})
            x = self.placeholder("x", self.fake_tensor_mode.from_tensor(torch.randn(2, 3)), empty)
            y = self.call_operator(aten.mm.default, (x, torch.ones(3, 3)), {}, empty)
            self.output([y], empty)
            return GraphModule(self.tracer.root, self.tracer.graph)

    module = Builder().build()
    assert nodes_of(module, aten.mm.default)[0].meta["val"].shape == (2, 3)
    torch.testing.assert_close(module(torch.ones(2, 3))[0], torch.full((2, 3), 3.0))
    assert not Untouched()(module).modified


def test_nodes_made_with_the_tracer() -> None:
    module = trace(torch.relu, torch.randn(2))

    class ByHand(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            proxy = self.active_tracer.create_proxy("call_function", aten.sin.default, (args[0].proxy,), {})
            proxy.node.meta.update(meta)
            self.active_tracer.set_metadata(proxy.node, meta["val"])
            return super().call_operator(op, (ProxyValue(meta["val"], proxy),), kwargs, meta)

    result = ByHand()(module).graph_module
    assert targets(result) == ["aten.sin.default", "aten.relu.default"]


class AddConstant(ExportPass):
    def output(self, results: Any, meta: Any) -> Any:
        (value,) = results
        more = super().call_operator(aten.add.Tensor, (value, torch.ones(2)), {}, meta)
        return super().output((more,), meta)


def test_constant_tensors_made_under_a_fake_mode_are_unwrapped() -> None:
    module = trace(lambda x: x.relu(), torch.randn(2))

    class Scale(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            assert self.fake_tensor_mode is not None
            with self.fake_tensor_mode:
                two = torch.tensor(2.0)
            return super().call_operator(aten.mul.Tensor, (args[0], two), {}, meta)

    torch.testing.assert_close(Scale()(module).graph_module(torch.ones(2))[0], torch.full((2,), 2.0))


def test_placeholders_may_be_renamed_and_given_other_values() -> None:
    module = trace(lambda x: x.relu(), torch.randn(4))

    class Integers(ExportPass):
        def placeholder(self, name: str, arg: Any, meta: NodeMetadata) -> ProxyValue:
            return super().placeholder(f"{name}_int", arg.to(torch.int32), meta)

    result = Integers()(module)
    assert result.modified
    first = next(iter(result.graph_module.graph.nodes))
    assert (first.name, first.target, first.meta["val"].dtype) == (
        "x_int",
        "x_int",
        torch.int32,
    ) or first.name.endswith("_int")
    assert nodes_of(result.graph_module, aten.relu.default)[0].meta["val"].dtype is torch.int32


def test_output_hook_changes_the_output() -> None:
    module = trace(lambda x: (x.relu(), x.sin()), torch.randn(4))

    class Reverse(ExportPass):
        def output(self, results: Any, meta: Any) -> Any:
            return super().output(tuple(reversed(results)), meta)

    x = torch.randn(4)
    result = Reverse()(module)
    assert result.modified
    torch.testing.assert_close(result.graph_module(x)[0], x.sin())


def test_overridden_call_edits_a_copy_and_reports_the_truth() -> None:
    class ClaimsTooMuch(ExportPass):
        def call(self, graph_module: GraphModule) -> PassResult:
            return PassResult(super().call(graph_module).graph_module, True)

    class ClaimsTooLittle(ExportPass):
        def call(self, graph_module: GraphModule) -> PassResult:
            result = super().call(graph_module)
            for node in result.graph_module.graph.nodes:
                if node.target == aten.relu.default:
                    node.target = aten.sin.default
            return PassResult(result.graph_module, False)

    module = trace(lambda x: x.relu(), torch.randn(4))
    before = fingerprint(module)
    unchanged = ClaimsTooMuch()(module)
    assert (unchanged.graph_module is module, unchanged.modified) == (True, False)
    changed = ClaimsTooLittle()(module)
    assert changed.modified
    assert targets(changed.graph_module) == ["aten.sin.default"]
    assert fingerprint(module) == before


def test_results_survive_copying_and_export() -> None:
    module = trace(lambda x: x.relu(), torch.randn(4))
    result = Swap(relu=aten.sin.default)(module).graph_module
    x = torch.randn(4)
    torch.testing.assert_close(copy.deepcopy(result)(x)[0], x.sin())
    result.graph.eliminate_dead_code()
    result.recompile()
    torch.testing.assert_close(result(x)[0], x.sin())


def test_debug_text_of_the_visited_node() -> None:
    module = trace(lambda x: x.relu(), torch.randn(4))

    class Look(ExportPass):
        text: str | None = None

        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            self.text = self.node_debug_str
            assert isinstance(args[0], ProxyValue)
            assert args[0].proxy.node is args[0].node
            return super().call_operator(op, args, {}, meta)

    look = Look()
    assert not look(module).modified
    assert look.text is not None
    assert "relu" in look.text
    assert look.node_debug_str is None
