"""Reshaping copies share memory exactly where nothing can see it, and results stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.passes.lowering import after, call_nodes, edge_program, run
from tests.passes.programs import apply
from torch.export import Dim, ExportedProgram

from exirkit.ir import GraphEditor, ops, view
from exirkit.passes import (
    BoundSymbolicShapes,
    EliminateViews,
    LegalizeDimOrder,
    LowerSymbolicArithmetic,
    PropagateSpecs,
    RemoveAsserts,
    WriteBackMutations,
)

ATEN = ops.edge.aten
CLONE = ops.edge.dim_order_ops._clone_dim_order.default
COPIES = {
    ATEN.view_copy.default,
    ATEN.unsqueeze_copy.default,
    ATEN.squeeze_copy.dims,
    ATEN.permute_copy.default,
    ATEN.expand_copy.default,
    ATEN.slice_copy.Tensor,
    CLONE,
    ops.edge.dim_order_ops._to_dim_order_copy.default,
}


def prepared(model: Any, *args: torch.Tensor, **options: Any) -> ExportedProgram:
    made = edge_program(model, *args, **options)
    return after(
        made,
        WriteBackMutations(),
        LegalizeDimOrder(),
        RemoveAsserts(),
        LowerSymbolicArithmetic(),
        PropagateSpecs(),
        BoundSymbolicShapes(),
    )


def eliminated(model: Any, *args: torch.Tensor, alloc_graph_output: bool = True, **options: Any) -> ExportedProgram:
    """Eliminate views, and check results and storage of what is left.

    Args:
        model: Module or function.
        args: Example inputs.
        alloc_graph_output: Whether outputs are planned.
        options: For `torch.export.export`.
    """
    made = prepared(model, *args, **options)
    expected = run(made, [one.clone() for one in args])
    apply(EliminateViews(alloc_graph_output=alloc_graph_output), made)
    for ours, theirs in zip(run(made, [one.clone() for one in args]), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    for node in call_nodes(made, view):
        base = node.args[0]
        assert node.meta["spec"].storage_base is base.meta["spec"]
        assert base.meta["spec"].storage_base is None, "the base owns its memory"
        assert node.meta["spec"] is not base.meta["spec"]
    return made


def copies(program: ExportedProgram) -> int:
    return sum(node.target in COPIES for node in program.graph.nodes)


X = torch.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(6, 4),
        lambda x: x.unsqueeze(1),
        lambda x: x.view(2, 1, 3, 4).squeeze(1),
        lambda x: x.view(2, 1, 12).permute(1, 0, 2),
        lambda x: x.view(2, 1, 12).transpose(0, 1),
        lambda x: x.clone(),
        lambda x: x.expand(2, 3, 4),
        lambda x: x.view(24)[:],
        lambda x: x.view(4, 6).view(3, 8).unsqueeze(0).view(24),
    ],
)
def test_what_only_renames_the_shape_is_no_copy(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert copies(eliminated(lambda x: function(x * 2.0) + 1.0, X)) == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.permute(1, 0, 2),
        lambda x: x.transpose(1, 2),
        lambda x: x.expand(5, 2, 3, 4),
        lambda x: x.view(24)[1:],
    ],
)
def test_what_moves_elements_stays_a_copy(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert copies(eliminated(lambda x: function(x * 2.0) + 1.0, X)) == 1


def test_a_chain_of_views_names_the_owner_and_leaves_no_dead_node() -> None:
    made = eliminated(lambda x: (x * 2.0).view(6, 4).view(24).view(8, 3) + 1.0, X)
    (one,) = call_nodes(made, view)
    assert one.args[1] == [8, 3]
    assert one.args[0] is call_nodes(made, ATEN.mul.Tensor)[0]


def test_a_view_of_a_constant_is_a_constant() -> None:
    class Weighted(torch.nn.Module):
        weight: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.arange(4.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight.view(1, 1, 4)

    (one,) = call_nodes(eliminated(Weighted(), X), view)
    assert one.meta["spec"].const


class Counter(torch.nn.Module):
    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        before = self.total.view(6).clone()
        self.total.add_(x)
        return before * 1.0, before


def test_what_is_written_back_is_not_shared() -> None:
    made = eliminated(Counter(), torch.ones(2, 3))
    assert not call_nodes(made, view)
    state = {"total": torch.zeros(2, 3)}
    for step in range(3):
        answers = run(made, [torch.ones(2, 3)], state)
        assert [float(one.sum()) for one in answers[1:]] == [6.0 * step] * 2


class TestOutputs:
    def test_a_view_of_something_computed_may_be_returned(self) -> None:
        assert copies(eliminated(lambda x: (x * 2.0).view(24), X)) == 0

    def test_not_where_the_caller_names_the_place(self) -> None:
        assert copies(eliminated(lambda x: (x * 2.0).view(24), X, alloc_graph_output=False)) == 1

    def test_not_of_an_input(self) -> None:
        assert copies(eliminated(lambda x: x.view(24), X)) == 1

    def test_not_of_what_is_returned_itself(self) -> None:
        def both(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = x * 2.0
            return y, y.view(24), y.view(6, 4)

        assert copies(eliminated(both, X)) == 2

    def test_one_of_two_views_of_something_computed(self) -> None:
        def both(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = x * 2.0
            return y.view(24), y.view(6, 4)

        assert copies(eliminated(both, X)) == 1

    def test_a_clone_of_an_output_keeps_its_own_memory(self) -> None:
        made = prepared(lambda x: (x * 2.0, x * 3.0), X)
        editor = GraphEditor(made)
        output = made.graph.output_node()
        with editor.transaction("test"):
            first = output.all_input_nodes[0]
            clone = editor.call(CLONE, (first,), {"dim_order": [0, 1, 2]}, before=output)
            editor.rewire(output, ((first, clone),))
        made = after(made, PropagateSpecs())
        apply(EliminateViews(), made)
        first, second = made.graph.output_node().args[0]
        assert first is not second


class TestDynamicShapes:
    SHAPES = ({0: Dim("rows", min=2, max=9)},)

    def test_sizes_of_the_view_are_its_argument(self) -> None:
        class Flat(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return (x * 2.0).view(x.shape[0] * 3, 2) + 1.0

        made = eliminated(Flat(), torch.ones(4, 6), dynamic_shapes=self.SHAPES)
        (one,) = call_nodes(made, view)
        assert copies(made) == 0
        assert one.args[1][0].name
        assert one.meta["spec"].shape == [27, 2]

    def test_one_unknown_size_needs_no_arithmetic(self) -> None:
        class More(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return (x * 2.0).unsqueeze(1) + 1.0

        (one,) = call_nodes(eliminated(More(), torch.ones(4, 6), dynamic_shapes=self.SHAPES), view)
        assert one.args[1] == [-1, 1, 6]

    def test_two_unknown_sizes_that_no_argument_gives_stay_a_copy(self) -> None:
        class More(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return (x * 2.0).unsqueeze(0) + 1.0

        shapes = ({0: Dim("rows", min=2, max=9), 1: Dim("columns", min=2, max=9)},)
        made = eliminated(More(), torch.ones(4, 6), dynamic_shapes=shapes)
        assert copies(made) == 1

    def test_a_dim_that_can_grow_is_not_of_size_one(self) -> None:
        class Turned(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return (x * 2.0).permute(1, 0, 2) + 1.0

        shapes = ({0: Dim("rows", min=1, max=9)},)
        assert copies(eliminated(Turned(), torch.ones(4, 3, 2), dynamic_shapes=shapes)) == 1


def test_layouts_that_differ_in_name_only_share_memory() -> None:
    def pooled(x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3), keepdim=True).to(memory_format=torch.channels_last).relu()

    picture = torch.rand(2, 3, 4, 4).to(memory_format=torch.channels_last)
    made = prepared(pooled, picture)
    apply(EliminateViews(), made)
    for node in call_nodes(made, view):
        source = node.args[0]
        assert node.meta["spec"].dim_order != source.meta["spec"].dim_order


def test_an_empty_tensor_has_views_too() -> None:
    eliminated(lambda x: (x * 2.0).view(0, 4).view(2, 0) + 1.0, torch.ones(0, 2))


def test_rank_zero_has_views_too() -> None:
    assert copies(eliminated(lambda x: (x * 2.0).view(()) + 1.0, torch.ones(1))) == 0
