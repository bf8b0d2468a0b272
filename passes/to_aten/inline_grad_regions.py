"""Take the bodies of gradient-mode regions into the graph around them."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from exirkit.ir import GraphEditor
from exirkit.passes.contract import Pass

from .recording import WholeGraphNeededError


class InlineGradRegions(Pass):
    """Replace `wrap_with_set_grad_enabled` by its body: a program that only infers has no gradients to switch.

    Ensures: no gradient-mode region is left.
    """

    name = "inline-grad-regions"
    enters_bodies = True
    ensures = ("no-grad-regions",)
    invalidates = ("debug-handles",)

    def edit(self, editor: GraphEditor) -> None:
        """Inline region by region.

        Raises:
            WholeGraphNeededError: EK426, a region has nested regions or attributes.
        """
        region = torch.ops.higher_order.wrap_with_set_grad_enabled
        for node in editor.graph.find_nodes(op="call_function", target=region):
            attribute: Any = node.args[1]
            _inline(editor, node, getattr(editor.program.graph_module, attribute.target))
            if not attribute.users:
                editor.erase(attribute)


def _inline(editor: GraphEditor, node: Node, body: GraphModule) -> None:
    """Copy the calls of a body in front of the region's node, and erase that."""
    operands = iter(node.args[2:])
    copies: dict[Node, Any] = {}
    results: Any = ()
    for inner in body.graph.nodes:
        if inner.op == "placeholder":
            copies[inner] = next(operands)
        elif inner.op == "call_function":
            args, kwargs = map_arg((inner.args, inner.kwargs), copies.__getitem__)
            copies[inner] = editor.call(
                inner.target, args, kwargs, before=node, origins=inner, val=inner.meta.get("val")
            )
        elif inner.op == "get_attr":
            raise WholeGraphNeededError("a gradient-mode region has attributes of its own", node)
        else:
            results = map_arg(inner.args[0], copies.__getitem__)
    for user in list(node.users):
        assert user.target is operator.getitem, "a region's results are taken one by one"
        editor.replace(user, results[user.args[1]])
        editor.erase(user)
    editor.erase(node)
