"""Take the bodies of gradient-mode regions into the graph around them."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from exirkit.ir import (
    GraphEditor,
)
from exirkit.passes.contract import Pass

from .operator_recorder import WholeGraphNeededError


class InlineGradRegions(Pass):
    """Replace regions that change nothing by their bodies.

    That is `wrap_with_set_grad_enabled`, since a program that only infers has no gradients to switch, and
    `wrap_with_autocast` where it is off or of another device than the CPU.

    Ensures: no gradient-mode region is left.
    """

    name = "inline-grad-regions"
    enters_subgraphs = True
    ensures = ("no-grad-regions",)
    invalidates = ("debug-handles",)

    def edit(self, editor: GraphEditor) -> None:
        """Inline region by region.

        Raises:
            WholeGraphNeededError: EK426, a region has nested regions or attributes.
        """
        for region, place in _REGIONS.items():
            for node in editor.graph.find_nodes(op="call_function", target=region):
                if region is _AUTOCAST and _casts(*node.args[:place]):
                    continue
                attribute: Any = node.args[place]
                _inline(editor, node, getattr(editor.program.graph_module, attribute.target), place + 1)
                if not attribute.users:
                    editor.erase(attribute)


_AUTOCAST = torch.ops.higher_order.wrap_with_autocast
# The argument that is the body; operands follow.
_REGIONS = {torch.ops.higher_order.wrap_with_set_grad_enabled: 1, _AUTOCAST: 4}


def _casts(device: Any, _dtype: Any, enabled: Any, _cached: Any) -> bool:
    """Whether a region of automatic casts changes dtypes of a program for the CPU."""
    return device == "cpu" and enabled is not False


def _inline(editor: GraphEditor, node: Node, body: GraphModule, first: int) -> None:
    """Copy the calls of a body in front of the region's node, whose operands start at `first`, and erase that."""
    operands = iter(node.args[first:])
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
            raise WholeGraphNeededError("a region has attributes of its own", node)
        else:
            results = map_arg(inner.args[0], copies.__getitem__)
    for user in list(node.users):
        assert user.target is operator.getitem, "a region's results are taken one by one"
        editor.replace(user, results[user.args[1]])
        editor.erase(user)
    editor.erase(node)
