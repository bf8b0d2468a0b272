"""What a stretch of edits amounts to: the journal read as a comparison of before with after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.fx import Node

from .journal import (
    MISSING,
    Change,
    Created,
    Erased,
    MetaSet,
    Moved,
    Renamed,
    Retargeted,
    Rewired,
    SignatureSet,
    TableReordered,
    TableSet,
    UsersReordered,
)
from .metadata import same_argument, same_value


@dataclass
class Effect:
    """What a stretch of the journal amounts to.

    Attributes:
        created: Names of nodes that are new and still there.
        erased: Names, as they were, of nodes that were there and are gone.
        changed: Names of nodes whose target, arguments, name, place or metadata differ.
        has_table_changes: Whether signature, state, constants or ranges differ.
    """

    created: list[str] = field(default_factory=list)
    erased: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    has_table_changes: bool = False

    @property
    def is_modified(self) -> bool:
        """Whether anything at all differs from before."""
        return bool(self.created or self.erased or self.changed or self.has_table_changes)


def effect_of(changes: Sequence[Change]) -> Effect:
    """Compare the state before the first of `changes` with the present one.

    A node made and erased again, or an argument changed there and back, is no effect.
    """
    created = {change.node: None for change in changes if isinstance(change, Created)}
    erased = {change.node: None for change in changes if isinstance(change, Erased)}
    first = _first_changes(changes)
    effect = Effect(created=[node.name for node in created if node not in erased])
    names = {change.node: change.name for change in first if isinstance(change, Renamed)}
    effect.erased = [names.get(node, node.name) for node in erased if node not in created]
    changed: dict[Node, None] = {}
    for change in first:
        if isinstance(change, TableSet | SignatureSet):
            effect.has_table_changes = effect.has_table_changes or _is_table_different(change)
        elif change.node not in created and change.node not in erased and _is_node_different(change):
            changed[change.node] = None
    for node in _displaced(changes, created, erased):
        changed[node] = None
    effect.changed = [node.name for node in changed]
    return effect


_Compared = Rewired | Retargeted | Renamed | MetaSet | TableSet | SignatureSet


def _first_changes(changes: Iterable[Change]) -> list[_Compared]:
    """Return the first change of each thing that one can change; it holds what was there before all of them."""
    first: dict[Any, _Compared] = {}
    for change in changes:
        if isinstance(change, MetaSet):
            first.setdefault((MetaSet, change.node, change.key), change)
        elif isinstance(change, TableSet):
            first.setdefault((TableSet, id(change.table), change.key), change)
        elif isinstance(change, SignatureSet):
            first.setdefault(SignatureSet, change)
        elif not isinstance(change, Created | Erased | Moved | UsersReordered | TableReordered):
            first.setdefault((type(change), change.node), change)
    return list(first.values())


def _is_node_different(change: Rewired | Retargeted | Renamed | MetaSet) -> bool:
    node = change.node
    match change:
        case Rewired():
            return not (same_argument(change.args, node.args) and same_argument(change.kwargs, node.kwargs))
        case Retargeted():
            return change.target is not node.target
        case Renamed():
            return change.name != node.name
        case MetaSet():
            new = node.meta.get(change.key, MISSING)
            if new is MISSING or change.old is MISSING:
                return new is not change.old
            return not (same_value if change.key == "val" else same_argument)(change.old, new)


def _is_table_different(change: TableSet | SignatureSet) -> bool:
    if isinstance(change, SignatureSet):
        signature = change.program._graph_signature
        return change.inputs != signature.input_specs or change.outputs != signature.output_specs
    new = change.table.get(change.key, MISSING)
    if isinstance(new, torch.Tensor) and isinstance(change.old, torch.Tensor):
        return not _is_same_memory(change.old, new)
    return not same_argument(change.old, new)


def _is_same_memory(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left is right:
        return True
    if isinstance(left, FakeTensor) or isinstance(right, FakeTensor) or left.layout is not torch.strided:
        return False
    return (
        type(left) is type(right)
        and (left.dtype, left.device, left.shape) == (right.dtype, right.device, right.shape)
        and left.layout is right.layout
        and left.stride() == right.stride()
        and left.data_ptr() == right.data_ptr()
    )


def _displaced(changes: Sequence[Change], created: Mapping[Node, None], erased: Mapping[Node, None]) -> list[Node]:
    """Return the moved nodes that stand in front of another node than before, new and erased ones left out.

    Nodes that were never moved keep their order, so if no moved node is displaced, all stand as they stood.
    """
    moved = {change.node: None for change in changes if isinstance(change, Moved)}
    survivors = [node for node in moved if node not in created and node not in erased]
    if not survivors:
        return []
    before = _OldOrder(changes)
    displaced = []
    for node in survivors:
        old, new = before.follower(node), node.next
        while old in erased:
            old = before.follower(old)
        while new in created:
            new = new.next
        if old is not new:
            displaced.append(node)
    return displaced


class _OldOrder:
    """The list of nodes as it was before some changes, as what differs from the present list."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self._next: dict[Node, Node] = {}
        self._prev: dict[Node, Node] = {}
        for change in reversed(changes):
            if isinstance(change, Created | Moved):
                self._link(self._prev.get(change.node, change.node.prev), self.follower(change.node))
            if isinstance(change, Erased | Moved):
                leader = self._prev.get(change.follower, change.follower.prev)
                self._link(leader, change.node)
                self._link(change.node, change.follower)

    def follower(self, node: Node) -> Node:
        """Return the node that stood right behind `node`."""
        return self._next.get(node, node.next)

    def _link(self, leader: Node, follower: Node) -> None:
        self._next[leader] = follower
        self._prev[follower] = leader
