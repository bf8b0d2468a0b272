"""Tensors that hang on the graph module become constants of the program."""

from __future__ import annotations

from functools import reduce

import torch

from exirkit.ir import GraphEditor
from exirkit.passes.contract import Pass


class LiftConstants(Pass):
    """Turn `get_attr` nodes of tensors into placeholders with a place in signature and constants.

    Passes that create tensors leave such nodes behind.
    """

    name = "lift-constants"
    enters_bodies = True
    ensures = ("constants-lifted",)
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Lift every tensor attribute."""
        module = editor.program.graph_module
        for node in editor.graph.find_nodes(op="get_attr"):
            value = reduce(getattr, str(node.target).split("."), module)
            if isinstance(value, torch.Tensor):
                name = str(node.target).replace(".", "_").lstrip("_")
                editor.replace(node, editor.add_constant(value, name=f"c_{name}", origins=node))
                editor.erase(node)
