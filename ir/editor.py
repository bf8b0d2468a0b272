"""The one editor through which graphs of programs change.

Every change is journaled, so it can be undone and so that `modified` is the truth. The value (`meta["val"]`) of new nodes is
inferred when they are made; a changed value is pushed to the users until nothing changes any more. Nothing re-runs a graph.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Graph, Node

from .diagnostics import Diagnostic, DiagnosticError, ModelError
from .journal import (
    MISSING,
    Change,
    Created,
    Effect,
    Erased,
    MetaSet,
    Moved,
    Renamed,
    Retargeted,
    Rewired,
    SignatureSet,
    SpecInserted,
    SpecRemoved,
    TableSet,
    effect_of,
)
from .metadata import has_unbacked_symbols, infer_value, same_argument, same_value
from .programs import copy_input_spec, copy_output_spec, fake_mode_of
from .provenance import inherited, locate
from .value_cache import ValueCache, call_key

INFER: Any = object()
"""Default of `val`: run the operator on the values of its arguments."""


class Transaction:
    """A stretch of edits with one author; see `GraphEditor.transaction`.

    Attributes:
        author: Pass or rule that makes the edits.
        effect: What the edits amount to, once the transaction has ended.
    """

    def __init__(self, editor: GraphEditor, author: str) -> None:
        self.author = author
        self.effect = Effect()
        self._editor = editor
        self._start = len(editor._journal)

    @property
    def modified(self) -> bool:
        """Whether the program differs from what it was at the start."""
        return self.effect.is_modified

    def roll_back(self) -> None:
        """Undo every edit since the start."""
        self._editor._undo_to(self._start)


class GraphEditor:
    """Edits one program in place; the caller hands in a copy it owns (`copy_program`).

    Attributes:
        program: The program being edited; its signature and tables agree with the graph whenever a transaction ends.
        graph: Its graph.
        fake_mode: Mode of the graph's fake tensors.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.graph: Graph = program.graph_module.graph
        self.fake_mode = fake_mode_of(program.graph_module)
        self._journal: list[Change] = []
        self._depth = 0
        self._stale: dict[Node, None] = {}
        self._values = ValueCache()
        self._scalar_constants: dict[tuple[Any, ...], Node] = {}

    # Transactions

    @contextmanager
    def transaction(self, author: str) -> Iterator[Transaction]:
        """Group edits: all of them happen or, if the body raises, none.

        Args:
            author: Name of the pass or rule, for the journal and for messages.

        Yields:
            The transaction; `modified` and `effect` are set when the block ends.
        """
        transaction = Transaction(self, author)
        self._depth += 1
        try:
            yield transaction
            self.propagate()
            if self._depth == 1:
                self._agree_signature()
        except BaseException:
            transaction.roll_back()
            raise
        finally:
            self._depth -= 1
            transaction.effect = effect_of(self._journal[transaction._start :])
            if not self._depth:
                self._journal.clear()

    def _undo_to(self, start: int) -> None:
        while len(self._journal) > start:
            self._journal.pop().undo()
        self._stale.clear()

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
            ModelError: EK111, the operator does not take these arguments.
        """
        origins = (origins,) if isinstance(origins, Node) else tuple(origins)
        named = dict(kwargs or {})
        value = self._infer(target, tuple(args), named, before) if val is INFER else val
        with self.graph.inserting_before(before):
            node = self.graph.call_function(target, tuple(args), named)
        self._journal.append(Created(node))
        node.meta = inherited(origins)
        node.meta["val"] = value
        return node

    def erase(self, node: Node) -> None:
        """Take a node without users out of the graph."""
        entry = Erased(node, node.next, node.args, dict(node.kwargs))
        self.graph.erase_node(node)
        self._journal.append(entry)
        self._stale.pop(node, None)

    def erase_unused(self, node: Node) -> None:
        """Take a node out if nothing uses it, and then its producers that lost their last user by that."""
        pending = [node]
        while pending:
            candidate = pending.pop()
            if candidate._erased or candidate.users or candidate.op != "call_function":
                continue
            if candidate.is_impure():
                continue
            producers = candidate.all_input_nodes
            self.erase(candidate)
            pending.extend(producers)

    def replace(self, old: Node, new: Node) -> None:
        """Make every user of `old`, the outputs included, use `new`; `old` stays and has no users then."""
        changed = not same_value(old.meta.get("val"), new.meta.get("val"))
        for user in list(old.users):
            if user is new:
                continue
            self._journal.append(Rewired(user, user.args, dict(user.kwargs)))
            user.replace_input_with(old, new)
            if changed:
                self._stale[user] = None

    def replace_in(self, user: Node, old: Node, new: Node) -> None:
        """Make one user of `old` use `new`."""
        self._journal.append(Rewired(user, user.args, dict(user.kwargs)))
        user.replace_input_with(old, new)
        if not same_value(old.meta.get("val"), new.meta.get("val")):
            self._stale[user] = None

    def rewire(self, node: Node, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None) -> None:
        """Give a node other arguments, and infer its value again where that can matter."""
        args = node.args if args is None else tuple(args)
        named = dict(node.kwargs if kwargs is None else kwargs)
        if same_argument(args, node.args) and same_argument(named, node.kwargs):
            return
        self._journal.append(Rewired(node, node.args, dict(node.kwargs)))
        node.args, node.kwargs = args, named
        self._stale[node] = None

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
        """
        self._journal.append(Retargeted(node, node.target))
        node.target = target
        if args is not None or kwargs is not None:
            self._journal.append(Rewired(node, node.args, dict(node.kwargs)))
            node.args = node.args if args is None else tuple(args)
            node.kwargs = dict(node.kwargs if kwargs is None else kwargs)
        if val is INFER:
            self._stale[node] = None
        else:
            self.set_value(node, val)

    def move(self, node: Node, before: Node) -> None:
        """Place a node right in front of another one."""
        if node.next is before:
            return
        self._journal.append(Moved(node, node.next))
        before.prepend(node)

    def rename(self, node: Node, name: str) -> None:
        """Rename a node; a taken name gets a number."""
        if node.name == name:
            return
        self._journal.append(Renamed(node, node.name))
        node._rename(name)

    # Metadata

    def set_meta(self, node: Node, key: str, value: Any) -> None:
        """Set one metadata entry."""
        self._journal.append(MetaSet(node, key, node.meta.get(key, MISSING)))
        node.meta[key] = value

    def remove_meta(self, node: Node, key: str) -> None:
        """Remove one metadata entry if it is there."""
        if key in node.meta:
            self._journal.append(MetaSet(node, key, node.meta.pop(key)))

    def set_value(self, node: Node, value: Any) -> None:
        """Record what a node computes; users are looked at again if it differs from before."""
        old = node.meta.get("val", MISSING)
        if old is not MISSING and same_value(old, value):
            return
        self._journal.append(MetaSet(node, "val", old))
        node.meta["val"] = value
        for user in node.users:
            self._stale[user] = None

    def refresh(self, node: Node) -> None:
        """Have the value of a node inferred (again) when the transaction ends, or at `propagate`."""
        self._stale[node] = None

    def propagate(self) -> None:
        """Infer stale values again, in graph order, until nothing changes; each node at most once a sweep."""
        queue = list(self._stale)
        heapq.heapify(queue)
        while queue:
            node = heapq.heappop(queue)
            if node not in self._stale:
                continue
            del self._stale[node]
            if node._erased or node.op != "call_function" or has_unbacked_symbols(node):
                continue
            before = len(self._stale)
            self.set_value(node, self._infer(node.target, node.args, node.kwargs, node))
            if len(self._stale) > before:
                for user in node.users:
                    heapq.heappush(queue, user)

    def _infer(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], at: Node) -> Any:
        key = call_key(target, args, kwargs)
        known = None if key is None else self._values.get(key)
        if known is not None:
            return known
        try:
            value = infer_value(self.fake_mode, target, args, kwargs)
            if key is not None:
                self._values.put(key, value)
            return value
        except DiagnosticError:
            raise
        except Exception as error:
            raise ModelError(
                Diagnostic(
                    code="EK111",
                    message=f"{getattr(target, '__name__', target)} does not take these arguments: "
                    f"{str(error).splitlines()[0] if str(error) else type(error).__name__}",
                    location=locate(at),
                    notes=tuple(f"%{arg.name}: {arg.meta.get('val')}" for arg in args if isinstance(arg, Node)),
                )
            ) from error

    # Signature, state and constants

    def add_constant(self, tensor: torch.Tensor, *, name: str, origins: Node | Sequence[Node] = ()) -> Node:
        """Make a tensor a constant input of the program.

        Args:
            tensor: Real tensor; it is shared, not copied.
            name: Wish for its name; a taken one gets a number.
            origins: Nodes whose provenance it inherits.

        Returns:
            The placeholder. Constants of one element and equal dtype and bytes share one placeholder.
        """
        key = _scalar_key(tensor)
        if key is not None and (known := self._scalar_constants.get(key)) is not None and not known._erased:
            return known
        position, follower = self._first_user_input()
        with self.graph.inserting_before(follower):
            node = self.graph.placeholder(name)
        self._journal.append(Created(node))
        node.target = node.name
        origins = (origins,) if isinstance(origins, Node) else tuple(origins)
        node.meta = inherited(origins)
        node.meta["val"] = self.fake_mode.from_tensor(tensor.detach(), static_shapes=True)
        target = node.name
        while target in self.program._constants or target in self.program._state_dict:
            target += "_"
        self._set_entry(self.program._constants, target, tensor.detach())
        self.program._graph_signature.input_specs.insert(
            position,
            InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name=node.name), target=target),
        )
        self._journal.append(SpecInserted(self.program, position))
        if key is not None:
            self._scalar_constants[key] = node
        return node

    def remove_input(self, node: Node) -> None:
        """Remove an unused parameter, buffer or constant from graph, signature and tables."""
        self.remove_inputs((node,))

    def remove_inputs(self, nodes: Sequence[Node]) -> None:
        """Remove unused parameters, buffers and constants from graph, signature and tables."""
        specs = self.program._graph_signature.input_specs
        unwanted = {node.name for node in nodes}
        for node in nodes:
            self.erase(node)
        removed = []
        for position in reversed(range(len(specs))):
            if specs[position].arg.name in unwanted:
                removed.append(specs[position])
                self._journal.append(SpecRemoved(self.program, position, specs[position]))
                del specs[position]
        kept = {spec.target for spec in specs}
        for spec in removed:
            if spec.target is not None and spec.target not in kept:
                for table in (self.program._state_dict, self.program._constants):
                    if spec.target in table:
                        self._journal.append(TableSet(table, spec.target, table.pop(spec.target)))

    def set_tensor(self, node: Node, tensor: torch.Tensor) -> None:
        """Replace the tensor behind a parameter, buffer or constant placeholder."""
        specs = self.program._graph_signature.input_specs
        target = next(spec.target for spec in specs if spec.arg.name == node.name)
        tables = (self.program._state_dict, self.program._constants)
        for table in tables:
            if target in table:
                self._set_entry(table, target, tensor)
        self.set_value(node, self.fake_mode.from_tensor(tensor.detach(), static_shapes=True))

    def set_range(self, symbol: Any, value_range: Any) -> None:
        """Record the range of a size symbol."""
        self._set_entry(self.program._range_constraints, symbol, value_range)

    def _set_entry(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._journal.append(TableSet(table, key, table.get(key, MISSING)))
        table[key] = value

    def _note_signature(self) -> None:
        signature = self.program._graph_signature
        self._journal.append(
            SignatureSet(
                self.program,
                [copy_input_spec(spec) for spec in signature.input_specs],
                [copy_output_spec(spec) for spec in signature.output_specs],
            )
        )

    def _first_user_input(self) -> tuple[int, Node]:
        specs = self.program._graph_signature.input_specs
        follower = next(iter(self.graph.nodes))
        for position, spec in enumerate(specs):
            if spec.kind is InputKind.USER_INPUT:
                return position, follower
            follower = follower.next
        return len(specs), follower

    def _agree_signature(self) -> None:
        """Make the names in the signature those of the graph, by position."""
        signature = self.program._graph_signature
        placeholders = self.graph.find_nodes(op="placeholder")
        results = self.graph.output_node().args[0]
        wrong = [
            (spec, node.name)
            for specs, nodes in ((signature.input_specs, placeholders), (signature.output_specs, results))
            for spec, node in zip(specs, nodes, strict=True)
            if isinstance(node, Node) and spec.arg.name != node.name
        ]
        if wrong:
            self._note_signature()
            for spec, name in wrong:
                spec.arg.name = name


def _scalar_key(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    if tensor.numel() != 1 or tensor.layout is not torch.strided:
        return None
    data = tensor.detach().contiguous().reshape(1).view(torch.uint8)
    return (tensor.dtype, tuple(tensor.shape), bytes(data.tolist()))
