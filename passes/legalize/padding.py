"""Padding by less than nothing is cutting off: the runtime has kernels for both, but not for both in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch.fx import Node

from exirkit.ir import GraphEditor, ops, underlying
from exirkit.passes.contract import Pass

_TO_THE_END: Final = 2**63 - 1


class LegalizePadding(Pass):
    """Replace padding with negative numbers by slices, and padding of what is left with the others.

    Before: `%y = constant_pad_nd.default(%x, [-1, 2], 0.0)`
    After: `%s = slice_copy.Tensor(%x, -1, 1, 9223372036854775807)`; `%y = constant_pad_nd.default(%s, [0, 2], 0.0)`
    """

    name = "legalize-padding"
    enters_bodies = True
    requires = ("edge-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Visit every node once."""
        for node in list(editor.graph.nodes):
            if node.op == "call_function" and underlying(node.target) is torch.ops.aten.constant_pad_nd.default:
                pad = _pad(node)
                if any(type(one) is int and one < 0 for one in pad):
                    _cut(editor, node, pad)


def _pad(node: Node) -> Sequence[Any]:
    given: Any = node.args[1] if len(node.args) > 1 else node.kwargs["pad"]
    return tuple(given)


def _cut(editor: GraphEditor, node: Node, pad: Sequence[Any]) -> None:
    source: Any = node.args[0] if node.args else node.kwargs["self"]
    for place in range(0, len(pad), 2):
        front, back = (-one if type(one) is int and one < 0 else 0 for one in pad[place : place + 2])
        if front or back:
            # Pads begin with the last dim. An end of minus zero is the end.
            args = (source, -1 - place // 2, front, -back if back else _TO_THE_END)
            source = editor.call(ops.edge.aten.slice_copy.Tensor, args, before=node, origins=node)
    left = [0 if type(one) is int and one < 0 else one for one in pad]
    if any(type(one) is not int or one for one in left):
        value = node.args[2:] or ((node.kwargs["value"],) if "value" in node.kwargs else ())
        target: Any = node.target
        source = editor.call(target, (source, left, *value), before=node, origins=node)
    editor.replace(node, source)
    editor.erase(node)
