"""The journal of changes of a program, each of which can be undone; and edits that were made without the editor."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec, OutputSpec
from torch.fx import Graph, Node

from exirkit.ir.analysis import called_graphs, same_argument, same_value
from exirkit.ir.deferred_tensors import DeferredTensor, memory_key
from exirkit.ir.diagnostics import Diagnostic, UsageError
from exirkit.ir.torch_internals import FakeTensor

from .node_order import Numbering, forget_name, restore_name

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

    A node made and erased again, or an argument changed there and back, is not an effect.
    """
    created = {change.node: None for change in changes if type(change) is Created}
    erased = {change.node: None for change in changes if type(change) is Erased}
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
    # No kind of change has another one below it, and journals are long: comparing types takes no call.
    for change in changes:
        if type(change) is MetaSet:
            first.setdefault((MetaSet, change.node, change.key), change)
        elif type(change) is TableSet:
            first.setdefault((TableSet, id(change.table), change.key), change)
        elif type(change) is SignatureSet:
            first.setdefault(SignatureSet, change)
        elif type(change) is Rewired or type(change) is Retargeted or type(change) is Renamed:
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
        and (not isinstance(left, DeferredTensor) or memory_key(left) == memory_key(right))
    )


def _displaced(changes: Sequence[Change], created: Mapping[Node, None], erased: Mapping[Node, None]) -> list[Node]:
    """Return the moved nodes that stand in front of another node than before, new and erased ones left out.

    Nodes that were never moved keep their order, so if no moved node is displaced, all stand as they stood.
    """
    moved = {change.node: None for change in changes if type(change) is Moved}
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
        """Undo every edit since, those of subgraphs of control flow included.

        Raises:
            UsageError: EK121, the outermost transaction of that time has ended, or its edits were undone.
        """
        editor = self._editor
        if not editor._open or editor._open[0] is not self._around or len(editor._journal) < self._start:
            raise UsageError(Diagnostic.of("EK121", "this state of the program is final or undone"))
        editor._journal.undo_to(self._start)
        editor._stale = dict.fromkeys(self._stale)
        editor._forget()
        for one in editor._open:
            one._saved.clear()


@dataclass(frozen=True, slots=True)
class RawEdit:
    """Something that was changed without the editor.

    Attributes:
        what: What was changed and how, `%relu was erased`.
        methods: Methods of the editor that do the same.
        node: The node, if it is still in the graph.
    """

    what: str
    methods: tuple[str, ...]
    node: Node | None = None


class _Known:
    """What the editor knows of a node."""

    __slots__ = ("args", "kwargs", "meta", "name", "target")

    def __init__(self, node: Node, meta: dict[str, Any]) -> None:
        self.name, self.target, self.args, self.kwargs = node.name, node.target, node.args, node.kwargs
        self.meta = meta


class EditWatch:
    """Knows what the graphs of a program are according to the editor, from when it was made on.

    Looking costs time for every node twice, so it is done where edits cannot be vouched for. Of nodes that the editor
    made while it was watched only the value is compared: their other metadata is undone with them.

    Args:
        program: The program that is edited.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self._program = program
        self._graphs = [module.graph for module in called_graphs(program.graph_module)]
        self._order = [list(graph.nodes) for graph in self._graphs]
        self._known = {node: _Known(node, node.meta.copy()) for nodes in self._order for node in nodes}
        self._erased: dict[Node, _Known] = {}
        self._made: set[Node] = set()
        self._moved: set[Node] = set()
        self._found: dict[str, RawEdit] = {}
        self._tables = {name: (table, dict(table)) for name, table in _tables(program)}
        self._versions = {id(each): _version(each) for _, held in self._tables.values() for each in held.values()}
        signature = program._graph_signature
        self._specs = (list(signature.input_specs), list(signature.output_specs))

    def accept(self, change: Change, *, is_undone: bool = False) -> None:
        """Take note of what the editor has just done, or undone."""
        match change:
            case Created(node=node):
                self._accept_new(node)
            case Erased(node=node):
                self._accept_erased(node)
            case Rewired() | Retargeted() | Renamed():
                self._accept_node(change, is_undone)
            case Moved(node=node):
                self._moved.add(node)
            case MetaSet():
                self._accept_meta(change, is_undone)
            case TableSet(table=table, key=key):
                for held, known in self._tables.values():
                    if held is table:
                        _assign(known, key, table.get(key, MISSING))
            case SignatureSet(program=program) if program is self._program:
                signature = program._graph_signature
                self._specs = (list(signature.input_specs), list(signature.output_specs))
            case _:
                # Orders of users and of tables are consequences of the other changes.
                pass

    def _accept_new(self, node: Node) -> None:
        if node._erased:
            self._known.pop(node, None)
            self._made.discard(node)
        else:
            self._known[node] = _Known(node, {"val": node.meta.get("val", MISSING)})
            self._made.add(node)

    def _accept_erased(self, node: Node) -> None:
        source, goal = (self._known, self._erased) if node._erased else (self._erased, self._known)
        if node in source:
            goal[node] = source.pop(node)

    def _accept_node(self, change: Rewired | Retargeted | Renamed, is_undone: bool) -> None:
        node = change.node
        known = self._known.get(node)
        if known is None:
            return
        if isinstance(change, Rewired):
            if not is_undone and not _same_arguments(known, change.args, change.kwargs):
                self._add(_rewired(node))
            known.args, known.kwargs = node.args, node.kwargs
        elif isinstance(change, Retargeted):
            if not is_undone and known.target is not change.target:
                self._add(_retargeted(node))
            known.target = node.target
        else:
            known.name = node.name

    def _accept_meta(self, change: MetaSet, is_undone: bool) -> None:
        node, key = change.node, change.key
        known = self._known.get(node)
        if known is None or (node in self._made and key != "val"):
            return
        if not is_undone and not _same_entry(key, known.meta.get(key, MISSING), change.old):
            self._add(_relabelled(node, key))
        _assign(known.meta, key, node.meta.get(key, MISSING))

    def _add(self, edit: RawEdit) -> None:
        self._found.setdefault(edit.what, edit)

    def findings(self) -> list[RawEdit]:
        """Compare the program with what the editor knows, and return what it was not told."""
        missing = dict.fromkeys(self._known)
        for graph in self._graphs:
            for node in graph.nodes:
                known = self._known.get(node)
                missing.pop(node, None)
                if known is None:
                    self._add(RawEdit(f"%{node.name} was added", ("call",), node))
                else:
                    self._compare(node, known)
        for node in missing:
            if node.graph in self._graphs:
                self._add(RawEdit(f"%{self._known[node].name} was erased", ("erase",)))
        for graph, nodes in zip(self._graphs, self._order, strict=True):
            self._compare_order(graph, nodes)
        for edit in self._table_edits():
            self._add(edit)
        return list(self._found.values())

    def _compare(self, node: Node, known: _Known) -> None:
        if node.target is not known.target and node.target != known.target:
            self._add(_retargeted(node))
        if not _same_arguments(known, node.args, node.kwargs):
            self._add(_rewired(node))
        if node.name != known.name:
            self._add(RawEdit(f"%{known.name} was renamed %{node.name}", ("rename",), node))
        if node in self._made:
            if not _same_entry("val", known.meta["val"], node.meta.get("val", MISSING)):
                self._add(_relabelled(node, "val"))
            return
        for key in dict.fromkeys((*known.meta, *node.meta)):
            if not _same_entry(key, known.meta.get(key, MISSING), node.meta.get(key, MISSING)):
                self._add(_relabelled(node, key))

    def _compare_order(self, graph: Graph, before: list[Node]) -> None:
        others = self._moved | self._made
        stayed = {node for node in before if node in self._known and not node._erased and node not in others}
        now = [node for node in graph.nodes if node in stayed]
        for node, old in zip(now, [node for node in before if node in stayed], strict=False):
            if node is not old:
                self._add(RawEdit(f"%{node.name} was moved", ("move",), node))
                return

    def _table_edits(self) -> Iterator[RawEdit]:
        for name, (table, known) in self._tables.items():
            for key in dict.fromkeys((*known, *table)):
                old, new = known.get(key, MISSING), table.get(key, MISSING)
                if new is not old and not same_argument(new, old):
                    yield RawEdit(f"`{key}` of the program's {name} was set", _METHODS[name])
                elif self._versions.get(id(new), _version(new)) != _version(new):
                    yield RawEdit(f"the tensor `{key}` was changed in place; the model uses it too", ("set_tensor",))
        signature = self._program._graph_signature
        for specs, known_specs in zip((signature.input_specs, signature.output_specs), self._specs, strict=True):
            if specs != known_specs:
                yield RawEdit("the signature was changed", ("add_constant", "remove_input", "add_mutation"))


_METHODS = {
    "state": ("set_tensor", "remove_input"),
    "constants": ("add_constant", "set_tensor", "remove_input"),
    "size ranges": ("set_range",),
}


def _tables(program: ExportedProgram) -> Iterator[tuple[str, dict[Any, Any]]]:
    yield "state", program._state_dict
    yield "constants", program._constants
    yield "size ranges", program._range_constraints


def _version(value: object) -> int | None:
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else None


def _assign(table: dict[Any, Any], key: Any, value: Any) -> None:
    if value is MISSING:
        table.pop(key, None)
    else:
        table[key] = value


def _same_arguments(known: _Known, args: Any, kwargs: Any) -> bool:
    if known.args is args and known.kwargs is kwargs:
        return True
    return same_argument(known.args, args) and same_argument(known.kwargs, kwargs)


def _same_entry(key: str, old: Any, new: Any) -> bool:
    if old is new:
        return True
    if old is MISSING or new is MISSING:
        return False
    return same_value(old, new) if key == "val" else same_argument(old, new)


def _rewired(node: Node) -> RawEdit:
    return RawEdit(f"%{node.name} was given other arguments", ("replace", "rewire"), node)


def _retargeted(node: Node) -> RawEdit:
    return RawEdit(f"%{node.name} was given another target", ("retarget",), node)


def _relabelled(node: Node, key: str) -> RawEdit:
    method = "set_value" if key == "val" else "set_meta"
    return RawEdit(f"the metadata `{key}` of %{node.name} was set", (method,), node)
