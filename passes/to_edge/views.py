"""Views become copies, and what does nothing is removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from exirkit.ir import (
    INFER,
    Diagnostic,
    GraphEditor,
    ModelError,
    ProgramInterface,
    contiguous_stride,
    copy_variant,
    has_trait,
    locate,
    named_arguments,
    operators_with,
    same_argument,
    same_value,
    underlying,
)
from exirkit.passes.contract import Pass


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
            if has_trait(op, "identity"):
                editor.replace(node, node.args[0])
                editor.erase(node)
            elif isinstance(op, OpOverload) and _returns_view(op):
                variant = _variant(op)
                if variant is None:
                    raise ModelError(_no_variant(node, op))
                args, kwargs = node.args, node.kwargs
                if op is torch.ops.aten._reshape_alias.default:
                    args = args[:2]
                value = INFER if _may_be_misstated(op, node) else _copied(editor, node.meta["val"], copies)
                editor.retarget(node, variant, args, kwargs, val=value)


def _may_be_misstated(op: OpOverload, node: Node) -> bool:
    """Return whether torch may have recorded another shape than that of the view.

    It finds the strides of a view by splitting and merging dims of the source, and rounds where a size that varies is
    split: rows of four, seen as `[-1, 2 * s]`, have the size `4 * (s // 2)`, for it. Of the copy it states the sizes.
    """
    return has_trait(op, "reshape") and not all(isinstance(size, int) for size in node.meta["val"].shape)


@cache
def _returns_view(op: OpOverload) -> bool:
    return copy_variant(op) is not None or (op.is_view and not op._schema.name.endswith("_copy"))


def _variant(op: OpOverload) -> Any:
    namespace, _, name = op._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), f"{name}_copy", None)
    return copy_variant(op) or getattr(packet, op._overloadname, None)


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


def _no_variant(node: Node, op: OpOverload) -> Diagnostic:
    return Diagnostic.of(
        code="EK422",
        message=f"view operator {op.name()} has no copy variant",
        location=locate(node),
        expected=f"an operator {op._schema.name}_copy with the overload {op._overloadname}",
        hint="write the model without this view, or decompose it",
    )


_END = 2**63 - 1


class RemoveNoops(Pass):
    """Replace an operator by its argument where both are the same values in the same shape, dtype and layout.

    Covers casts to the present dtype, copies of what is functional anyway, full slices, expansions, reshapes and
    permutations to the present shape, single concatenations, and repeats by one. Empty parts of a concatenation are
    dropped. A `clone` that a program returns of its input stays: the model asks for a tensor apart from the input, and
    partitioners may take the call. Optimization removes it where inputs and outputs may share memory.
    """

    name = "remove-noops"
    enters_bodies = True
    requires = ("no-views",)
    invalidates = ()
    after = ("promote-types",)
    before = ("use-dim-order-operators", "convert-to-edge-operators")

    def edit(self, editor: GraphEditor) -> None:
        """Remove the operators, in graph order, so that chains collapse in one sweep."""
        returned = _returned_clones(editor)
        for node in list(editor.graph.nodes):
            if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
                continue
            op = underlying(node.target)
            if op is torch.ops.aten.cat.default:
                _drop_empty_parts(editor, node)
            changes_nothing = _TESTS.get(op)
            if changes_nothing is None or node in returned:
                continue
            source = _source(node)
            if source is None or not changes_nothing(node):
                continue
            # The argument may be laid out in another way than the copy; then the copy is what makes the layout.
            if same_value(source.meta["val"], node.meta["val"]):
                editor.replace(node, source)
                editor.erase(node)


def _returned_clones(editor: GraphEditor) -> set[Node]:
    """Return the clones of inputs that the program returns to its caller, not those that it writes to buffers."""
    return {
        value
        for value in ProgramInterface.of(editor.program).user_results
        if isinstance(value, Node)
        and underlying(value.target) is torch.ops.aten.clone.default
        and isinstance(value.args[0], Node)
        and value.args[0].op == "placeholder"
    }


def _source(node: Node) -> Node | None:
    first = node.args[0] if node.args else None
    if isinstance(first, list | tuple) and len(first) == 1:
        first = first[0]
    return first if isinstance(first, Node) and isinstance(first.meta.get("val"), torch.Tensor) else None


def _always(node: Node) -> bool:
    return True


def _is_full_slice(node: Node) -> bool:
    given = {"dim": 0, "start": None, "end": None, "step": 1, **named_arguments(node)}
    end, size = given["end"], node.args[0].meta["val"].shape[given["dim"]]  # type: ignore[union-attr]
    reaches_end = end is None or (isinstance(end, int) and (end == _END or (isinstance(size, int) and end >= size)))
    return given["start"] in (None, 0) and given["step"] == 1 and reaches_end


def _is_identity_permutation(node: Node) -> bool:
    dims = named_arguments(node)["dims"]
    return [dim % len(dims) for dim in dims] == list(range(len(dims))) if dims else True


def _repeats_once(node: Node) -> bool:
    return all(isinstance(count, int) and count == 1 for count in named_arguments(node)["repeats"])


_TESTS: dict[Any, Callable[[Node], bool]] = {
    # For these, an equal shape, dtype and layout of argument and result is all there is to test.
    **dict.fromkeys((*operators_with("noop_if_same_type"), torch.ops.aten.cat.default), _always),
    torch.ops.aten.slice_copy.Tensor: _is_full_slice,
    torch.ops.aten.permute_copy.default: _is_identity_permutation,
    torch.ops.aten.repeat.default: _repeats_once,
}


def _drop_empty_parts(editor: GraphEditor, node: Node) -> None:
    parts: Sequence[Node] = node.args[0]  # type: ignore[assignment]
    kept = [part for part in parts if not _is_empty(part.meta["val"])]
    if len(kept) == len(parts):
        return
    value = node.meta["val"]
    if kept:
        # A legacy empty tensor of one dim joins anything; dropping it can change neither shape nor dtype of the rest.
        if all(part.meta["val"].dtype == value.dtype for part in kept):
            strides = contiguous_stride(value.shape)
            if same_argument(tuple(strides), tuple(value.stride())):
                editor.retarget(node, torch.ops.aten.cat.default, (kept, *node.args[1:]), val=value)
        return
    if all(type(size) is int for size in value.shape):
        editor.retarget(node, torch.ops.aten.full.default, (list(value.shape), 0), {"dtype": value.dtype}, val=value)


def _is_empty(value: torch.Tensor) -> bool:
    return any(isinstance(size, int) and size == 0 for size in value.shape)
