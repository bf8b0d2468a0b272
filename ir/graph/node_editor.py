"""Journaled edits of the nodes of one graph.

Every change is journaled, so it can be undone and so that `modified` is the truth. The value (`meta["val"]`) of new
nodes is inferred when they are made; a changed value is pushed to the users until nothing changes any more. Nothing
re-runs a graph.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch.fx import Graph, GraphModule, Node

from exirkit.ir.analysis import is_pure, same_argument, same_value
from exirkit.ir.diagnostics import Diagnostic, ModelError, UsageError
from exirkit.ir.inference import Inference
from exirkit.ir.provenance import inherited, locate, target_name

from .journal import (
    MISSING,
    Change,
    Created,
    Erased,
    Journal,
    MetaSet,
    Moved,
    Renamed,
    Retargeted,
    Rewired,
    Transaction,
    UsersReordered,
)
from .node_order import (
    argument_tuple,
    check_move,
    input_in_the_way,
    misplaced_argument,
    numbering_of,
    order_error,
    register_names,
    rename,
    replacement_error,
    users_to_replace,
)
from .programs import fake_mode_of

INFER: Any = object()
"""Default of `val`: run the operator on the values of its arguments."""


class NodeEditor:
    """Edits the nodes of one graph in place; knows nothing of what the program stores, takes and returns.

    Every method that takes a node raises `UsageError` EK114 if the node is not, or no longer, in the graph.

    Attributes:
        graph: The graph.
        fake_mode: Mode of the graph's fake tensors.
    """

    def __init__(self, module: GraphModule) -> None:
        self.graph: Graph = module.graph
        self.fake_mode = fake_mode_of(module)
        self._inference = Inference(self.fake_mode)
        self._journal = Journal()
        self._open: list[Transaction] = []
        self._stale: dict[Node, None] = {}
        register_names(self.graph)

    # Nodes

    def call(
        self,
        target: Callable[..., Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        before: Node,
        origins: Node | Sequence[Node] = (),
        val: Any = INFER,
    ) -> Node:
        """Make a call and place it.

        Args:
            target: Operator to call.
            args: Arguments; nodes must stand before `before`.
            kwargs: Keyword arguments.
            before: Node in front of which the call is placed.
            origins: Nodes that it stands for, whose provenance it inherits; the first one is the anchor.
            val: Value to record, if the caller knows it; inferred otherwise.

        Raises:
            ModelError: EK111, the operator does not take these arguments; EK112, one of them has no recorded value.
            UsageError: EK111, `args` is a node; EK122, an argument does not stand before `before`, or inputs would
                stand behind the call.
        """
        self._check(before)
        if before.op == "placeholder":
            raise input_in_the_way(target_name(target), before)
        origins = (origins,) if isinstance(origins, Node) else tuple(origins)
        args, named = argument_tuple(target, args), dict(kwargs or {})
        meta = inherited(origins)
        if val is INFER:
            meta["val"], bindings = self._value_of_call(target, args, named, before, origins)
        else:
            meta["val"] = val
            # A call that takes over a value takes over the symbols that come with it.
            same = (origin.meta for origin in origins if origin.meta.get("val") is val)
            bindings = next((entries["unbacked_bindings"] for entries in same if "unbacked_bindings" in entries), {})
        if bindings:
            meta["unbacked_bindings"] = bindings
        return self._create("call_function", target, args, named, before, self.graph._target_to_str(target), meta)

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
        self._record(entry)
        self._stale.pop(node, None)

    def erase_unused(self, node: Node) -> None:
        """Take a node out if nothing uses it, and then its producers that lost their last user by that.

        Inputs and calls that do more than to return a value stay: those that write, assert, or draw random numbers.
        """
        pending = [node]
        while pending:
            candidate = pending.pop()
            if candidate._erased or candidate.users or not is_pure(candidate):
                continue
            producers = candidate.all_input_nodes
            self.erase(candidate)
            pending.extend(producers)

    def replace(self, old: Node, new: Node) -> None:
        """Make every user of `old`, the outputs included, use `new`.

        Calls that `new` is computed from go on using `old`; it stays, and has no other users then.

        Raises:
            UsageError: EK122, a user stands before `new`, which is not computed from it.
        """
        self._check(old, new)
        if old is new:
            return
        changed = not same_value(old.meta.get("val"), new.meta.get("val"))
        for user in users_to_replace(old, new):
            self._replace_in(user, old, new, changed)

    def replace_in(self, user: Node, old: Node, new: Node) -> None:
        """Make one user of `old` use `new`.

        Raises:
            UsageError: EK122, the user does not stand behind `new`.
        """
        self._check(user, old, new)
        if old is not new and old in user.all_input_nodes:
            if not new < user:
                raise replacement_error(user, new)
            self._replace_in(user, old, new, not same_value(old.meta.get("val"), new.meta.get("val")))

    def _replace_in(self, user: Node, old: Node, new: Node, is_stale: bool) -> None:
        self._save_users(user.all_input_nodes)
        change = Rewired(user, user.args, user.kwargs)
        user.replace_input_with(old, new)
        self._record(change)
        if is_stale:
            self._stale[user] = None

    def rewire(
        self,
        node: Node,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        val: Any = INFER,
    ) -> None:
        """Give a node other arguments, and infer its value again where that can matter, unless the caller knows it.

        Raises:
            UsageError: EK122, an argument does not stand before the node.
        """
        self._check(node)
        if self._set_arguments(node, args, kwargs):
            if val is INFER:
                self._stale[node] = None
            else:
                self.set_value(node, val)

    def _set_arguments(self, node: Node, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None) -> bool:
        args = node.args if args is None else argument_tuple(node.target, args)
        kwargs = node.kwargs if kwargs is None else dict(kwargs)
        if same_argument(args, node.args) and same_argument(kwargs, node.kwargs):
            return False
        self._save_users(node.all_input_nodes)
        change = Rewired(node, node.args, node.kwargs)
        self._note(change)
        node._update_args_kwargs(args, kwargs)
        misplaced = misplaced_argument(node)
        if misplaced is not None:
            self._retract(change)
            raise order_error(f"%{node.name}", misplaced, node)
        self._made(change)
        return True

    def retarget(
        self,
        node: Node,
        target: Callable[..., Any],
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        val: Any = INFER,
    ) -> None:
        """Make a node call another operator in place; it keeps its provenance and its users.

        Args:
            node: Node to change.
            target: New operator.
            args: New arguments, or None to keep them.
            kwargs: New keyword arguments, or None to keep them.
            val: New value if the caller knows it (often the old one); inferred otherwise.

        Raises:
            UsageError: EK122, an argument does not stand before the node.
        """
        self._check(node)
        if args is not None or kwargs is not None:
            self._set_arguments(node, args, kwargs)
        if target is not node.target:
            self._set_target(node, target)
        if val is INFER:
            self._stale[node] = None
        else:
            self.set_value(node, val)

    def _set_target(self, node: Node, target: Any) -> None:
        change = Retargeted(node, node.target)
        node.target = target
        self._record(change)

    def move(self, node: Node, before: Node) -> None:
        """Place a node right in front of another one.

        Raises:
            UsageError: EK117, the node is an input or the output of the graph; EK122, it would stand before one of its
                arguments or behind one of its users.
        """
        self._check(node, before)
        if node.op in ("placeholder", "output"):
            raise UsageError(
                Diagnostic.of(
                    "EK117",
                    f"%{node.name} cannot be moved: it is the {node.op} of a graph with a signature",
                    location=locate(node),
                )
            )
        if node is not before and node.next is not before:
            check_move(node, before)
            change = Moved(node, node.next)
            before.prepend(node)
            self._record(change)

    def rename(self, node: Node, name: str) -> None:
        """Rename a node; a taken name gets a number, and the old name is free again."""
        self._check(node)
        if node.name == name:
            return
        change = Renamed(node, node.name, numbering_of(self.graph, name))
        rename(node, name)
        self._record(change)
        if node.op == "placeholder":
            self._set_target(node, node.name)

    def _create(self, op: str, target: Any, args: Any, kwargs: Any, before: Node, name: str, meta: Any) -> Node:
        numbering = numbering_of(self.graph, name)
        with self.graph.inserting_before(before):
            # Arguments come afterwards: torch flattens those of a new node, only to warn of symbolic numbers.
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

    def _check(self, *nodes: Node) -> None:
        for node in nodes:
            if node._erased or node.graph is not self.graph:
                gone = "is no longer" if node.graph is self.graph else "is not"
                raise UsageError(Diagnostic.of("EK114", f"%{node.name} {gone} in the graph that is edited"))

    def _check_unused(self, node: Node) -> None:
        if node.users:
            users = ", ".join(f"%{user.name}" for user in node.users)
            raise UsageError(Diagnostic.of("EK115", f"%{node.name} is used by {users}", location=locate(node)))

    # Metadata and values

    def set_meta(self, node: Node, key: str, value: Any) -> None:
        """Set one metadata entry."""
        if key == "val":
            self.set_value(node, value)
            return
        self._check(node)
        change = MetaSet(node, key, node.meta.get(key, MISSING))
        node.meta[key] = value
        self._record(change)

    def remove_meta(self, node: Node, key: str) -> None:
        """Remove one metadata entry if it is there."""
        self._check(node)
        if key in node.meta:
            change = MetaSet(node, key, node.meta.pop(key))
            self._record(change)

    def set_value(self, node: Node, value: Any) -> None:
        """Record what a node computes; values of users are inferred again if it differs."""
        self._check(node)
        old = node.meta.get("val", MISSING)
        if same_value(None if old is MISSING else old, value):
            return
        change = MetaSet(node, "val", old)
        node.meta["val"] = value
        self._record(change)
        self._stale.update(node.users)

    def refresh(self, node: Node) -> None:
        """Have the value of a node inferred (again) when the transaction ends, or at `propagate`."""
        self._check(node)
        self._stale[node] = None

    def propagate(self) -> None:
        """Infer stale values again, in graph order, until nothing changes; each node at most once a sweep.

        Raises:
            ModelError: EK111, a call does not take what its arguments have become; EK112, one has no recorded value.
        """
        self._propagate_up_to(self.graph.output_node())
        self._stale.clear()

    def propagate_to(self, end: Node) -> bool:
        """Infer stale values in front of a node again; return whether that changes what the node is given.

        Raises:
            ModelError: As `propagate`.
        """
        if self._stale:
            self._propagate_up_to(end)
        return end in self._stale

    def _propagate_up_to(self, end: Node) -> None:
        queue = list(self._stale)
        heapq.heapify(queue)
        while queue and queue[0] < end:
            node = heapq.heappop(queue)
            if node not in self._stale:
                continue
            if not node._erased and node.op == "call_function":
                known = len(self._stale)
                self._infer_again(node)
                if len(self._stale) > known:
                    for user in node.users:
                        heapq.heappush(queue, user)
            del self._stale[node]

    def _infer_again(self, node: Node) -> None:
        value, bindings = self._inference.value_again(node)
        self.set_value(node, value)
        if bindings != (node.meta.get("unbacked_bindings") or {}):
            self.set_meta(node, "unbacked_bindings", bindings)

    def _value_of_call(
        self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], before: Node, origins: Sequence[Node]
    ) -> Any:
        at = origins[0] if origins else before
        try:
            return self._inference.value(target, args, kwargs, at)
        except ModelError:
            if not self._stale:
                raise
        # The arguments may have been retargeted or rewired just before, and their recorded values be those of then.
        self._propagate_up_to(before)
        return self._inference.value(target, args, kwargs, at)

    # Journal

    def _note(self, change: Change) -> None:
        if self._open:
            self._journal.append(change)

    def _record(self, change: Change) -> None:
        """Journal a change that has just been made."""
        self._note(change)
        self._made(change)

    def _made(self, change: Change) -> None:
        """Report a change that has been made, and that was or will be journaled, to the watch."""
        if self._journal.watch is not None:
            self._journal.watch.accept(change)

    def _is_first(self, thing: Any) -> bool:
        """Return whether the innermost transaction has not saved the state of this thing yet."""
        if not self._open or thing in self._open[-1]._saved:
            return False
        self._open[-1]._saved.add(thing)
        return True
