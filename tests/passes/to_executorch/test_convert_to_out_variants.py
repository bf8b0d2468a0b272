"""Out variants: allocs, argument names, lists and several results, and all that is missing at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.passes.lowering import after, call_nodes, edge_program, executorch_program

from exirkit.ir import GraphEditor, ModelError, alloc
from exirkit.passes import ConvertToOutVariants, PropagateSpecs

ATEN = torch.ops.aten


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
