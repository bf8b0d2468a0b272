"""Edits of a graph behind the back of its editor: found by comparing the graph with what the editor knows of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from exirkit.ir.analysis.interface import called_graphs

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
    TableSet,
)
from .metadata import same_argument, same_value


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
