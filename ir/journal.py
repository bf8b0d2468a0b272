"""The journal of a graph editor: every change with what it takes to undo it and to tell whether it mattered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec, OutputSpec
from torch.fx import Node

from .metadata import same_argument, same_value

MISSING = object()


class Change:
    """One entry of the journal."""

    def undo(self) -> None:
        """Restore what was there before; entries are undone in reverse order."""
        raise NotImplementedError


@dataclass(slots=True)
class Created(Change):
    """A node was made."""

    node: Node

    def undo(self) -> None:
        """Take the node out; its users are gone already, since they came later."""
        self.node.graph.erase_node(self.node)


@dataclass(slots=True)
class Erased(Change):
    """A node was taken out; `follower` stood right behind it."""

    node: Node
    follower: Node
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def undo(self) -> None:
        """Link the same node in again, so that references to it stay good."""
        node, graph = self.node, self.node.graph
        self.follower.prepend(node)
        node._erased = False
        graph._len += 1
        graph._find_nodes_lookup_table.insert(node)
        node.args, node.kwargs = self.args, self.kwargs


@dataclass(slots=True)
class Rewired(Change):
    """A node got other arguments."""

    node: Node
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def undo(self) -> None:
        """Give the old arguments back."""
        self.node.args, self.node.kwargs = self.args, self.kwargs


@dataclass(slots=True)
class Retargeted(Change):
    """A node got another target."""

    node: Node
    target: Any

    def undo(self) -> None:
        """Give the old target back."""
        self.node.target = self.target


@dataclass(slots=True)
class Renamed(Change):
    """A node got another name."""

    node: Node
    name: str

    def undo(self) -> None:
        """Give the old name back."""
        self.node._rename(self.name)


@dataclass(slots=True)
class Moved(Change):
    """A node was put elsewhere; `follower` stood right behind it before."""

    node: Node
    follower: Node

    def undo(self) -> None:
        """Put the node back."""
        self.follower.prepend(self.node)


@dataclass(slots=True)
class MetaSet(Change):
    """A metadata entry of a node was set or removed."""

    node: Node
    key: str
    old: Any

    def undo(self) -> None:
        """Restore the entry, or its absence."""
        _restore(self.node.meta, self.key, self.old)


@dataclass(slots=True)
class TableSet(Change):
    """An entry of the state, of the constants or of the ranges was set or removed."""

    table: dict[Any, Any]
    key: Any
    old: Any

    def undo(self) -> None:
        """Restore the entry, or its absence."""
        _restore(self.table, self.key, self.old)


@dataclass(slots=True)
class SignatureSet(Change):
    """Input or output specs were replaced, added or removed."""

    program: ExportedProgram
    inputs: list[InputSpec]
    outputs: list[OutputSpec]

    def undo(self) -> None:
        """Restore both lists."""
        signature = self.program._graph_signature
        signature.input_specs[:] = self.inputs
        signature.output_specs[:] = self.outputs


@dataclass(slots=True)
class SpecInserted(Change):
    """An input spec was put in at a position."""

    program: ExportedProgram
    position: int

    def undo(self) -> None:
        """Take the spec out again."""
        del self.program._graph_signature.input_specs[self.position]


@dataclass(slots=True)
class SpecRemoved(Change):
    """An input spec was taken out of a position."""

    program: ExportedProgram
    position: int
    spec: InputSpec

    def undo(self) -> None:
        """Put the spec back."""
        self.program._graph_signature.input_specs.insert(self.position, self.spec)


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
        erased: Names of nodes that were there and are gone.
        changed: Names of nodes whose target, arguments, name, place or metadata differ.
        is_modified: Whether anything at all differs from before.
    """

    created: list[str] = field(default_factory=list)
    erased: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    has_table_changes: bool = False

    @property
    def is_modified(self) -> bool:
        """Whether anything at all differs from before."""
        return bool(self.created or self.erased or self.changed or self.has_table_changes)


def effect_of(changes: Iterable[Change]) -> Effect:
    """Compare the state before the first of `changes` with the present one.

    A node made and erased again, or an argument changed there and back, is no effect.
    """
    created: dict[Node, None] = {}
    erased: dict[Node, None] = {}
    first: dict[tuple[Any, ...], Change] = {}
    for change in changes:
        if isinstance(change, Created):
            created[change.node] = None
        elif isinstance(change, Erased):
            erased[change.node] = None
        elif isinstance(change, SpecInserted | SpecRemoved):
            # Specs come and go with placeholders, which are counted as nodes.
            continue
        else:
            first.setdefault(_subject(change), change)
    effect = Effect(
        created=[node.name for node in created if node not in erased],
        erased=[node.name for node in erased if node not in created],
    )
    changed: dict[str, None] = {}
    for change in first.values():
        if isinstance(change, TableSet | SignatureSet):
            effect.has_table_changes = effect.has_table_changes or _differs(change)
        else:
            node: Node = change.node  # type: ignore[attr-defined]
            if node not in created and node not in erased and _differs(change):
                changed[node.name] = None
    effect.changed = list(changed)
    return effect


def _subject(change: Change) -> tuple[Any, ...]:
    if isinstance(change, MetaSet):
        return (MetaSet, change.node, change.key)
    if isinstance(change, TableSet):
        return (TableSet, id(change.table), change.key)
    if isinstance(change, SignatureSet):
        return (SignatureSet,)
    return (type(change), change.node)  # type: ignore[attr-defined]


def _differs(change: Change) -> bool:
    match change:
        case Rewired():
            return not (
                same_argument(change.args, change.node.args) and same_argument(change.kwargs, change.node.kwargs)
            )
        case Retargeted():
            return change.target is not change.node.target
        case Renamed():
            return change.name != change.node.name
        case Moved():
            return change.follower is not change.node.next
        case MetaSet():
            return _entry_differs(change.node.meta, change.key, change.old)
        case TableSet():
            return change.table.get(change.key, MISSING) is not change.old
        case SignatureSet():
            signature = change.program._graph_signature
            return change.inputs != signature.input_specs or change.outputs != signature.output_specs
    raise AssertionError(change)


def _entry_differs(meta: dict[str, Any], key: str, old: Any) -> bool:
    new = meta.get(key, MISSING)
    if new is MISSING or old is MISSING:
        return new is not old
    return not (same_value(old, new) if key == "val" else same_argument(old, new))
