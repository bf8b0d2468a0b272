"""Values that are read after their memory was given to another: what lets results share memory has been wrong."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import TensorSpec, alloc, pytree, view


def first_overwritten(program: ExportedProgram) -> tuple[Node, Node] | None:
    """Return a call and a value that it reads, where another call has written to the memory of the value in between.

    Only what shares the `TensorSpec` of a value, or is a view in it, is examined, not places in arenas: those follow
    from lifetimes, which know of no value but the memory.

    Args:
        program: A planned program; its bodies of control flow are not examined.
    """
    writes: dict[TensorSpec, int] = {}
    seen: dict[Node, dict[TensorSpec, int]] = {}
    for node in program.graph.nodes:
        if node.target is alloc:
            continue
        roots = _roots(node)
        if node.op == "placeholder":
            seen[node] = {root: writes.setdefault(root, 0) for root in roots}
            continue
        # Of what is copied into, the old value does not matter.
        target = node.args[0] if node.target is torch.ops.aten.copy_.default else None
        for read in node.all_input_nodes:
            if read is not target and any(writes[root] != at for root, at in seen.get(read, {}).items()):
                return node, read
        if node.target in (view, operator.getitem):
            source: Any = node.args[0]
            seen[node] = {root: seen.get(source, {}).get(root, writes.setdefault(root, 0)) for root in roots}
            continue
        for root in roots if node.op == "call_function" else ():
            writes[root] = writes.get(root, 0) + 1
        seen[node] = {root: writes.setdefault(root, 0) for root in roots}
    return None


def _roots(node: Node) -> set[TensorSpec]:
    """Return the owners of the memory in which the results of a node lie."""
    return {_owner(one) for one in pytree.tree_leaves(node.meta.get("spec")) if isinstance(one, TensorSpec)}


def _owner(spec: TensorSpec) -> TensorSpec:
    """Return the spec of which a view shows a part, at the end of all bases; planning has found that there is one."""
    while spec.storage_base is not None:
        spec = spec.storage_base
    return spec
