"""Specs: what they say of values, and the upper bounds of their sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.passes.lowering import after, edge_program
from torch.export import Dim, ExportedProgram
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv, constrain_range

from exirkit.ir import ModelError, TensorShapeDynamism
from exirkit.passes import (
    BoundSymbolicShapes,
    Pass,
    PropagateSpecs,
    RemoveAsserts,
)
from exirkit.passes.to_executorch.symbolic_shapes import SizeBounds

STATIC, BOUND = TensorShapeDynamism.STATIC, TensorShapeDynamism.DYNAMIC_BOUND


def bounded(model: Any, *args: Any, passes: tuple[Pass, ...] = (), **options: Any) -> ExportedProgram:
    made = edge_program(model, *args, **options)
    return after(made, *passes, RemoveAsserts(), PropagateSpecs(), BoundSymbolicShapes())


def named(program: ExportedProgram, part: str) -> Node:
    return next(node for node in program.graph.nodes if part in node.name)


def made_of(x: torch.Tensor) -> ExportedProgram:
    return edge_program(lambda x: x + 1.0, x)


class TestBounds:
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

    def test_a_size_that_falls_is_greatest_for_the_least_value_that_callers_may_pass(self) -> None:
        class Falling(torch.nn.Module):
            def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
                return torch.abs(y.expand(8 - x.shape[0]))

        shapes = ({0: Dim("size", min=1, max=6)}, None)
        made = bounded(Falling(), torch.ones(3), torch.ones(1), dynamic_shapes=shapes)
        assert list(named(made, "abs").meta["spec"].shape) == [7]

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

    def test_the_example_is_not_a_bound(self) -> None:
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
