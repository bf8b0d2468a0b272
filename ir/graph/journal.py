"""The journal of changes of a program: each can be undone, and a stretch of them compares before with after."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec, OutputSpec
from torch.fx import Node

from exirkit.ir.diagnostics import Diagnostic, UsageError
from exirkit.ir.graph.metadata import same_argument, same_value
from exirkit.ir.graph.node_order import Numbering, forget_name, restore_name

if TYPE_CHECKING:
    from .editor import GraphEditor

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


# The editor with an open transaction, by program.
EDITED: weakref.WeakKeyDictionary[ExportedProgram, GraphEditor] = weakref.WeakKeyDictionary()


def open_editor(program: ExportedProgram) -> GraphEditor | None:
    """Return the editor that has a transaction open on a program, or None."""
    return EDITED.get(program)


class Transaction:
    """A stretch of edits with one author; see `GraphEditor.transaction`.

    Attributes:
        author: Pass or rule that makes the edits.
        effect: What the edits amount to, once the transaction has ended, if that was asked for.
    """

    def __init__(self, editor: GraphEditor, author: str, *, records_effect: bool) -> None:
        self.author = author
        self.records_effect = records_effect
        self.effect = Effect()
        self._editor = editor
        self._start = len(editor._journal)
        self._stale = tuple(editor._stale)
        self._saved: set[Any] = set()

    @property
    def modified(self) -> bool:
        """Whether the program differs from what it was at the start."""
        return self.effect.is_modified

    def roll_back(self) -> None:
        """Undo every edit since the start."""
        if self in self._editor._open:
            self._editor._undo_to(self)


class Checkpoint:
    """A state inside a transaction to which one can come back; see `GraphEditor.checkpoint`."""

    def __init__(self, editor: GraphEditor) -> None:
        self._editor = editor
        self._around = editor._open[0]
        self._start = len(editor._journal)
        self._stale = tuple(editor._stale)

    def restore(self) -> None:
        """Undo every edit since, those of bodies of control flow included.

        Raises:
            UsageError: EK121, the outermost transaction of that time has ended, or its edits were undone.
        """
        editor = self._editor
        if not editor._open or editor._open[0] is not self._around or len(editor._journal) < self._start:
            raise UsageError(Diagnostic(code="EK121", message="this state of the program is final or undone"))
        editor._journal.undo_to(self._start)
        editor._stale = dict.fromkeys(self._stale)
        editor._forget()
        for one in editor._open:
            one._saved.clear()
