"""`ExportPass`: which values are inferred again, which are kept, and what becomes of symbolic sizes."""

from __future__ import annotations

import copy
import operator
from typing import Any

import pytest
import torch
from tests.passes.export_pass.graphs import (
    Swap,
    Untouched,
    as_edge,
    chain,
    nodes_of,
    targets,
    trace,
)
from torch._subclasses import FakeTensorMode
from torch.fx import GraphModule

from exirkit.ir import ops
from exirkit.passes import ExportPass, PassResult

aten = torch.ops.aten
pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the operators that fake tensors are asked to run."""
    seen: list[str] = []
    original = FakeTensorMode.dispatch

    def counting(self: FakeTensorMode, func: Any, *rest: Any) -> Any:
        seen.append(str(func))
        return original(self, func, *rest)

    monkeypatch.setattr(FakeTensorMode, "dispatch", counting)
    return seen


def test_backed_symbols_are_preserved() -> None:
    module = trace(
        lambda x: (x.relu() + 1).view(x.shape[0] * 3), torch.randn(4, 3), dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    result = Swap(relu=aten.sin.default)(module).graph_module
    before, after = (next(iter(one.graph.nodes)).meta["val"] for one in (module, result))
    assert after is before
    shapes = [
        str(node.meta["val"].shape) for node in result.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)
    ]
    assert shapes == [
        str(node.meta["val"].shape) for node in module.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)
    ]
    assert result(torch.ones(6, 3))[0].shape == (18,)


def unbacked(x: torch.Tensor) -> torch.Tensor:
    found = torch.nonzero(x.relu())
    return found.to(torch.float32) * found.shape[0]


def test_unbacked_symbols_keep_their_identity() -> None:
    module = trace(unbacked, torch.randn(3, 4))
    (old,) = nodes_of(module, aten.nonzero.default)
    size = old.meta["val"].shape[0].node.expr

    class BoolFirst(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            if op is aten.nonzero.default:
                args = (super().call_operator(aten.ne.Scalar, (args[0], 0), {}, meta),)
            return super().call_operator(op, args, kwargs, meta)

    for one in (Swap(relu=aten.sin.default), BoolFirst()):
        result = one(module).graph_module
        (new,) = nodes_of(result, aten.nonzero.default)
        assert new.meta["val"].shape[0].node.expr == size
        assert new.meta["unbacked_bindings"] == old.meta["unbacked_bindings"]
        assert all("unbacked_bindings" not in node.meta for node in nodes_of(result, aten.ne.Scalar))
        last = nodes_of(result, aten.mul.Tensor)[-1]
        assert last.meta["val"].shape[0].node.expr == size
        assert result(torch.eye(3, 4))[0].shape == (3, 2)
    assert not ExportPass()(module).modified


def test_new_data_dependent_nodes_record_their_bindings() -> None:
    module = trace(lambda x: x.sum(0).relu(), torch.randn(3, 4))

    class Find(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            value = super().call_operator(op, args, kwargs, meta)
            if op is aten.relu.default:
                value = super().call_operator(aten.nonzero.default, (value,), {}, meta)
            return value

    (node,) = nodes_of(Find()(module).graph_module, aten.nonzero.default)
    assert list(node.meta["unbacked_bindings"]) == [node.meta["val"].shape[0].node.expr]


def test_symbolic_sizes_as_arguments_become_nodes() -> None:
    module = trace(lambda x: x.relu() * 1, torch.randn(4, 3), dynamic_shapes=({0: torch.export.Dim("n")},))

    class Flatten(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            if op != aten.relu.default:
                return super().call_operator(op, args, kwargs, meta)
            rows, columns = args[0].data.shape
            tall = super().call_operator(aten.view_copy.default, (args[0], [1, rows, columns]), {}, meta)
            sizes = self.call_size_operator_all(args[0], meta)
            assert sizes[1] == 3
            return super().call_operator(aten.view_copy.default, (tall, sizes), {}, meta)

    result = Flatten()(module).graph_module
    result.graph.lint()
    assert result(torch.ones(7, 3))[0].shape == (7, 3)
    assert all(not isinstance(arg, torch.SymInt) for node in result.graph.nodes for arg in node.args)
    edge = Flatten()(as_edge(copy.deepcopy(module)))
    assert not edge.modified


def test_size_operator_follows_the_dialect() -> None:
    module = trace(lambda x: x.relu(), torch.randn(4, 3), dynamic_shapes=({0: torch.export.Dim("n")},))

    class Sizes(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            size = self.call_size_operator(args[0], 0, meta, edge_dialect=True)
            return super().call_operator(ops.edge.aten.expand_copy.default, (args[0], [size, 3]), {}, meta)

    result = Sizes()(module).graph_module
    assert targets(result) == ["aten.sym_size.int", "aten.expand_copy.default"]
    assert nodes_of(result, ops.edge.aten.sym_size.int)[0].meta["val"] is not None


def test_symbolic_arithmetic_goes_through_its_hook() -> None:
    module = trace(lambda x: x.new_zeros(x.shape[0] * 2), torch.randn(4), dynamic_shapes=({0: torch.export.Dim("n")},))

    class Doubled(ExportPass):
        def call_sym(self, target: Any, args: Any, meta: Any) -> Any:
            if target is operator.mul:
                return super().call_sym(operator.add, (args[0], args[0]), meta)
            return super().call_sym(target, args, meta)

    result = Doubled()(module)
    assert result.modified
    assert result.graph_module(torch.ones(5))[0].shape == (10,)


def test_a_deep_chain_runs_few_operators(runs: list[str]) -> None:
    module = chain(1500)
    assert len(module.graph.nodes) == 3002

    class Last(ExportPass):
        seen = 0

        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            if op is aten.relu.default:
                self.seen += 1
                if self.seen == 2:
                    op = aten.sigmoid.default
            return super().call_operator(op, args, kwargs, meta)

    runs.clear()
    assert not Untouched()(module).modified
    assert runs == []
    result = Last()(module)
    assert result.modified
    assert runs == ["aten.sigmoid.default"]
    assert sum(target == "aten.relu.default" for target in targets(result.graph_module)) == 1499


def test_changed_values_reach_all_that_depend_on_them(runs: list[str]) -> None:
    module = trace(lambda x, y: (x.relu().sin().sum(), y.relu().cos()), torch.randn(2), torch.randn(3))

    class Widen(ExportPass):
        def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> Any:
            value = super().call_operator(op, args, kwargs, meta)
            if op is aten.relu.default and args[0].node.name == "x":
                value = super().call_operator(aten._to_copy.default, (value,), {"dtype": torch.float64}, meta)
            return value

    placeholder = next(iter(module.graph.nodes))
    placeholder.name = placeholder.target = "x"
    runs.clear()
    result = Widen()(module).graph_module
    assert "aten.cos.default" not in runs
    assert [node.meta["val"].dtype for node in nodes_of(result, aten.sin.default)] == [torch.float64]
    assert [node.meta["val"].dtype for node in nodes_of(result, aten.cos.default)] == [torch.float32]


def test_stale_values_left_by_edits_in_place_are_not_believed() -> None:
    class Edit(ExportPass):
        """Retargets in place and leaves the old value, as passes in the field do."""

        def call(self, graph_module: GraphModule) -> PassResult:
            for node in graph_module.graph.nodes:
                if node.target == aten.relu.default:
                    node.target = aten.sum.default
            return super().call(graph_module)

    module = trace(lambda x: x.relu().sin(), torch.randn(4))
    result = Edit()(module)
    assert result.modified
    assert [node.meta["val"].shape for node in result.graph_module.graph.nodes if node.op == "call_function"] == [
        (),
        (),
    ]


def test_a_plain_export_pass_refreshes_all_values() -> None:
    module = trace(lambda x: x.relu().sin(), torch.randn(4))
    (node,) = nodes_of(module, aten.relu.default)
    node.target = aten.sum.default
    result = ExportPass()(module)
    assert result.modified
    assert nodes_of(result.graph_module, aten.sin.default)[0].meta["val"].shape == ()
    assert nodes_of(module, aten.sin.default)[0].meta["val"].shape == (4,)


def test_nodes_without_a_value_get_one() -> None:
    module = trace(lambda x: x.relu().sin(), torch.randn(4))
    del nodes_of(module, aten.relu.default)[0].meta["val"]
    result = Untouched()(module)
    assert result.modified
    assert nodes_of(result.graph_module, aten.relu.default)[0].meta["val"].shape == (4,)


def test_several_fake_modes_meet() -> None:
    module = trace(lambda x, y: x.relu() + y, torch.randn(4), torch.randn(4))
    first, second = (node for node in module.graph.nodes if node.op == "placeholder")
    with FakeTensorMode() as other:
        second.meta["val"] = torch.empty(4)
    result = Swap(relu=aten.sum.default)(module).graph_module
    assert second.meta["val"].fake_mode is other
    assert nodes_of(result, aten.add.Tensor)[0].meta["val"].fake_mode is first.meta["val"].fake_mode


def test_graphs_without_fake_tensors_are_traced_too() -> None:
    module = trace(lambda x: x.relu(), torch.randn(4))
    for node in module.graph.nodes:
        node.meta.pop("val", None)
        node.meta.pop("tensor_meta", None)
    next(iter(module.graph.nodes)).meta["val"] = torch.randn(4)
    result = Untouched()(module)
    assert isinstance(nodes_of(result.graph_module, aten.relu.default)[0].meta["val"], torch._subclasses.FakeTensor)


def test_the_graph_s_fake_mode_is_left_as_it_was() -> None:
    module = trace(lambda x: x.relu(), torch.randn(4))
    mode = next(iter(module.graph.nodes)).meta["val"].fake_mode
    mode.allow_non_fake_inputs = False
    Swap(relu=aten.sin.default)(module)
    assert mode.allow_non_fake_inputs is False
