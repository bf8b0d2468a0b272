"""Replace operators that write to a tensor by those that return the result, where nothing else sees the tensor."""

from __future__ import annotations

from typing import cast

import torch
from torch._ops import OpOverload
from torch.fx import Node

from exirkit.ir import GraphEditor, same_value

from .contract import Pass
from .decompose_to_core import WholeGraphNeededError


class Functionalize(Pass):
    """Replace in-place operators on intermediate values by their functional twins.

    Only the plain case is handled: the value written to is no input, buffer or parameter, and no other view of it is
    used afterwards. Anything else needs the functionalisation of torch, which re-traces the graph.

    Requires: operators that return their argument, or a view of it, say so in their schema, as core operators do.
    Ensures: no operator writes to its arguments.

    Before: `%relu_ = aten.relu_.default(%conv)`
    After: `%relu = aten.relu.default(%conv)`
    """

    name = "functionalize"

    def edit(self, editor: GraphEditor) -> None:
        """Replace in-place operators, in graph order.

        Raises:
            WholeGraphNeededError: EK426, a write is seen through another value, or reaches an input.
        """
        nodes = list(editor.graph.nodes)
        if not any(_writes(node) for node in nodes):
            return
        groups = _AliasGroups()
        for node in nodes:
            if _writes(node):
                node = _replace(editor, node, groups)
            groups.add(node)


class _AliasGroups:
    """Which nodes may share memory."""

    def __init__(self) -> None:
        self._group: dict[Node, list[Node]] = {}

    def add(self, node: Node) -> None:
        """Put a node into the group of whatever it may be a view of."""
        mine = self._group.setdefault(node, [node])
        for source in node.all_input_nodes if _may_alias(node) else ():
            other = self._group[source]
            if other is not mine:
                other.extend(mine)
                for member in mine:
                    self._group[member] = other
                mine = other

    def others(self, node: Node) -> list[Node]:
        """Return the nodes that may share memory with this one."""
        return [member for member in self._group[node] if member is not node]


def _may_alias(node: Node) -> bool:
    op = node.target
    if not isinstance(op, OpOverload):
        return True
    return any(argument.alias_info is not None for argument in op._schema.arguments)


def _writes(node: Node) -> bool:
    return node.op == "call_function" and isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def _replace(editor: GraphEditor, node: Node, groups: _AliasGroups) -> Node:
    written = node.args[0]
    twin = _functional_twin(cast(OpOverload, node.target))
    if twin is None or not isinstance(written, Node):
        raise WholeGraphNeededError(f"{node.target} has no functional twin", node)
    if written.op != "call_function":
        raise WholeGraphNeededError("an input is written to", node)
    for other in groups.others(written):
        if other.op != "call_function" or any(user > node for user in other.users):
            raise WholeGraphNeededError(f"%{other.name} may see what is written to %{written.name}", node)
    new = editor.call(twin, node.args, node.kwargs, before=node, origins=node)
    if not same_value(_described(new), _described(written)):
        raise WholeGraphNeededError(f"{twin} returns another dtype or shape than it was given", node)
    editor.replace(node, new)
    for user in list(written.users):
        if user > node:
            editor.replace_in(user, written, new)
    editor.erase(node)
    return new


def _described(node: Node) -> tuple[object, ...]:
    value = node.meta["val"]
    return (value.dtype, tuple(value.shape))


def _functional_twin(op: OpOverload) -> OpOverload | None:
    """Return the overload that computes what an in-place one writes: same arguments, no underscore in the name."""
    namespace, _, name = op._schema.name.partition("::")
    written = [argument for argument in op._schema.arguments if argument.alias_info and argument.alias_info.is_write]
    if not name.endswith("_") or name.endswith("__") or len(written) != 1 or op._schema.arguments[0] != written[0]:
        return None
    packet = getattr(getattr(torch.ops, namespace), name[:-1], None)
    twin = getattr(packet, op._overloadname, None)
    if twin is None or twin._schema.is_mutable:
        return None
    same = [argument.name for argument in twin._schema.arguments] == [
        argument.name for argument in op._schema.arguments
    ]
    return twin if same else None
