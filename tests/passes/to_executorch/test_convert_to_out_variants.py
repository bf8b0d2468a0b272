"""Out variants: allocs, argument names, lists and several results, and all that is missing at once."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from tests.passes.lowering import after, call_nodes, edge_program, executorch_program, run
from tests.passes.programs import apply
from torch.export import ExportedProgram

from exirkit.ir import EdgeOpOverload, GraphEditor, ModelError, alloc
from exirkit.passes import ConvertToOutVariants, PropagateSpecs

ATEN = torch.ops.aten


def converted(model: Any, *args: torch.Tensor) -> ExportedProgram:
    made = edge_program(model, *args)
    expected = run(made, args)
    lowered = after(made, PropagateSpecs())
    apply(ConvertToOutVariants(), lowered)
    for ours, theirs in zip(run(lowered, args), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert not any(isinstance(node.target, EdgeOpOverload) for node in lowered.graph.nodes)
    return lowered


def test_one_result() -> None:
    made = converted(lambda x: x + x, torch.ones(2, 3))
    made_alloc, add = (node for node in made.graph.nodes if node.op == "call_function")
    assert made_alloc.args == (((2, 3), torch.float32),)
    assert (add.target, add.kwargs) == (ATEN.add.out, {"out": made_alloc})
    assert add.meta["spec"] is made_alloc.meta["spec"]


def test_several_results() -> None:
    made = converted(lambda x: torch.topk(x, 2, dim=1), torch.rand(3, 4))
    (node,) = call_nodes(made, ATEN.topk.values)
    allocs = call_nodes(made, alloc)
    assert node.kwargs == {"values": allocs[0], "indices": allocs[1]}
    assert [one.meta["spec"] for one in allocs] == node.meta["spec"]
    assert [one.meta["spec"].dtype for one in allocs] == [torch.float32, torch.int64]


def test_a_list_of_results() -> None:
    made = converted(lambda x: torch.split(x, [1, 2, 1], dim=1), torch.rand(2, 4))
    (node,) = call_nodes(made, ATEN.split_with_sizes_copy.out)
    assert node.kwargs["out"] == call_nodes(made, alloc)
    assert [one.meta["spec"] for one in call_nodes(made, operator.getitem)] == node.meta["spec"]


def test_arguments_that_a_given_tensor_carries_are_dropped() -> None:
    made = converted(lambda x: torch.full((2,), 3.0, dtype=torch.float32) + x, torch.rand(2))
    (node,) = call_nodes(made, ATEN.full.out)
    assert set(node.kwargs) == {"out"}


def test_casts_keep_their_dtype_in_the_alloc() -> None:
    made = converted(lambda x: x.to(torch.int32), torch.rand(2))
    assert call_nodes(made, alloc)[0].args[0][1] is torch.int32


@pytest.fixture(scope="module")
def library() -> Any:
    with torch.library._scoped_library("exirkit_test_out", "DEF") as made:
        for name in ("first", "second"):
            made.define(f"{name}(Tensor x) -> Tensor")
            made.impl(name, lambda x: x.clone(), "CompositeExplicitAutograd")
        made.define("third(Tensor x, float y) -> Tensor")
        made.impl("third", lambda x, y: x * y, "CompositeExplicitAutograd")
        made.define("third.out(Tensor x, float y, *, Tensor(a!) out) -> Tensor(a!)")
        yield made


def test_everything_that_is_missing_is_reported_at_once(library: Any) -> None:
    own = torch.ops.exirkit_test_out
    made = edge_program(lambda x: own.third(own.second(own.first(x)), 2.0), torch.ones(2))
    made = after(made, PropagateSpecs())
    editor = GraphEditor(made)
    with pytest.raises(ModelError) as caught:
        ConvertToOutVariants().run(editor)
    assert [one.code for one in caught.value.diagnostics] == ["EK435", "EK435"]
    assert "exirkit_test_out::first" in caught.value.diagnostics[0].message
    assert caught.value.diagnostics[0].location.source
    assert not call_nodes(made, alloc), "nothing was changed"


def test_missing_variants_can_be_ignored(library: Any) -> None:
    own = torch.ops.exirkit_test_out
    made = edge_program(lambda x: own.third(own.second(x), 2.0), torch.ones(2))
    lowered = executorch_program(made, ignore_to_out_var_failure=True)
    assert call_nodes(lowered, own.second.default)
    assert call_nodes(lowered, own.third.out)
