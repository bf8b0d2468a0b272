"""Remove assertions about dtype and layout, which the program's own metadata states already."""

from __future__ import annotations

import torch

from exirkit.ir import GraphEditor
from exirkit.passes.contract import Pass


class RemoveMetadataAsserts(Pass):
    """Erase `aten._assert_tensor_metadata`; assertions about sizes stay until later."""

    name = "remove-metadata-asserts"
    enters_bodies = True
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Erase the assertions."""
        target = torch.ops.aten._assert_tensor_metadata.default
        for node in editor.graph.find_nodes(op="call_function", target=target):
            editor.erase(node)
