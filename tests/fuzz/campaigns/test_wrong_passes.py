"""Wrong passes of the kinds that real compilers had: found, blamed on the pass, and reduced to a few calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from exirkit import GraphEditor, Pass, ops
from exirkit.fuzz.campaigns.user_tests import PassFuzzer

aten = ops.edge.aten
CAST = ops.edge.dim_order_ops._to_dim_order_copy.default
# Nodes are `Any` here: what their arguments are, is what the edits are about.
Edit = Callable[[GraphEditor, Any], None]


class Wrong(Pass):
    """Edits each call of some operators, if the value that it takes first is computed by one of others."""

    changes_outputs = True

    def __init__(self, edit: Edit, outer: set[Any], inner: set[Any] | None) -> None:
        self.change, self.outer, self.inner = edit, outer, inner

    def edit(self, editor: GraphEditor) -> None:
        nodes: list[Any] = list(editor.graph.nodes)
        for node in nodes:
            if node.target in self.outer and (self.inner is None or node.args[0].target in self.inner):
                self.change(editor, node)
                editor.erase_unused(node)


def replaced(editor: GraphEditor, node: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    """Replace a node by a call in front of it."""
    made = editor.call(target, args, kwargs, before=node, origins=node)
    editor.replace(node, made)
    return made


def floor_for_truncation(editor: GraphEditor, node: Any) -> None:
    """A shift to the right rounds down, a division of integers that truncates does not."""
    if node.kwargs.get("rounding_mode") == "trunc" and not node.meta["val"].dtype.is_floating_point:
        replaced(editor, node, node.target, *node.args, rounding_mode="floor")


def inner_value_replaced(editor: GraphEditor, node: Any) -> None:
    """relu(-x) is made of the call inside, which others may use as well."""
    inner = node.args[0]
    low = editor.call(aten.clamp.default, (inner.args[0], None, 0), before=inner, origins=inner)
    made = editor.call(aten.neg.default, (low,), before=inner, origins=inner)
    editor.replace(inner, made)
    editor.replace(node, made)


def rest_of_permutation_forgotten(editor: GraphEditor, node: Any) -> None:
    """The maximum along another dim, but what is left is in another order."""
    x, order = node.args[0].args
    replaced(editor, node, aten.amax.default, x, [order[dim] for dim in node.args[1]], *node.args[2:])


def lossy_cast_removed(editor: GraphEditor, node: Any) -> None:
    """A cast to half precision and back loses digits."""
    if node.meta["val"].dtype == node.args[0].args[0].meta["val"].dtype:
        editor.replace(node, node.args[0].args[0])


def other_gate(editor: GraphEditor, node: Any) -> None:
    """x * sigmoid(y) is taken for silu, whatever y is."""
    if node.args[1].target is aten.sigmoid.default:
        gate = editor.call(aten.sigmoid.default, (node.args[0],), before=node, origins=node)
        replaced(editor, node, aten.mul.Tensor, node.args[0], gate)


def limits_swapped(editor: GraphEditor, node: Any) -> None:
    """Limits are applied in the other order: another result where they cross."""
    x, high = node.args[0].args
    low = editor.call(aten.maximum.default, (x, node.args[1]), before=node, origins=node)
    replaced(editor, node, aten.minimum.default, low, high)


def promotion_forgotten(editor: GraphEditor, node: Any) -> None:
    """Integers times 1.0 are floats."""
    if node.args[1] == 1:
        editor.replace(node, node.args[0])


Example = tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]
PRODUCT = {"vars": {"x": "num [*S]", "c": "one_of 1, 2, 1.0"}, "match": "return aten.mul.Scalar(x, c)"}
SQUARE = torch.randn(3, 3, 3)


def wrong_passes() -> Iterator[tuple[Edit, set[Any], set[Any] | None, Example | None]]:
    """Yield edits, operators, and a model that the pass is for."""
    div = {aten.div.Tensor_mode, aten.div.Scalar_mode}
    # All positive, so that the example itself does not show it.
    numbers = torch.tensor([3, 8, 5, 9])
    yield floor_for_truncation, div, None, (lambda x: torch.div(x, 4, rounding_mode="trunc"), (numbers,))
    yield inner_value_replaced, {aten.relu.default}, {aten.neg.default}, (lambda x: torch.relu(-x), (torch.ones(2, 3),))
    permuted = {aten.permute_copy.default}
    yield (
        rest_of_permutation_forgotten,
        {aten.amax.default},
        permuted,
        (lambda x: x.permute(1, 2, 0).amax(0), (SQUARE,)),
    )
    # The numbers of the example are those of half precision.
    halves = torch.tensor([1.0, 2.0, 3.5])
    yield lossy_cast_removed, {CAST}, {CAST}, (lambda x: x.to(torch.float16).to(torch.float32), (halves,))
    yield other_gate, {aten.mul.Tensor}, None, (lambda x: x * torch.sigmoid(x), (torch.randn(4),))
    limits = (torch.randn(4), torch.ones(4), -torch.ones(4))
    crossed = (lambda x, high, low: torch.maximum(torch.minimum(x, high), low), limits)
    yield limits_swapped, {aten.maximum.default}, {aten.minimum.default}, crossed
    yield promotion_forgotten, {aten.mul.Scalar}, None, None


@pytest.mark.parametrize(
    ("edit", "outer", "inner", "example"),
    [
        pytest.param(*one, id=one[0].__name__, marks=[pytest.mark.slow] if at % 3 else [])
        for at, one in enumerate(wrong_passes())
    ],
)
def test_a_wrong_pass_is_found_blamed_and_reduced(
    edit: Edit, outer: set[Any], inner: set[Any] | None, example: Example | None, tmp_path: Path
) -> None:
    wrong = type("Wrong", (Wrong,), {"name": edit.__name__})(edit, outer, inner)
    given: dict[str, Any] = {"pattern": PRODUCT} if example is None else {"examples": [example]}
    with pytest.raises(pytest.fail.Exception) as caught:
        PassFuzzer(directory=tmp_path)(wrong, seeds=72, **given)
    told = str(caught.value)
    assert f"culprit: {wrong.name}" in told
    assert told.partition("reduced:")[2].count(" = aten.") <= 5, told
