"""Turn operators that return views into their copying twins."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from exirkit.ir import (
    INFER,
    Diagnostic,
    GraphEditor,
    ModelError,
    contiguous_stride,
    locate,
    same_argument,
    underlying,
)
from exirkit.passes.contract import Pass

# Views of everything: in a functional graph they are their argument.
_IDENTITIES = frozenset(
    {
        torch.ops.aten.alias.default,
        torch.ops.aten.detach.default,
        torch.ops.aten.lift_fresh.default,
        torch.ops.aten.positive.default,
    }
)

# Twins whose name is not the view's name with `_copy` behind it.
_IRREGULAR: dict[OpOverload, OpOverload] = {
    torch.ops.aten.reshape.default: torch.ops.aten.view_copy.default,
    torch.ops.aten._reshape_alias.default: torch.ops.aten.view_copy.default,
    torch.ops.aten.split.Tensor: torch.ops.aten.split_copy.Tensor,
    torch.ops.aten.narrow.default: torch.ops.aten.narrow_copy.default,
}

_RESHAPES = frozenset(
    {
        torch.ops.aten.view.default,
        torch.ops.aten._unsafe_view.default,
        torch.ops.aten.reshape.default,
        torch.ops.aten._reshape_alias.default,
    }
)


class ReplaceViewsWithCopies(Pass):
    """Replace each view operator by the operator that copies.

    A copy is row-major whatever the strides of its source, so users are inferred again where strides changed.

    Ensures: no operator returns an alias of its argument.

    Before: `%permute = aten.permute.default(%x, [1, 0])`
    After: `%permute = aten.permute_copy.default(%x, [1, 0])`
    """

    name = "replace-views-with-copies"
    # Views of which torch states the size wrongly are inferred again as copies.
    changes_outputs = True
    enters_bodies = True
    requires = ("functional",)
    ensures = ("no-views",)
    invalidates = ()
    before = ("use-dim-order-operators", "convert-to-edge-operators")

    def edit(self, editor: GraphEditor) -> None:
        """Replace the views, and drop those that are their argument."""
        copies: dict[Any, Any] = {}
        for node in list(editor.graph.nodes):
            if node.op != "call_function":
                continue
            op = underlying(node.target)
            if op in _IDENTITIES:
                editor.replace(node, node.args[0])
                editor.erase(node)
            elif isinstance(op, OpOverload) and _returns_view(op):
                twin = _twin(op)
                if twin is None:
                    raise ModelError(_no_twin(node, op))
                args, kwargs = node.args, node.kwargs
                if op is torch.ops.aten._reshape_alias.default:
                    args = args[:2]
                value = INFER if _may_be_misstated(op, node) else _copied(editor, node.meta["val"], copies)
                editor.retarget(node, twin, args, kwargs, val=value)


def _may_be_misstated(op: OpOverload, node: Node) -> bool:
    """Tell whether torch may have recorded another shape than that of the view.

    It finds the strides of a view by splitting and merging dims of the source, and rounds where a size that varies is
    split: rows of four, seen as `[-1, 2 * s]`, have the size `4 * (s // 2)`, for it. Of the copy it states the sizes.
    """
    return op in _RESHAPES and not all(isinstance(size, int) for size in node.meta["val"].shape)


def _returns_view(op: OpOverload) -> bool:
    known = _VIEW_CACHE.get(op)
    if known is None:
        known = op in _IRREGULAR or (op.is_view and not op._schema.name.endswith("_copy"))
        _VIEW_CACHE[op] = known
    return known


_VIEW_CACHE: dict[OpOverload, bool] = {}


def _twin(op: OpOverload) -> OpOverload | None:
    if op in _IRREGULAR:
        return _IRREGULAR[op]
    namespace, _, name = op._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), f"{name}_copy", None)
    return getattr(packet, op._overloadname, None)


def _copied(editor: GraphEditor, value: Any, known: dict[Any, Any]) -> Any:
    """Return the value of the copy: the same sizes, row-major; the old value where it is that already."""
    if isinstance(value, list | tuple):
        return [_copied(editor, one, known) for one in value]
    if not isinstance(value, torch.Tensor):
        return INFER
    strides = contiguous_stride(value.shape)
    if same_argument(tuple(value.stride()), tuple(strides)) and same_argument(value.storage_offset(), 0):
        return value
    sizes = tuple(value.shape)
    is_static = all(type(size) is int for size in sizes)
    key = (sizes, value.dtype, value.device) if is_static else None
    if key is not None and key in known:
        return known[key]
    with editor.fake_mode:
        made = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
    if key is not None:
        known[key] = made
    return made


def _no_twin(node: Node, op: OpOverload) -> Diagnostic:
    return Diagnostic(
        code="EK422",
        message=f"view operator {op.name()} has no copying twin",
        location=locate(node),
        expected=f"an operator {op._schema.name}_copy with the overload {op._overloadname}",
        hint="write the model without this view, or decompose it",
    )
