"""The program under an editor and the journal of what is done to it; transactions, nodes and their values."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx._lazy_graph_module import _LazyGraphModule

from exirkit.ir.diagnostics import Diagnostic, UsageError
from exirkit.ir.inference.inference import Inference
from exirkit.ir.provenance import locate, target_name

from .effect import Effect, effect_of
from .journal import (
    MISSING,
    Change,
    Created,
    Erased,
    Journal,
    MetaSet,
    UsersReordered,
)
from .metadata import same_value
from .names import numbering_of, register_names, release
from .node_order import misplaced_argument, order_error
from .programs import fake_mode_of
from .raw_edits import EditWatch

# The editor with an open transaction, for those who are handed the program only.
_EDITED: weakref.WeakKeyDictionary[ExportedProgram, EditorState] = weakref.WeakKeyDictionary()


def open_editor(program: ExportedProgram) -> EditorState | None:
    """Return the editor that has a transaction open on a program, or None."""
    return _EDITED.get(program)


class Transaction:
    """A stretch of edits with one author; see `GraphEditor.transaction`.

    Attributes:
        author: Pass or rule that makes the edits.
        effect: What the edits amount to, once the transaction has ended, if that was asked for.
    """

    def __init__(self, state: EditorState, author: str, *, records_effect: bool) -> None:
        self.author = author
        self.records_effect = records_effect
        self.effect = Effect()
        self._state = state
        self._start = len(state._journal)
        self._stale = tuple(state._stale)
        self._saved: set[Any] = set()

    @property
    def modified(self) -> bool:
        """Whether the program differs from what it was at the start."""
        return self.effect.is_modified

    def roll_back(self) -> None:
        """Undo every edit since the start."""
        if self in self._state._open:
            self._state._undo_to(self)


class Checkpoint:
    """A state inside a transaction to which one can come back; see `GraphEditor.checkpoint`."""

    def __init__(self, state: EditorState) -> None:
        self._state = state
        self._around = state._open[0]
        self._start = len(state._journal)
        self._stale = tuple(state._stale)

    def restore(self) -> None:
        """Undo every edit since, those of bodies of control flow included.

        Raises:
            UsageError: EK121, the outermost transaction of that time has ended, or its edits were undone.
        """
        state = self._state
        if not state._open or state._open[0] is not self._around or len(state._journal) < self._start:
            raise UsageError(Diagnostic(code="EK121", message="this state of the program is settled or undone"))
        state._journal.undo_to(self._start)
        state._stale = dict.fromkeys(self._stale)
        state._forget()
        for one in state._open:
            one._saved.clear()


class EditorState:
    """What `GraphEditor` builds on: every change is journaled here.

    Attributes:
        program: The program being edited; its signature and tables agree with the graph whenever a transaction ends.
        graph: Its graph.
        fake_mode: Mode of the graph's fake tensors.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.graph: Graph = program.graph_module.graph
        self.fake_mode = fake_mode_of(program.graph_module)
        self._inference = Inference(self.fake_mode)
        self._journal = Journal()
        self._open: list[Transaction] = []
        self._stale: dict[Node, None] = {}
        # Editors of the bodies of control flow; they share the journal.
        self._bodies: dict[str, EditorState] = {}
        register_names(self.graph)

    # Transactions

    def checkpoint(self) -> Checkpoint:
        """Mark the present state, to come back to it before the outermost transaction ends.

        Raises:
            UsageError: EK121, no transaction is open.
        """
        if not self._open:
            raise UsageError(Diagnostic(code="EK121", message="states are kept inside a transaction only"))
        for one in self._open:
            # What was saved before is not good enough any more: it is older than the mark.
            one._saved.clear()
        return Checkpoint(self)

    def _begin(self, author: str, *, records_effect: bool) -> Transaction:
        transaction = Transaction(self, author, records_effect=records_effect)
        if not self._open:
            _EDITED.setdefault(self.program, self)
        self._open.append(transaction)
        return transaction

    def _end(self, transaction: Transaction) -> None:
        if transaction.records_effect:
            transaction.effect = effect_of(self._journal[transaction._start :])
        self._open.remove(transaction)
        if not self._open:
            if _EDITED.get(self.program) is self:
                del _EDITED[self.program]
            self._settle()

    def _settle(self) -> None:
        """Let go of what only an undo would have needed."""
        for change in self._journal:
            if isinstance(change, Erased):
                release(change.node)
        self._journal.clear()
        self._forget()
        module = self.program.graph_module
        if isinstance(module, _LazyGraphModule):
            # Somebody may have run or printed the module between two edits; its code is made again when next needed.
            module.recompile()
        for body in self._bodies.values():
            EditorState._settle(body)

    def _forget(self) -> None:
        """Drop what was derived from a program that may be another one now."""

    def _undo_to(self, transaction: Transaction) -> None:
        self._journal.undo_to(transaction._start)
        self._stale = dict.fromkeys(transaction._stale)
        self._forget()
        for other in self._open:
            if other._start >= transaction._start:
                other._saved.clear()

    def _note(self, change: Change) -> None:
        if self._open:
            self._journal.append(change)

    def _made(self, change: Change) -> None:
        """Tell who watches of a change that has been made, and that was or will be noted."""
        if self._journal.watch is not None:
            self._journal.watch.accept(change)

    def _is_first(self, thing: Any) -> bool:
        """Tell whether the innermost transaction has not saved the state of this thing yet."""
        if not self._open or thing in self._open[-1]._saved:
            return False
        self._open[-1]._saved.add(thing)
        return True

    # Edits that others make

    def watch(self) -> EditWatch | None:
        """Remember what the graphs are now, and what is done to them from now on, to find edits made by others.

        Returns:
            What is remembered; None if there is a watch already, which goes on.
        """
        if self._journal.watch is not None:
            return None
        self._journal.watch = watch = EditWatch(self.program)
        return watch

    def unwatch(self) -> None:
        """End what `watch` began."""
        self._journal.watch = None

    # Nodes and values

    def _check(self, *nodes: Node) -> None:
        for node in nodes:
            if node._erased or node.graph is not self.graph:
                gone = "is no longer" if node.graph is self.graph else "is not"
                raise UsageError(Diagnostic(code="EK114", message=f"%{node.name} {gone} in the graph that is edited"))

    def _check_unused(self, node: Node) -> None:
        if node.users:
            users = ", ".join(f"%{user.name}" for user in node.users)
            raise UsageError(
                Diagnostic(code="EK115", message=f"%{node.name} is used by {users}", location=locate(node))
            )

    def _create(self, op: str, target: Any, args: Any, kwargs: Any, before: Node, name: str, meta: Any) -> Node:
        numbering = numbering_of(self.graph, name)
        with self.graph.inserting_before(before):
            # Arguments come afterwards: torch takes those of a new node apart, only to warn of numbers that vary.
            node = self.graph.create_node(op, target, name=name)
        node._update_args_kwargs(args, kwargs)
        change = Created(node, numbering)
        self._note(change)
        misplaced = misplaced_argument(node)
        if misplaced is not None:
            self._retract(change)
            hint = f"pass a `before` that stands behind all arguments, such as the node behind %{misplaced.name}"
            raise order_error(f"a call of {target_name(target)}", misplaced, before, hint)
        node.meta = meta
        if op == "placeholder":
            node.target = node.name
        self._made(change)
        return node

    def _retract(self, change: Change) -> None:
        """Undo the change that was made last, because it was wrong."""
        if self._open:
            self._journal.pop()
        change.undo()

    def _save_users(self, producers: Iterable[Node]) -> None:
        for producer in producers:
            if self._is_first(producer):
                self._journal.append(UsersReordered(producer, tuple(producer.users)))

    def erase(self, node: Node) -> None:
        """Take a node without users out of the graph.

        Raises:
            UsageError: EK114, the node is not in the graph; EK115, something uses it.
        """
        self._check(node)
        self._check_unused(node)
        self._save_users(node.all_input_nodes)
        entry = Erased(node, node.next, node.args, node.kwargs)
        self.graph.erase_node(node)
        self._note(entry)
        self._made(entry)
        self._stale.pop(node, None)

    def set_value(self, node: Node, value: Any) -> None:
        """Record what a node computes; users are looked at again if it differs from before."""
        self._check(node)
        old = node.meta.get("val", MISSING)
        if same_value(None if old is MISSING else old, value):
            return
        change = MetaSet(node, "val", old)
        self._note(change)
        node.meta["val"] = value
        self._made(change)
        self._stale.update(node.users)
