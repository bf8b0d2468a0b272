"""Operators whose results are as long as data say, in terms of core operators with masks as indices."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import CallMethodKey, GraphEditor, ShapeEnv, ValueRanges, bound_sympy, pytree
from exirkit.passes.analysis import is_kept_whole
from exirkit.passes.config.lowering_config import Overload
from exirkit.passes.contract import Pass

aten = torch.ops.aten

_SIZE = aten.sym_size.int


@dataclass(eq=False)
class DecomposeCounting(Pass):
    """Replace operators whose results are as long as data say, where that can be done exactly.

    These are `masked_select`, `unique`, `unique_consecutive`, `bincount` and `repeat_interleave`. `unique` and
    `unique_consecutive` need sizes that do not vary, at least one element, and no dim; `repeat_interleave` needs to be
    given the length of its result. Other calls are left for the check of core operators to reject.

    Args:
        preserve: Operators that stay whole.

    Before: `%found = aten.masked_select.default(%x, %mask)`
    After: `%found = aten.index.Tensor(%x, [%mask])`
    """

    name = "decompose-counting"
    enters_subgraphs = True
    invalidates = ("core-operators",)

    preserve: frozenset[Overload] = frozenset()

    def edit(self, editor: GraphEditor) -> None:
        """Replace the calls, in graph order."""
        for node in list(editor.graph.nodes):
            replace = _REPLACEMENTS.get(node.target) if node.op == "call_function" else None
            if replace is not None and node.target not in self.preserve and not is_kept_whole(node):
                replace(editor, node)


def _call(editor: GraphEditor, node: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
    return editor.call(target, args, kwargs, before=node, origins=node)


def _indexed(editor: GraphEditor, node: Node, value: Any, source: Node, mask: Node) -> Node:
    """Select by a mask; the result has the size that the operator in question gave to it."""
    made = editor.call(aten.index.Tensor, (source, [mask]), before=node, origins=node, val=value)
    # Where the symbols are found in the result, so that they keep their names when the value is inferred again.
    bindings: dict[Any, Any] = {
        size.node.expr: (CallMethodKey("size"), pytree.SequenceKey(dim))
        for dim, size in enumerate(value.shape)
        if isinstance(size, torch.SymInt) and size.node.expr in (node.meta.get("unbacked_bindings") or ())
    }
    editor.set_meta(made, "unbacked_bindings", bindings)
    return made


def _select(editor: GraphEditor, node: Node) -> None:
    operands: list[Any] = list(node.args[:2])
    shapes = [one.meta["val"].shape for one in operands]
    whole = _repeated_sizes(shapes)
    if whole is None:
        return
    if not _is_whole(shapes[0], whole):
        _bound_by(editor, node, shapes[0], whole)
    made = [
        one if _is_whole(shape, whole) else _repeated(editor, node, one, operands, whole)
        for one, shape in zip(operands, shapes, strict=True)
    ]
    if not whole:
        # A single number has no dim along which it could be chosen.
        made = [_call(editor, node, aten.unsqueeze.default, one, 0) for one in made]
    editor.replace(node, _indexed(editor, node, node.meta["val"], *made))
    editor.erase(node)


def _repeated_sizes(shapes: Sequence[Sequence[Any]]) -> list[Any] | None:
    """Return the sizes that tensors have when they are repeated to fit each other; None if that cannot be said.

    Sizes are compared as text: comparing those that vary would guard on them.
    """
    found: list[Any] = []
    for dim in range(-max(map(len, shapes)), 0):
        longer = {str(shape[dim]): shape[dim] for shape in shapes if len(shape) >= -dim and str(shape[dim]) != "1"}
        if len(longer) > 1:
            return None
        found += longer.values() or (1,)
    return found


def _is_whole(shape: Sequence[Any], whole: Sequence[Any]) -> bool:
    return list(map(str, shape)) == list(map(str, whole))


def _repeated(editor: GraphEditor, node: Node, source: Node, operands: Sequence[Node], whole: Sequence[Any]) -> Node:
    """Repeat a tensor to sizes that one of the operands has, each of them."""
    sizes: list[Any] = []
    for dim, size in enumerate(whole, start=-len(whole)):
        shapes = {one: one.meta["val"].shape for one in operands}
        owner = next(one for one, shape in shapes.items() if len(shape) >= -dim and str(shape[dim]) == str(size))
        at = len(shapes[owner]) + dim
        is_known = type(size) is int
        sizes.append(size if is_known else editor.call(_SIZE, (owner, at), before=node, origins=node, val=size))
    return _call(editor, node, aten.expand.default, source, sizes)


def _bound_by(editor: GraphEditor, node: Node, counted: Sequence[Any], whole: Sequence[Any]) -> None:
    """Let as many elements be selected as the mask has, where torch counts those of a tensor that is repeated."""
    env = editor.fake_mode.shape_env
    if env is None:
        return
    counts, most = _largest_count(env, counted), _largest_count(env, whole)
    for symbol in node.meta.get("unbacked_bindings") or ():
        # The environment is shared by all copies of the program, for each of which this is true. Another bound than
        # that count is the model's own.
        known, recorded = env.var_to_range[symbol], editor.program.range_constraints.get(symbol)
        if known.upper == counts:
            env.var_to_range[symbol] = ValueRanges(known.lower, most)
        if recorded is not None and recorded.upper == counts:
            editor.set_range(symbol, ValueRanges(recorded.lower, most))


def _largest_count(env: ShapeEnv, sizes: Sequence[Any]) -> Any:
    count = math.prod(sizes)
    return count if isinstance(count, int) else bound_sympy(count.node.expr, env.var_to_range).upper


def _repeat(editor: GraphEditor, node: Node) -> None:
    length = node.kwargs.get("output_size", node.args[1] if len(node.args) > 1 else None)
    if length is None:
        return
    repeats: Any = node.args[0]
    # Element i comes from the first row whose repetitions, added to those of the rows before, are more than i.
    ends = _call(editor, node, aten.cumsum.default, repeats, 0)
    places = _call(editor, node, aten.arange.default, length)
    before = _call(
        editor,
        node,
        aten.le.Tensor,
        _call(editor, node, aten.unsqueeze.default, ends, 0),
        _call(editor, node, aten.unsqueeze.default, places, 1),
    )
    rows = _call(editor, node, aten.sum.dim_IntList, before, [1])
    dtype = node.meta["val"].dtype
    if dtype is not rows.meta["val"].dtype:
        rows = _call(editor, node, aten._to_copy.default, rows, dtype=dtype)
    editor.replace(node, rows)
    editor.erase(node)


def _unique(editor: GraphEditor, node: Node) -> None:
    source: Any = node.args[0]
    is_sorted = node.target is aten._unique2.default
    results = _results(editor, node)
    if results is None or (not is_sorted and (node.kwargs.get("dim") is not None or len(node.args) > 3)):
        return
    shape = source.meta["val"].shape
    if not all(type(size) is int for size in shape) or (count := math.prod(shape)) < 1:
        return
    flat = _call(editor, node, aten.reshape.default, source, [count])
    order = None
    if is_sorted:
        flat, order = _sorted(editor, node, flat, count)
    first = _call(editor, node, aten.full.default, [1], True, dtype=torch.bool)
    ahead, behind = (_call(editor, node, aten.slice.Tensor, flat, 0, *ends) for ends in ((1, count), (0, count - 1)))
    differs = _call(editor, node, aten.ne.Tensor, ahead, behind)
    starts = _call(editor, node, aten.cat.default, [first, differs])
    if 0 in results:
        values = results[0]
        editor.replace(values, _indexed(editor, node, values.meta["val"], flat, starts))
    if 1 in results or 2 in results:
        group = _call(
            editor, node, aten.cumsum.default, _call(editor, node, aten._to_copy.default, starts, dtype=torch.int64), 0
        )
        group = _call(editor, node, aten.sub.Scalar, group, 1)
        if 2 in results:
            editor.replace(results[2], _group_sizes(editor, node, results[2].meta["val"], group, count))
        if 1 in results:
            if order is not None:
                empty = _call(editor, node, aten.full.default, [count], 0, dtype=torch.int64)
                group = _call(editor, node, aten.scatter.src, empty, 0, order, group)
            editor.replace(results[1], _call(editor, node, aten.reshape.default, group, list(shape)))
    for one in (*results.values(), node):
        editor.erase(one)


def _sorted(editor: GraphEditor, node: Node, flat: Node, count: int) -> tuple[Node, Node]:
    """Return elements in order, and where they were, with the kernel for the smallest; booleans have no order there."""
    is_bool = flat.meta["val"].dtype is torch.bool
    if is_bool:
        flat = _call(editor, node, aten._to_copy.default, flat, dtype=torch.uint8)
    ranked = _call(editor, node, aten.topk.default, flat, count, 0, False, True)
    values, order = (_call(editor, node, operator.getitem, ranked, place) for place in (0, 1))
    return _call(editor, node, aten._to_copy.default, values, dtype=torch.bool) if is_bool else values, order


def _group_sizes(editor: GraphEditor, node: Node, value: Any, group: Node, count: int) -> Node:
    """Return how many elements each group has; groups are numbered from zero without gaps."""
    zeros = _call(editor, node, aten.full.default, [count], 0, dtype=torch.int64)
    ones = _call(editor, node, aten.full.default, [count], 1, dtype=torch.int64)
    sizes = _call(editor, node, aten.scatter_add.default, zeros, 0, group, ones)
    # There are as many groups as there are sizes other than zero.
    return _indexed(editor, node, value, sizes, _call(editor, node, aten.gt.Scalar, sizes, 0))


def _bincount(editor: GraphEditor, node: Node) -> None:
    source: Any = node.args[0]
    weights = node.args[1] if len(node.args) > 1 else node.kwargs.get("weights")
    least = node.args[2] if len(node.args) > 2 else node.kwargs.get("minlength", 0)
    value, count = node.meta["val"], source.meta["val"].shape[0]
    if not isinstance(count, int) or count < 1:
        return
    places = source
    if source.meta["val"].dtype is not torch.int64:
        places = _call(editor, node, aten._to_copy.default, source, dtype=torch.int64)
    last = _call(editor, node, aten.amax.default, places)
    length = _call(editor, node, aten.add.Scalar, last, 1)
    if least:
        length = _call(editor, node, aten.clamp.default, length, least)
    size = _sized(editor, node, value, length)
    zeros = _call(editor, node, aten.full.default, [size], 0, dtype=value.dtype)
    if weights is None:
        weights = _call(editor, node, aten.full.default, [count], 1, dtype=value.dtype)
    elif weights.meta["val"].dtype is not value.dtype:  # type: ignore[union-attr]
        weights = _call(editor, node, aten._to_copy.default, weights, dtype=value.dtype)
    editor.replace(node, _call(editor, node, aten.scatter_add.default, zeros, 0, places, weights))
    editor.erase(node)


def _sized(editor: GraphEditor, node: Node, value: Any, length: Node) -> Node:
    """Read a length, which is the size that the operator in question gave to its result."""
    size = value.shape[0]
    made = editor.call(aten._local_scalar_dense.default, (length,), before=node, origins=node, val=size)
    editor.set_meta(made, "unbacked_bindings", {size.node.expr: ()})
    return made


def _results(editor: GraphEditor, node: Node) -> dict[int, Node] | None:
    """Return the results that are used, by their places, or None if they are used in other ways.

    Results that the call was not asked for have no elements; they are replaced here.
    """
    found: dict[int, Node] = {}
    for user in node.users:
        if user.target is not operator.getitem or user.args[1] in found:
            return None
        found[user.args[1]] = user  # type: ignore[index]
    for place in [place for place, result in found.items() if place and _is_empty(result.meta["val"])]:
        result = found.pop(place)
        dtype = result.meta["val"].dtype
        editor.replace(result, _call(editor, node, aten.full.default, [0], 0, dtype=dtype))
        editor.erase(result)
    return found


def _is_empty(value: torch.Tensor) -> bool:
    return value.dim() == 1 and type(value.shape[0]) is int and value.shape[0] == 0


_REPLACEMENTS: Mapping[Any, Callable[[GraphEditor, Node], None]] = {
    aten.masked_select.default: _select,
    aten.repeat_interleave.Tensor: _repeat,
    aten._unique2.default: _unique,
    aten.unique_consecutive.default: _unique,
    aten.bincount.default: _bincount,
}
