"""Results without elements, which some kernels cannot compute."""

from __future__ import annotations

import torch
from torch.fx import Node

from exirkit.ir import EdgeOpOverload, GraphEditor, ops
from exirkit.passes.contract import Pass

from .edge_calls import EdgeCalls

aten = ops.edge.aten
_KEPT = frozenset({aten.full.default, aten.full_like.default, aten.empty.memory_format})


class LegalizeEmpties(Pass):
    """Make results without elements by `full`: nothing has to be computed for them.

    Kernels divide by sizes (`_log_softmax`), reject (`amax`) or forget sizes beside a zero (`cat`).

    Before: `%y = aten._log_softmax.default(%x_f32_3x0, 1, False)`
    After: `%y = aten.full.default([3, 0], 0, dtype=torch.float32)`
    """

    name = "legalize-empties"
    enters_bodies = True
    requires = ("edge-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Replace the calls, in graph order."""
        for node in list(editor.graph.nodes):
            if self.concerns(node):
                value: torch.Tensor = node.meta["val"]
                made = EdgeCalls(editor, node)(aten.full.default, list(value.shape), 0, dtype=value.dtype)
                editor.replace(node, made)
                editor.erase(node)

    @staticmethod
    def concerns(node: Node) -> bool:
        """Whether the pass would replace a node."""
        target = node.target
        if not isinstance(target, EdgeOpOverload) or target.namespace != "aten" or target in _KEPT:
            return False
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor) or not node.users:
            return False
        sizes = list(value.shape)
        return 0 in sizes if all(type(size) is int for size in sizes) else False
