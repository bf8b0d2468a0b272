"""What a graph was: enough to tell later whether it changed, and which recorded values can be believed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node

from exirkit.ir import same_argument, same_value


class NodeRecord(NamedTuple):
    """One node as it was."""

    node: Node
    name: str
    op: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    meta: dict[str, Any]


class GraphSnapshot:
    """A graph module at one moment, nested graphs included; tensors and node arguments are shared, not copied.

    Attributes:
        module: The module; only its identity matters later.
        records: Its nodes in order.
    """

    def __init__(self, module: GraphModule) -> None:
        self.module = module
        self.records = [
            NodeRecord(node, node.name, node.op, node.target, node.args, node.kwargs, dict(node.meta))
            for node in module.graph.nodes
        ]
        self._module_meta = dict(module.meta)
        self._attributes: dict[Node, tuple[str, Any]] = {}
        nested: dict[int, GraphSnapshot] = {}
        for record in self.records:
            if record.op == "get_attr":
                value = attribute(module, record.target)
                if isinstance(value, GraphModule):
                    if id(value) not in nested:
                        nested[id(value)] = GraphSnapshot(value)
                    value = nested[id(value)]
                self._attributes[record.node] = (record.target, value)

    def all_records(self) -> Iterator[NodeRecord]:
        """Yield the records of the graph and of the graphs nested in it."""
        yield from self.records
        for _, value in self._attributes.values():
            if isinstance(value, GraphSnapshot):
                yield from value.all_records()

    def matches(self, module: GraphModule) -> bool:
        """Return whether a module is now what the snapshot's was: same nodes in the same order, same metadata.

        Recorded values are compared as metadata (dtype, sizes, strides). Reads of attributes have no order of their
        own; two agree if they read the same object, or equal nested graphs, under the same name.
        """
        if not _same_meta(self._module_meta, module.meta):
            return False
        before = [record for record in self.records if record.op != "get_attr"]
        after = [node for node in module.graph.nodes if node.op != "get_attr"]
        if len(before) != len(after):
            return False
        pairs: dict[Node, Node] = {}
        for record, node in zip(before, after, strict=True):
            if not self._same_node(record, node, pairs, module):
                return False
            pairs[record.node] = node
        return True

    def _same_node(self, record: NodeRecord, node: Node, pairs: dict[Node, Node], module: GraphModule) -> bool:
        return (
            record.op == node.op
            and record.target == node.target
            and record.name == node.name
            and self._same_tree(record.args, node.args, pairs, module)
            and self._same_tree(record.kwargs, node.kwargs, pairs, module)
            and _same_meta(record.meta, node.meta)
        )

    def _same_tree(self, left: Any, right: Any, pairs: dict[Node, Node], module: GraphModule) -> bool:
        if isinstance(left, Node):
            if not isinstance(right, Node):
                return False
            if left in self._attributes:
                return self._same_attribute(left, right, module)
            return pairs.get(left) is right
        if isinstance(left, list | tuple):
            return (
                isinstance(right, list | tuple)
                and len(left) == len(right)
                and all(self._same_tree(one, other, pairs, module) for one, other in zip(left, right, strict=True))
            )
        if isinstance(left, dict):
            return (
                isinstance(right, dict)
                and left.keys() == right.keys()
                and all(self._same_tree(value, right[key], pairs, module) for key, value in left.items())
            )
        return same_argument(left, right)

    def _same_attribute(self, left: Node, right: Node, module: GraphModule) -> bool:
        target, value = self._attributes[left]
        if right.op != "get_attr" or right.target != target:
            return False
        now = attribute(module, target)
        if isinstance(value, GraphSnapshot):
            return isinstance(now, GraphModule) and (now is value.module or value.matches(now))
        return value is now


class KnownValues:
    """Which nodes carry a `meta["val"]` that is known to be what they compute.

    People's passes edit graphs in place and often leave the old value on a node that computes something else now. A
    pass that re-traces must not take such a value for granted.
    """

    def __init__(self, module: GraphModule) -> None:
        self._records: dict[Node, NodeRecord] = {}
        self.learn(module)

    def learn(self, module: GraphModule) -> None:
        """Take every value of this module as true, and forget other modules."""
        self._records = {record.node: record for record in GraphSnapshot(module).all_records()}

    def believes(self, node: Node) -> bool:
        """Return whether the node's value was recorded for its present operator and arguments."""
        record = self._records.get(node)
        return (
            record is not None
            and record.target is node.target
            and record.args is node.args
            and record.kwargs is node.kwargs
            and record.meta.get("val") is node.meta.get("val")
        )


_known_values: ContextVar[KnownValues | None] = ContextVar("known_values", default=None)


def known_values() -> KnownValues | None:
    """Return what the running passes know, or None outside of any run."""
    return _known_values.get()


@contextmanager
def remembering(module: GraphModule) -> Iterator[KnownValues]:
    """Watch the values of a module while passes run on it; an outer watch goes on."""
    outer = _known_values.get()
    if outer is not None:
        yield outer
        return
    token = _known_values.set(KnownValues(module))
    try:
        known = _known_values.get()
        assert known is not None
        yield known
    finally:
        _known_values.reset(token)


def attribute(module: torch.nn.Module, target: str) -> Any:
    """Return the object behind a dotted attribute name."""
    return attrgetter(target)(module)


def _same_meta(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return left.keys() == right.keys() and all(_same_entry(key, value, right[key]) for key, value in left.items())


def _same_entry(key: str, left: Any, right: Any) -> bool:
    if left is right:
        return True
    if key == "val":
        return same_value(left, right)
    try:
        return same_argument(left, right)
    except (TypeError, ValueError, RuntimeError):
        # Entries of users may be anything, arrays included; what cannot be compared counts as changed.
        return False
