"""What `ExportPass`, its values and `map_args` say when something is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import GraphModule

from exirkit.ir import ContractError, DiagnosticError, ModelError, UsageError, ops
from exirkit.passes import ExportPass, NodeMetadata, PassBase, PassResult, ProxyValue, map_args

aten = torch.ops.aten
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu() + x.shape[0]


def trace(*, dynamic: bool = False) -> GraphModule:
    shapes = ({0: torch.export.Dim("n")},) if dynamic else None
    return torch.export.export(Net(), (torch.randn(4, 3),), dynamic_shapes=shapes).graph_module


def on_relu(hook: Callable[[ExportPass, Any, NodeMetadata], Any]) -> ExportPass:
    """Make a pass that calls `hook(pass, value, meta)` for each relu."""

    class AtRelu(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            if op is aten.relu.default:
                return hook(self, args[0], meta)
            return super().call_operator(op, args, kwargs, meta)

    return AtRelu()


def make(pass_: ExportPass, op: Any, args: tuple[Any, ...], meta: NodeMetadata) -> Any:
    return ExportPass.call_operator(pass_, op, args, {}, meta)


def test_an_error_in_a_hook_names_pass_node_operator_and_source() -> None:
    def divide(pass_: ExportPass, value: Any, meta: NodeMetadata) -> Any:
        return 1 // 0

    with pytest.raises(ContractError) as caught:
        on_relu(divide)(trace())
    text = str(caught.value)
    assert caught.value.code == "EK403"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    for part in (
        "AtRelu",
        "%relu",
        "relu.default",
        "ZeroDivisionError",
        "test_errors.py:",
        "return x.relu()",
    ):
        assert part in text, text


def test_diagnostics_raised_in_hooks_become_causes() -> None:
    with pytest.raises(ContractError, match="EK403") as caught:
        on_relu(lambda pass_, value, meta: make(pass_, ops.edge.aten.reluu.default, (value,), meta))(trace())
    assert isinstance(caught.value.__cause__, UsageError)


def test_a_call_that_cannot_run_shows_its_arguments() -> None:
    with pytest.raises(ContractError) as caught:
        on_relu(lambda pass_, value, meta: make(pass_, aten.mm.default, (value, value), meta))(trace())
    text = str(caught.value)
    assert caught.value.code == "EK404"
    assert caught.value.__cause__ is not None
    for part in ("AtRelu", "mm.default", "float32[4, 3]", "%relu"):
        assert part in text, text


def test_a_forgotten_return() -> None:
    def hook(pass_: ExportPass, value: Any, meta: NodeMetadata) -> None:
        make(pass_, aten.sin.default, (value,), meta)

    with pytest.raises(ContractError, match=r"EK416.*AtRelu returned nothing for %relu"):
        on_relu(hook)(trace())


def test_the_pass_can_be_used_after_an_error() -> None:
    broken = True

    def hook(pass_: ExportPass, value: Any, meta: NodeMetadata) -> Any:
        return make(pass_, aten.mm.default if broken else aten.add.Tensor, (value, value), meta)

    pass_ = on_relu(hook)
    module = trace()
    with pytest.raises(ContractError, match="EK404"):
        pass_(module)
    assert pass_.tracer is None
    assert pass_.fake_tensor_mode is None
    broken = False
    assert pass_(module).modified


@pytest.mark.parametrize(
    "argument",
    [
        pytest.param(lambda value, module: value.data, id="fake tensor"),
        pytest.param(lambda value, module: next(iter(module.graph.nodes)), id="node of the old graph"),
    ],
)
def test_arguments_without_a_place(argument: Callable[[Any, GraphModule], Any]) -> None:
    module = trace()
    pass_ = on_relu(lambda pass_, value, meta: make(pass_, aten.sin.default, (argument(value, module),), meta))
    with pytest.raises(ContractError, match=r"(?s)EK405.*%relu.*errors.py:.*in pass AtRelu"):
        pass_(module)


def test_symbols_that_no_node_computes() -> None:
    def hook(pass_: ExportPass, value: Any, meta: NodeMetadata) -> Any:
        return make(pass_, aten.add.Tensor, (value, value.data.shape[0] * 17), meta)

    with pytest.raises(ContractError, match="EK405"):
        on_relu(hook)(trace(dynamic=True))


@pytest.mark.parametrize("ask", [bool, int, float, range])
def test_symbolic_values_are_not_numbers(ask: Callable[[Any], Any]) -> None:
    def hook(pass_: ExportPass, value: Any, meta: NodeMetadata) -> Any:
        size = pass_.call_size_operator(value, 0, meta)
        assert isinstance(size, ProxyValue)
        assert not size.is_tensor()
        with pytest.raises(UsageError, match="EK402"):
            size.to_tensor()
        ask(size)

    with pytest.raises(ContractError) as caught:
        on_relu(hook)(trace(dynamic=True))
    assert isinstance(caught.value.__cause__, UsageError)
    assert caught.value.__cause__.code == "EK402"


def test_proxy_values_of_constants_are_numbers() -> None:
    node = torch.fx.Graph().placeholder("x")
    assert int(ProxyValue(3, node)) == 3
    assert float(ProxyValue(3, node)) == 3.0
    assert [0, 1, 2][ProxyValue(1, node)] == 1
    assert not ProxyValue(0, node)
    assert list(ProxyValue((1, 2), node)) == [1, 2]
    assert ProxyValue(torch.ones(2), node).to_tensor().shape == (2,)
    with pytest.raises(UsageError, match="EK402"):
        bool(ProxyValue(torch.ones(1), node))


def test_placeholders_cannot_be_dropped() -> None:
    class Drop(ExportPass):
        def placeholder(self, name: str, arg: Any, meta: NodeMetadata) -> Any:
            return torch.ones(4, 3)

    with pytest.raises(ContractError, match=r"EK406.*0 of 1"):
        Drop()(trace())


def test_outputs_cannot_be_dropped() -> None:
    class Drop(ExportPass):
        def output(self, results: Any, meta: NodeMetadata) -> Any:
            return None

    with pytest.raises(ContractError, match=r"EK406.*output"):
        Drop()(trace())


def test_inputs_must_match_placeholders() -> None:
    class NoInputs(ExportPass):
        def inputs(self, graph_module: GraphModule) -> list[Any]:
            return []

    with pytest.raises(ContractError, match="EK406"):
        NoInputs()(trace())


class Specialize(ExportPass):
    def inputs(self, graph_module: GraphModule) -> list[Any]:
        return [torch.randn(4, 3)]


def test_symbolic_sizes_of_inputs_are_kept() -> None:
    with pytest.raises(ContractError, match="EK407"):
        Specialize()(trace(dynamic=True))

    class OnPurpose(Specialize):
        def should_preserve_symbolic_input_metadata(self) -> bool:
            return False

    result = OnPurpose()(trace(dynamic=True))
    assert next(iter(result.graph_module.graph.nodes)).meta["val"].shape == (4, 3)


def test_graphs_that_were_not_exported() -> None:
    with pytest.raises(ModelError, match="EK401"):
        ExportPass()(torch.fx.symbolic_trace(torch.nn.ReLU()))
    traced = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU()))
    next(iter(traced.graph.nodes)).meta["val"] = torch.ones(2)
    with pytest.raises(ModelError, match="EK415"):
        ExportPass()(traced)


def test_hooks_outside_of_a_run() -> None:
    with pytest.raises(UsageError, match="EK409"):
        ExportPass().call_operator(aten.relu.default, (), {}, NodeMetadata({}))


def test_call_must_return_a_result() -> None:
    class Odd(ExportPass):
        def call(self, graph_module: GraphModule) -> Any:
            return 3

    with pytest.raises(ContractError, match="EK412"):
        Odd()(trace())


def test_requires_and_ensures_see_input_and_result() -> None:
    seen: list[Any] = []

    class Checked(ExportPass):
        def requires(self, graph_module: GraphModule) -> None:
            seen.append(graph_module)

        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            return super().call_operator(aten.sin.default if op is aten.relu.default else op, args, kwargs, meta)

        def ensures(self, graph_module: GraphModule) -> None:
            seen.append(graph_module)

    module = trace()
    result = Checked()(module)
    assert seen == [module, result.graph_module]

    class Replaced(PassBase):
        def call(self, graph_module: GraphModule) -> PassResult:
            return result

        def ensures(self, graph_module: GraphModule) -> None:
            assert graph_module is result.graph_module

    assert Replaced()(module) is result


def test_node_metadata_copies_and_protects() -> None:
    source = {"val": 1, "custom": 2}
    meta = NodeMetadata(source)
    meta["custom"] = 3
    other = meta.copy()
    other["more"] = 4
    assert source == {"val": 1, "custom": 2}
    assert dict(meta) == {"val": 1, "custom": 3}
    assert other.get("more") == 4
    assert "more" not in meta
    assert len(other) == 3
    del other["more"]
    for key in ("val", "tensor_meta", "stack_trace", "nn_module_stack", "debug_handle"):
        with pytest.raises(UsageError, match="EK408"):
            meta[key] = None


@pytest.mark.parametrize("op", [aten.add.Tensor, ops.edge.aten.add.Tensor])
def test_map_args_walks_the_schema(op: Any) -> None:
    seen: list[tuple[str, bool]] = []

    def visit(value: Any, schema: Any) -> Any:
        seen.append((schema.name, isinstance(schema.type, torch.TensorType)))
        return value * 10

    kwargs = {"alpha": 3}
    assert map_args(op, visit, (1, 2), kwargs) == ((10, 20), {"alpha": 30})
    assert seen == [("self", True), ("other", True), ("alpha", False)]
    assert kwargs == {"alpha": 3}
    assert map_args(op, visit, (1,), {"other": 2}) == ((10,), {"other": 20})
    with pytest.raises(UsageError, match="EK410"):
        map_args(len, visit, (1,), {})


def test_every_error_is_a_diagnostic() -> None:
    assert issubclass(ContractError, DiagnosticError)
