"""Parts of tensors one by one, for runtimes whose kernels do not resize lists of results."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import GraphEditor, ops
from exirkit.passes.contract import Pass

from .edge_calls import EdgeCalls

aten = ops.edge.aten


class LegalizeSplits(Pass):
    """Replace splits and unbinds whose results have sizes that vary by slices and selections.

    The kernels `split_copy` and `unbind_copy` of the official runtime check the sizes of their results and do not set
    them, so that they only run at the upper bounds. `slice_copy` and `select_copy` resize their results, and so does
    `split_with_sizes_copy`, which stays.

    Before: `%parts = aten.split_copy.Tensor(%x, 2, 1)`; `%second = getitem(%parts, 1)`
    After: `%second = aten.slice_copy.Tensor(%x, 1, 2, 4)`
    """

    name = "legalize-splits"
    enters_bodies = True
    requires = ("edge-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Replace the calls, in graph order."""
        for node in list(editor.graph.nodes):
            if not self.concerns(node):
                continue
            make = _select if node.target is aten.unbind_copy.int else _slice
            for part in list(node.users):
                if part.users:
                    editor.replace(part, make(EdgeCalls(editor, part), node, part))
                editor.erase(part)
            editor.erase(node)

    @staticmethod
    def concerns(node: Node) -> bool:
        """Whether the pass would replace a node."""
        if node.target not in (aten.split_copy.Tensor, aten.unbind_copy.int):
            return False
        parts: list[torch.Tensor] = node.meta["val"]
        return any(not isinstance(size, int) for part in parts for size in part.shape)


def _dim(node: Node, default_place: int) -> int:
    given: Any = node.args[default_place] if len(node.args) > default_place else node.kwargs.get("dim", 0)
    rank: int = node.args[0].meta["val"].dim()  # type: ignore[union-attr]
    return int(given) % rank


def _select(calls: EdgeCalls, node: Node, part: Node) -> Node:
    source: Any = node.args[0]
    return calls.given_value(part.meta["val"], aten.select_copy.int, source, _dim(node, 1), part.args[1])


def _slice(calls: EdgeCalls, node: Node, part: Node) -> Node:
    source: Any = node.args[0]
    size: Any = node.args[1]
    place: Any = part.args[1]
    # The last part may be shorter: a slice ends where its tensor ends.
    start, end = (_times(calls, size, count) for count in (place, place + 1))
    return calls.given_value(part.meta["val"], aten.slice_copy.Tensor, source, _dim(node, 2), start, end)


def _times(calls: EdgeCalls, size: int | Node, count: int) -> int | Node:
    if isinstance(size, int):
        return size * count
    return 0 if count == 0 else size if count == 1 else calls(operator.mul, size, count)
