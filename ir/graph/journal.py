"""The journal of a graph editor: every change with what it takes to undo it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec, OutputSpec
from torch.fx import Node

from .names import Numbering, forget_name, restore_name

MISSING: Any = object()
"""Stands for an entry that is not there."""


@dataclass(slots=True)
class Created:
    """A node was made."""

    node: Node
    numbering: Numbering

    def undo(self) -> None:
        """Take the node out; its users are gone already, since they came later."""
        self.node.graph.erase_node(self.node)
        forget_name(self.node, self.numbering)


@dataclass(slots=True)
class Erased:
    """A node was taken out; `follower` stood right behind it."""

    node: Node
    follower: Node
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def undo(self) -> None:
        """Link the same node in again, so that references to it stay good."""
        node, graph = self.node, self.node.graph
        self.follower.prepend(node)
        node._erased = False
        graph._len += 1
        graph._find_nodes_lookup_table.insert(node)
        node._update_args_kwargs(self.args, dict(self.kwargs))


@dataclass(slots=True)
class Rewired:
    """A node got other arguments."""

    node: Node
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def undo(self) -> None:
        """Give the old arguments back."""
        self.node._update_args_kwargs(self.args, dict(self.kwargs))


@dataclass(slots=True)
class UsersReordered:
    """A node may have got other users, or the same ones in another order.

    It stands in front of the changes that did that, so it is undone after them, when the users are the old ones again.
    """

    node: Node
    users: tuple[Node, ...]

    def undo(self) -> None:
        """Bring the users in the old order."""
        self.node.users.clear()
        self.node.users.update(dict.fromkeys(self.users))


@dataclass(slots=True)
class Retargeted:
    """A node got another target."""

    node: Node
    target: Any

    def undo(self) -> None:
        """Give the old target back."""
        self.node.target = self.target


@dataclass(slots=True)
class Renamed:
    """A node got another name."""

    node: Node
    name: str
    numbering: Numbering

    def undo(self) -> None:
        """Give the old name back."""
        restore_name(self.node, self.name, self.numbering)


@dataclass(slots=True)
class Moved:
    """A node was put elsewhere; `follower` stood right behind it before."""

    node: Node
    follower: Node

    def undo(self) -> None:
        """Put the node back."""
        self.follower.prepend(self.node)


@dataclass(slots=True)
class MetaSet:
    """A metadata entry of a node was set or removed."""

    node: Node
    key: str
    old: Any

    def undo(self) -> None:
        """Restore the entry, or its absence."""
        _restore(self.node.meta, self.key, self.old)


@dataclass(slots=True)
class TableSet:
    """An entry of the state, of the constants or of the ranges was set or removed."""

    table: dict[Any, Any]
    key: Any
    old: Any

    def undo(self) -> None:
        """Restore the entry, or its absence."""
        _restore(self.table, self.key, self.old)


@dataclass(slots=True)
class TableReordered:
    """Entries of a table may have been removed; like `UsersReordered`, it is undone after their return."""

    table: dict[Any, Any]
    keys: tuple[Any, ...]

    def undo(self) -> None:
        """Bring the entries in the old order."""
        entries = [(key, self.table[key]) for key in self.keys]
        self.table.clear()
        self.table.update(entries)


@dataclass(slots=True)
class SignatureSet:
    """Input or output specs were replaced, added or removed; the specs themselves never change."""

    program: ExportedProgram
    inputs: list[InputSpec]
    outputs: list[OutputSpec]

    def undo(self) -> None:
        """Restore both lists."""
        signature = self.program._graph_signature
        signature.input_specs[:] = self.inputs
        signature.output_specs[:] = self.outputs


Change: TypeAlias = (
    Created
    | Erased
    | Rewired
    | UsersReordered
    | Retargeted
    | Renamed
    | Moved
    | MetaSet
    | TableSet
    | TableReordered
    | SignatureSet
)
"""One entry of the journal; entries are undone in reverse order."""


class Watch(Protocol):
    """What is told of changes after they were made or undone."""

    def accept(self, change: Change, *, is_undone: bool = False) -> None:
        """Take note of a change."""


class Journal(list[Change]):
    """The changes, in the order in which they were made.

    Attributes:
        watch: Told of every change, if there is one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.watch: Watch | None = None

    def undo_to(self, length: int) -> None:
        """Undo the last changes, until so many are left."""
        while len(self) > length:
            change = self.pop()
            change.undo()
            if self.watch is not None:
                self.watch.accept(change, is_undone=True)


def _restore(table: dict[Any, Any], key: Any, old: Any) -> None:
    if old is MISSING:
        table.pop(key, None)
    else:
        table[key] = old
