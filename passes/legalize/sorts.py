"""Sorting in terms of `topk`, for runtimes without a kernel that sorts."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import GraphEditor, ops
from exirkit.passes.contract import Pass

from .edge_calls import EdgeCalls

# More rows than any dim has, for sizes that vary: group * this + row stays within 64 bits.
_MOST_ROWS = 2**31


@dataclass(eq=False, kw_only=True)
class LegalizeSorts(Pass):
    """Replace `sort` by `topk` over the whole dim.

    `topk` orders values, NaN included, as `sort` does, but leaves open which of equal elements comes first. Where the
    indices are used, a second `topk` orders equal elements by their positions. That is asked of a stable sort only, but
    decomposition has made those plain ones, and so all runtimes answer alike.

    Args:
        skip_dim_order: Make no operators of `dim_order_ops`.

    Before: `%values, %indices = aten.sort.default(%x, 1)`
    After: `%values, %indices = aten.topk.default(%x, 4, 1, False, True)`, and an order of equal elements
    """

    name = "legalize-sorts"
    enters_bodies = True
    requires = ("edge-operators",)

    skip_dim_order: bool = False

    def edit(self, editor: GraphEditor) -> None:
        """Replace the calls, in graph order."""
        for node in list(editor.graph.nodes):
            if self.concerns(node):
                self._replace(editor, node)

    @staticmethod
    def concerns(node: Node) -> bool:
        """Whether the pass would replace a node."""
        return node.target in (ops.edge.aten.sort.default, ops.edge.aten.sort.stable)

    def _replace(self, editor: GraphEditor, node: Node) -> None:
        results: dict[Any, list[Node]] = {0: [], 1: []}
        for user in list(node.users):
            results[user.args[1]].append(user)
        calls = EdgeCalls(editor, node, skip_dim_order=self.skip_dim_order)
        source: Any = node.args[0]
        dim, descending = calls.given("dim", "descending")
        values, indices = _sorted(calls, source, dim, descending, wants_indices=any(one.users for one in results[1]))
        for place, made in ((0, values), (1, indices)):
            for old in results[place]:
                if made is not None:
                    editor.replace(old, made)
                editor.erase(old)
        editor.erase(node)


def _sorted(
    calls: EdgeCalls, source: Node, dim: int, descending: bool, *, wants_indices: bool
) -> tuple[Node, Node | None]:
    """Return sorted values and, if wanted, where they stood."""
    value = source.meta["val"]
    if value.dim() == 0:
        zero = calls(ops.edge.aten.full.default, [], 0, dtype=torch.int64) if wants_indices else None
        return source, zero
    if value.dtype is torch.bool:
        numbers = calls.cast(source, torch.uint8)
        values, indices = _sorted(calls, numbers, dim, descending, wants_indices=wants_indices)
        return calls.cast(values, torch.bool), indices
    dim %= value.dim()
    ranked = calls(ops.edge.aten.topk.default, source, calls.size(source, dim), dim, descending, True)
    values, order = (calls(operator.getitem, ranked, place) for place in (0, 1))
    size = value.shape[dim]
    if not wants_indices:
        return values, None
    if isinstance(size, int) and size < 2:
        return values, order
    indices = _order_equal(calls, values, order, dim, descending)
    # Zeros of both signs are equal, and each keeps its place.
    return calls(ops.edge.aten.gather.default, source, dim, indices), indices


def _order_equal(calls: EdgeCalls, values: Node, order: Node, dim: int, descending: bool) -> Node:
    """Return the positions of sorted values, those of equal values in increasing order."""
    size = values.meta["val"].shape[dim]
    aten = ops.edge.aten
    # The first value has itself behind it. All rows, because sizes that vary may leave one row, which would broadcast.
    rest = calls(aten.slice_copy.Tensor, values, dim, 0, -1)
    behind = calls(aten.cat.default, [calls(aten.slice_copy.Tensor, values, dim, 0, 1), rest], dim)
    differs = calls(aten.ne.Tensor, values, behind)
    if values.meta["val"].is_floating_point():
        # All that are not numbers are equal here. They are the last, or the first: then so is the second of a pair.
        known = values if descending else behind
        differs = calls(aten.logical_and.default, differs, calls(aten.eq.Tensor, known, known))
    group = calls(aten.cumsum.default, calls.cast(differs, torch.int64), dim)
    rows = size if isinstance(size, int) else _MOST_ROWS
    base = calls(aten.mul.Scalar, group, rows)
    keys = calls(aten.topk.default, calls(aten.add.Tensor, base, order), calls.size(values, dim), dim, False, True)
    # The keys of a group stay where the group is, so that what was added to them is known.
    return calls(aten.sub.Tensor, calls(operator.getitem, keys, 0), base)
