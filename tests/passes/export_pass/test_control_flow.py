"""`ExportPass` on graphs with branches, loops and delegates."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.passes.export_pass.graphs import Swap, Untouched, targets
from tests.passes.export_pass.graphs import trace as trace_of
from torch._higher_order_ops.map import map as hop_map
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch._ops import HigherOrderOperator
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule

from exirkit.ir import ContractError
from exirkit.passes import ExportPass, PassResult

aten = torch.ops.aten
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec.*:FutureWarning", "ignore:.*mutable buffers.*:UserWarning", "ignore:.*Lifting.*:UserWarning"
)


def trace(function: Callable[..., Any], *, dynamic: bool = False) -> GraphModule:
    """Export a function of one matrix."""
    return trace_of(
        function, torch.randn(4, 3), dynamic_shapes=({0: torch.export.Dim("n", min=2)},) if dynamic else None
    )


@functools.cache
def traced(function: Callable[..., Any]) -> GraphModule:
    """Export once, for tests that do not edit."""
    return trace(function)


def bodies(module: GraphModule) -> list[list[str]]:
    return [targets(child) for child in module.children() if isinstance(child, GraphModule)]


class Copying(Untouched):
    def call(self, graph_module: GraphModule) -> PassResult:
        return super().call(graph_module)


def choose(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda a: a.sin() + 1, lambda a: a.cos() * 2, (x.relu(),))


def count(x: torch.Tensor) -> Any:
    return while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a.sin()), (torch.zeros((), dtype=torch.int64), x))


def each(x: torch.Tensor) -> Any:
    return hop_map(lambda row, other: row.sin() + other, x, x[0] * 2)  # type: ignore[arg-type]


def accumulate(x: torch.Tensor) -> Any:
    return scan(lambda carry, row: (carry + row.sin(), carry * 1.0), torch.zeros(3), x)


CASES = [choose, count, each, accumulate]


@pytest.mark.parametrize("function", CASES)
@pytest.mark.parametrize("pass_type", [Untouched, Copying])
def test_identity(function: Callable[..., Any], pass_type: type[ExportPass]) -> None:
    module = traced(function)
    result = pass_type()(module)
    assert result.graph_module is module
    assert not result.modified


@pytest.mark.parametrize("function", CASES)
def test_bodies_are_rewritten(function: Callable[..., Any]) -> None:
    module = traced(function)
    before = bodies(module)
    result = Swap(sin=aten.tanh.default)(module)
    assert result.modified
    assert bodies(result.graph_module) == [
        ["aten.tanh.default" if target == "aten.sin.default" else target for target in body] for body in before
    ]
    assert bodies(module) == before
    assert [node.name for node in result.graph_module.graph.nodes] == [node.name for node in module.graph.nodes]
    x = torch.randn(4, 3)
    assert [one.shape for one in result.graph_module(x)] == [one.shape for one in module(x)]


def test_untouched_branch_is_shared() -> None:
    module = traced(choose)
    result = Swap(sin=aten.tanh.default)(module).graph_module
    assert result.get_submodule("false_graph_0") is module.get_submodule("false_graph_0")
    x = torch.rand(4, 3) + 1
    torch.testing.assert_close(result(x)[0], x.tanh() + 1)
    torch.testing.assert_close(result(-x)[0], torch.zeros(4, 3).cos() * 2)


def test_changed_dtype_reaches_branches_and_what_follows() -> None:
    class Widen(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            value = super().call_operator(op, args, kwargs, meta)
            if op is aten.relu.default:
                value = super().call_operator(aten._to_copy.default, (value,), {"dtype": torch.float64}, meta)
            return value

    module = trace(lambda x: choose(x).neg())
    result = Widen()(module).graph_module
    (negated,) = result.graph.find_nodes(op="call_function", target=aten.neg.default)
    assert negated.meta["val"].dtype is torch.float64
    (sine,) = result.get_submodule("true_graph_0").graph.find_nodes(op="call_function", target=aten.sin.default)
    assert sine.meta["val"].dtype is torch.float64
    assert result(torch.ones(4, 3))[0].dtype is torch.float64


def test_dynamic_sizes_go_into_branches() -> None:
    module = trace(choose, dynamic=True)
    result = Swap(relu=aten.sigmoid.default)(module).graph_module
    assert result(torch.ones(7, 3))[0].shape == (7, 3)
    assert result.get_submodule("true_graph_0") is module.get_submodule("true_graph_0")


def test_hooks_of_control_flow_are_called() -> None:
    class Count(ExportPass):
        def __init__(self) -> None:
            self.seen: list[str] = []

        def call_cond(self, pred: Any, true_fn: Any, false_fn: Any, inputs: Any, meta: Any) -> Any:
            self.seen.append("cond")
            return super().call_cond(pred, false_fn, true_fn, inputs, meta)

        def call_while(self, cond_fn: Any, body_fn: Any, carried: Any, more: Any, meta: Any) -> Any:
            self.seen.append("while")
            return super().call_while(cond_fn, body_fn, carried, more, meta)

        def call_map(self, f: Any, mapped_args: Any, operands: Any, meta: Any) -> Any:
            self.seen.append("map")
            return super().call_map(f, mapped_args, operands, meta)

        def call_scan(self, combine_fn: Any, init: Any, xs: Any, more: Any, meta: Any) -> Any:
            self.seen.append("scan")
            return super().call_scan(combine_fn, init, xs, more, meta)

        def call_submodule(self, graph_module: GraphModule, inputs: Any) -> PassResult:
            self.seen.append("(")
            result = super().call_submodule(graph_module, inputs)
            self.seen.append(")")
            return result

    for function, expected in zip(CASES, ["(cond()())", "(while()())", "(map())", "(scan())"], strict=True):
        counting = Count()
        result = counting(traced(function))
        assert "".join(counting.seen) == expected
        # Both branches are called with the same values, so exchanging them is a change of the graph all the same.
        assert result.modified is (function is choose)


def test_values_of_the_outer_graph_have_no_place_in_a_branch() -> None:
    class Leak(ExportPass):
        outer: Any = None

        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            if op is aten.relu.default:
                self.outer = args[0]
            if op is aten.sin.default:
                args = (self.outer,)
            return super().call_operator(op, args, kwargs, meta)

    with pytest.raises(ContractError, match="EK405"):
        Leak()(traced(choose))


class _Mystery(HigherOrderOperator):
    def __init__(self) -> None:
        super().__init__("exirkit_test_mystery")  # type: ignore[no-untyped-call]

    def __call__(self, body: Any, x: Any, *, scale: float) -> Any:
        return super().__call__(body, x, scale=scale)  # type: ignore[no-untyped-call]


mystery = _Mystery()


def test_unknown_higher_order_operators_pass_through() -> None:
    module = trace(choose)
    (branch,) = module.graph.find_nodes(op="get_attr", target="true_graph_0")
    (cond,) = module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)
    cond.target, cond.args, cond.kwargs = mystery, (branch, cond.args[3][0]), {"scale": 2.0}
    for pass_ in (Untouched(), Swap(sum=aten.mean.default)):
        result = pass_(module)
        (found,) = result.graph_module.graph.find_nodes(op="call_function", target=mystery)
        assert found.kwargs == {"scale": 2.0}
        assert result.graph_module.get_submodule("true_graph_0") is module.get_submodule("true_graph_0")
        assert result.modified is not isinstance(pass_, Untouched)


class Lowered(torch.nn.Module):
    backend_id = "Test"


def executorch_call_delegate(lowered: Any, *args: Any) -> Any:
    return [args[0] + 1]


def test_delegate_calls_go_through_their_hook() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    lowered = graph.get_attr("lowered_module_0")
    call = graph.call_function(executorch_call_delegate, (lowered, x))
    graph.output((call,))
    with FakeTensorMode():
        x.meta["val"] = torch.empty(2)
        call.meta["val"] = [torch.empty(2)]
    root = torch.nn.Module()
    root.lowered_module_0 = Lowered()
    module = GraphModule(root, graph)

    class Twice(ExportPass):
        def call_delegate(self, lowered_module: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            assert isinstance(lowered_module, Lowered)
            super().call_delegate(Lowered(), args, kwargs, meta)
            return super().call_delegate(lowered_module, args, kwargs, meta)

    assert not Untouched()(module).modified
    result = Twice()(module).graph_module
    assert sorted(name for name, _ in result.named_children()) == ["lowered_module_0", "lowered_module_1"]
    assert result.lowered_module_0 is root.lowered_module_0 or result.lowered_module_1 is root.lowered_module_0
    assert len(result.graph.find_nodes(op="call_function", target=executorch_call_delegate)) == 2
