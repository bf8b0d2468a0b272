"""Tensors that the runtime finds memory for give it back."""

from __future__ import annotations

from torch.fx import Node

from exirkit.ir import GraphEditor, TensorSpec, free
from exirkit.passes.contract import Pass


class FreeUnbounded(Pass):
    """Free each tensor without a largest size behind the last instruction of its graph that uses it.

    What a graph is given, and what it returns, is freed by the graph around it, if at all. In a loop, each round that
    needs the tensor finds memory for it again.

    Requires: out variants; specs with integer sizes.

    Before: `%nonzero = aten.nonzero.out(%x, out=%alloc)`; `%sum = aten.sum.IntList_out(%nonzero, ...)`
    After: the same, then `free(<spec of %nonzero>)`
    """

    name = "free-unbounded"
    enters_bodies = True
    requires = ("bounded-shapes",)
    invalidates = ()
    after = ("convert-to-out-variants",)

    def edit(self, editor: GraphEditor) -> None:
        """Insert the calls; tensors that are freed already are left alone."""
        last: dict[TensorSpec, Node] = {}
        kept: set[TensorSpec] = set()
        for node in editor.graph.nodes:
            if node.target is free:
                kept.add(node.args[0])
            elif node.op == "placeholder":
                kept.update(_unbounded(node))
            elif node.op == "output":
                kept.update(spec for one in node.all_input_nodes for spec in _unbounded(one))
            else:
                last.update((spec, node) for one in (node, *node.all_input_nodes) for spec in _unbounded(one))
        for spec, node in last.items():
            if spec not in kept:
                editor.call(free, (spec,), before=node.next, origins=node, val=None)


def _unbounded(node: Node) -> list[TensorSpec]:
    """Return the specs of a node, or of the memory that it shows, that the runtime finds memory for."""
    spec = node.meta.get("spec")
    listed = spec if isinstance(spec, list) else [spec]
    owners = [one.storage_base or one for one in listed if isinstance(one, TensorSpec)]
    return [one for one in owners if one.is_dynamic_unbound_tensor]
