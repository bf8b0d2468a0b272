"""Specs: what they say of values, and the upper bounds of their sizes."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from tests.passes.lowering import after, call_nodes, edge_program
from tests.passes.programs import apply
from torch.export import Dim, ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv, constrain_range

from exirkit.ir import ModelError, TensorShapeDynamism, TensorSpec, control_flow_calls, ops, results_of_graph
from exirkit.passes import (
    BoundSymbolicShapes,
    LegalizeDimOrder,
    Pass,
    PropagateSpecs,
    RemoveAsserts,
    WriteBackMutations,
)
from exirkit.passes.to_executorch.bound_symbolic_shapes import SizeBounds

STATIC, BOUND = TensorShapeDynamism.STATIC, TensorShapeDynamism.DYNAMIC_BOUND


def bounded(model: Any, *args: Any, passes: tuple[Pass, ...] = (), **options: Any) -> ExportedProgram:
    made = edge_program(model, *args, **options)
    return after(made, *passes, RemoveAsserts(), PropagateSpecs(), BoundSymbolicShapes())


def named(program: ExportedProgram, part: str) -> Node:
    return next(node for node in program.graph.nodes if part in node.name)


def made_of(x: torch.Tensor) -> ExportedProgram:
    return edge_program(lambda x: x + 1.0, x)


class TestSpecs:
    def test_one_object_is_one_piece_of_memory(self) -> None:
        class Split(torch.nn.Module):
            state: torch.Tensor
            fixed: torch.Tensor

            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("state", torch.zeros(4))
                self.register_buffer("fixed", torch.zeros(4))

            def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
                first, second = torch.split(x, 2)
                self.state.add_(x)
                return first * 2, second + self.fixed[:2]

        made = after(edge_program(Split(), torch.ones(4)), WriteBackMutations(), PropagateSpecs())
        split = named(made, "split")
        for node in call_nodes(made, operator.getitem):
            assert node.meta["spec"] is split.meta["spec"][node.args[1]]
        (write,) = call_nodes(made, torch.ops.aten.copy_.default)
        assert write.meta["spec"] is named(made, "b_state").meta["spec"]
        assert not named(made, "b_state").meta["spec"].const
        assert named(made, "b_fixed").meta["spec"].const
        assert not made.graph.find_nodes(op="placeholder")[-1].meta["spec"].const

    def test_a_second_run_keeps_the_specs(self) -> None:
        made = edge_program(lambda x: torch.topk(x, 2), torch.ones(4))
        apply(PropagateSpecs(), made)

    def test_channels_last_values_have_channels_last_specs(self) -> None:
        picture = torch.ones(1, 2, 3, 4).to(memory_format=torch.channels_last)
        made = after(edge_program(lambda x: x.relu(), picture), PropagateSpecs())
        assert named(made, "relu").meta["spec"].dim_order == [0, 2, 3, 1]

    def test_what_kernels_write_row_major_is_row_major(self) -> None:
        made = edge_program(lambda x: x.nonzero() * 2, torch.ones(3, 4))
        made = after(made, LegalizeDimOrder(), RemoveAsserts(), PropagateSpecs(), BoundSymbolicShapes())
        for part in ("nonzero", "mul"):
            spec: TensorSpec = named(made, part).meta["spec"]
            assert (spec.dim_order, spec.shape, spec.stride) == ([0, 1], [12, 2], [2, 1])

    def test_inputs_and_results_of_branches_have_the_specs_of_the_call(self) -> None:
        def branch(x: torch.Tensor) -> Any:
            return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

        made = after(edge_program(branch, torch.ones(3)), PropagateSpecs())
        (call,) = control_flow_calls(made.graph_module)
        for body in call.bodies:
            (given,) = body.graph.find_nodes(op="placeholder")
            assert given.meta["spec"] is call.shared[0].meta["spec"]
            assert [result.meta["spec"] for result in results_of_graph(body)] == call.node.meta["spec"]


class TestBounds:
    def test_input_and_what_follows_from_it(self) -> None:
        class Rows(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                return torch.cat([x, x]), x.sum(0)

        made = bounded(Rows(), torch.ones(5, 3), dynamic_shapes=({0: Dim("rows", max=40)},))
        specs = [named(made, name).meta["spec"] for name in ("x", "cat", "sum")]
        assert [(spec.shape, spec.shape_dynamism) for spec in specs] == [
            ([40, 3], BOUND),
            ([80, 3], BOUND),
            ([3], STATIC),
        ]
        assert all(type(size) is int for spec in specs for size in spec.shape)
        assert named(made, "x").meta["val"].shape[0].node.expr.free_symbols

    @pytest.mark.parametrize(
        ("expression", "largest"),
        [
            (lambda u, v: u - u // 2, 6),
            (lambda u, v: u * 2 - u, 12),
            (lambda u, v: u % 5 + v, 11),
            (lambda u, v: (u * v) // u, 7),
            (lambda u, v: torch.sym_max(u, v) - torch.sym_min(u, v) + 1, 11),
            (lambda u, v: u + v + 3, 22),
        ],
    )
    def test_a_symbol_that_stands_twice_is_one_number(self, expression: Any, largest: int) -> None:
        env = ShapeEnv()
        u, v = env.create_unbacked_symint(), env.create_unbacked_symint()
        constrain_range(u, min=4, max=12)
        constrain_range(v, min=2, max=7)
        assert SizeBounds(made_of(torch.ones(1)), env).upper(expression(u, v)) == largest

    def test_every_unbounded_input_is_reported_at_once(self) -> None:
        class Two(torch.nn.Module):
            def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                return x.sum() + y.sum() + torch.cat([x, x]).sum()

        shapes = ({0: Dim("rows")}, {0: Dim("others", max=4), 1: Dim("columns")})
        with pytest.raises(ModelError) as caught:
            bounded(Two(), torch.ones(5, 3), torch.ones(3, 4), dynamic_shapes=shapes)
        found = [(one.code, one.location.node) for one in caught.value.diagnostics]
        assert found == [("EK433", "%x"), ("EK433", "%y")]
        assert "dim 1" in caught.value.diagnostics[1].message
        assert 'dynamic_shapes={"y": {1: Dim(' in str(caught.value.diagnostics[1].hint)

    def test_the_example_is_no_bound(self) -> None:
        class Id(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x + 1

        with pytest.raises(ModelError):
            bounded(Id(), torch.ones(5), dynamic_shapes=({0: Dim.DYNAMIC},))

    def test_a_bound_too_large_for_the_format_is_none(self) -> None:
        class Id(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x + 1

        with pytest.raises(ModelError) as caught:
            bounded(Id(), torch.ones(5), dynamic_shapes=({0: Dim("size", max=2**40)},))
        assert caught.value.code == "EK433"


class TestSizesThatDataDecide:
    @pytest.mark.parametrize(
        ("function", "size"),
        [
            (lambda x: x.nonzero() * 2, 12),
            (lambda x: x.masked_select(x > 0) * 2, 12),
            (lambda x: x[x > 0] * 2, 12),
            (lambda x: x[(x > 0).any(1)].sum(1), 3),
        ],
    )
    def test_counts_are_bounded_by_what_is_counted(self, function: Any, size: int) -> None:
        made = bounded(function, torch.ones(3, 4), passes=(LegalizeDimOrder(),))
        (result,) = made.graph.output_node().all_input_nodes
        assert (result.meta["spec"].shape[0], result.meta["spec"].shape_dynamism) == (size, BOUND)

    def test_counts_in_something_dynamic(self) -> None:
        class Count(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x.nonzero().sum(0) + x.nonzero().shape[0]

        made = bounded(Count(), torch.ones(5, 2), dynamic_shapes=({0: Dim("rows", max=7)},))
        assert named(made, "nonzero").meta["spec"].shape == [14, 2]

    def test_a_checked_number_is_bounded(self) -> None:
        def ones(n: torch.Tensor) -> torch.Tensor:
            count = n.item()
            torch._check(count >= 0)
            torch._check(count <= 9)
            return torch.ones(count, 2)  # type: ignore[arg-type]

        made = bounded(ones, torch.tensor(4))
        assert made.graph.output_node().all_input_nodes[0].meta["spec"].shape == [9, 2]

    def test_an_unchecked_number_is_reported_with_its_source(self) -> None:
        def ones(n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            count = n.item()
            torch._check(count >= 0)
            return torch.ones(count, 2), torch.ones(count)  # type: ignore[arg-type]

        with pytest.raises(ModelError) as caught:
            bounded(ones, torch.tensor(4))
        (one,) = caught.value.diagnostics
        assert one.code == "EK434"
        assert "torch._check(u0 <= ...)" in str(one.hint)
        assert "_local_scalar_dense" in one.notes[0]

    def test_nothing_changes_when_a_bound_is_missing(self) -> None:
        class Id(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x + 1

        made = edge_program(Id(), torch.ones(5), dynamic_shapes=({0: Dim("size")},))
        made = after(made, PropagateSpecs())
        before = [node.meta.get("spec") for node in made.graph.nodes]
        with pytest.raises(ModelError):
            after(made, BoundSymbolicShapes())
        assert [node.meta.get("spec") for node in made.graph.nodes] == before


def test_a_second_run_finds_nothing() -> None:
    class Id(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    made = edge_program(Id(), torch.ones(5), dynamic_shapes=({0: Dim("size", max=8)},))
    made = after(made, PropagateSpecs())
    assert apply(BoundSymbolicShapes(), made).modified
    assert ops.edge.aten.add.Tensor in [node.target for node in made.graph.nodes]
