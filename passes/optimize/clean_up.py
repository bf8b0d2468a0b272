"""Cleaning up: unused nodes and inputs, equal nodes, and rules."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import torch
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from exirkit.ir import (
    ATTRIBUTE_KEYS,
    CALL_DELEGATE,
    GraphEditor,
    ProgramInterface,
    bytes_of,
    element_blocks,
    end_bytes,
    inherited,
    same_value,
    subgraph_editors,
    underlying,
)
from exirkit.passes.analysis import StoredValues, is_plain_call, place_of
from exirkit.passes.contract import Pass, ReportingPass
from exirkit.patterns import CompiledRule, LoadedBook, RewriteOptions, RewriteReport, RuleEngine, unfuse


class ApplyRules(ReportingPass[RewriteReport]):
    """Rewrite a program with rules until none of them matches any more.

    Args:
        rules: A loaded book, compiled rules, or an engine that has been made of them.
        options: Strategy, limit, target.

    Attributes:
        reports: What every run did, one for each program.

    Raises:
        ModelError: The book has errors.
    """

    name = "apply-rules"

    def __init__(
        self, rules: LoadedBook | Sequence[CompiledRule] | RuleEngine, options: RewriteOptions | None = None
    ) -> None:
        rules = rules.require_valid().rules if isinstance(rules, LoadedBook) else rules
        self.engine = rules if isinstance(rules, RuleEngine) else RuleEngine(rules)
        self.options = options or RewriteOptions()
        self.reports = []

    def edit(self, editor: GraphEditor) -> None:
        """Rewrite.

        Raises:
            ContractError: EK250, the rules rewrite in a cycle; EK251, one violated its contract and must not.
        """
        self.reports.append(self.engine.run(editor, self.options))


class ChangeInterface(ApplyRules):
    """Rewrite a program with rules that may change what it takes and gives; `ApplyRules` leaves those out.

    Args:
        rules: As in `ApplyRules`.
        options: Strategy, limit, target.

    Attributes:
        reports: What every run did; `report.interface` lists what the program takes and gives now.

    Raises:
        ModelError: The book has errors.
    """

    name = "change-interface"
    changes_outputs = True

    def __init__(
        self, rules: LoadedBook | Sequence[CompiledRule] | RuleEngine, options: RewriteOptions | None = None
    ) -> None:
        super().__init__(rules, replace(options or RewriteOptions(), interface=True))


class UnfuseOperators(ApplyRules):
    """Replace operators that a book defines by their definitions, for targets that do not have them.

    Definitions may call operators that books define; these are decomposed as well.

    Args:
        book: A loaded book.
        keep: Operators to leave, by name: those that the target has.
        options: Limit, bound.

    Raises:
        ModelError: The book has errors.
    """

    name = "unfuse-operators"

    def __init__(self, book: LoadedBook, *, keep: Collection[str] = (), options: RewriteOptions | None = None) -> None:
        super().__init__(unfuse(book, keep=keep), options)


class EliminateDeadCode(Pass):
    """Erase unused calls, last first, so that one sweep is enough.

    Requires: operators without effects may be dropped, random ones too; what writes or asserts stays, and so do
    delegates, whose state and effects only their backends know.
    """

    name = "eliminate-dead-code"
    enters_subgraphs = True
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Erase what has no users."""
        for node in reversed(list(editor.graph.nodes)):
            if node.op not in ("call_function", "get_attr") or node.users:
                continue
            if not node.is_impure() and node.target is not CALL_DELEGATE:
                editor.erase(node)


class RemoveUnusedInputs(Pass):
    """Remove stored tensors without users from graph, signature and tables; user inputs stay.

    Before that, graphs of control flow lose the inputs that none of the graphs of the same call reads.

    Ensures: every parameter, buffer and constant of the program is read or written.
    """

    name = "remove-unused-inputs"
    invalidates = ()
    after = ("eliminate-dead-code",)

    def edit(self, editor: GraphEditor) -> None:
        """Remove what nothing reads; a buffer that is written stays, even if it is never read."""
        _remove_from_bodies(editor)
        interface = ProgramInterface.of(editor.program)
        unread = [node for node in interface.placeholders if not node.users and interface.is_stored(node)]
        editor.remove_inputs([node for node in unread if not interface.is_written(node)])


def _remove_from_bodies(editor: GraphEditor) -> None:
    """Remove inputs of bodies, those of the innermost first, since they may be the only readers of an outer one."""
    for body in subgraph_editors(editor):
        _remove_from_bodies(body)
        for node in body.graph.find_nodes(op="placeholder"):
            # The other body of the call has lost its input with that of the first.
            if not node._erased and not node.users:
                body.remove_inputs([node])


_PLAIN = (bool, int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


@dataclass(frozen=True, slots=True)
class MergeReport:
    """What merging in one program did.

    Attributes:
        calls: Names of calls that are gone, with the name of the node that took their place.
        constants: The same for inputs that stood for equal stored tensors.
    """

    calls: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, str], ...]


@dataclass(eq=False)
class MergeEqualNodes(ReportingPass[MergeReport]):
    """Make one node of calls of one operator with the same arguments, and one input of equal stored tensors.

    Arguments are the same if they are the same nodes and literals; 1, 1.0 and True are different, as are 0.0 and -0.0;
    an argument left out is its default. Stored tensors are the same if they have the same bytes, dtype, shape and
    strides and are both parameters, both buffers or both constants. Only operators without effects are merged, and
    never memory that an operator writes to. A value that the program returns twice is a result both times: nodes of
    which one is written back to an input are not merged. Calls inside of control flow are left alone.

    Takes time in proportion to the number of nodes.

    Attributes:
        reports: What every run did, one for each program.

    Before: `%a = aten.relu.default(%x)`; `%b = aten.relu.default(%x)`; `%c = aten.add.Tensor(%a, %b)`
    After: `%a = aten.relu.default(%x)`; `%c = aten.add.Tensor(%a, %a)`
    """

    name = "merge-equal-nodes"

    def edit(self, editor: GraphEditor) -> None:
        """Merge stored tensors, then calls in graph order."""
        merging = _Merging(editor)
        for group in _equal_constants(merging.stored):
            for node in group[1:]:
                merging.offer(node, group[0])
        constants = merging.names()
        first: dict[Hashable, Node] = {}
        for node in list(editor.graph.nodes):
            key = merging.key(node) if self.may_merge(node) else None
            if key is not None and (leader := first.setdefault(key, node)) is not node:
                merging.offer(node, leader)
        calls = merging.names()[len(constants) :]
        merging.finish()
        self.reports.append(MergeReport(calls, constants))

    def may_merge(self, node: Node) -> bool:
        """Return whether a call may be merged with equal ones; subclasses leave more alone."""
        del node
        return True


class _Merging:
    """Merges nodes of one program.

    Attributes:
        stored: What the program stores, writes and returns.
    """

    def __init__(self, editor: GraphEditor) -> None:
        self.editor = editor
        self.stored = StoredValues(editor.program)
        self._absorbed: dict[Node, list[Node]] = {}
        self._names: list[tuple[str, str]] = []

    def key(self, node: Node) -> Hashable | None:
        """Return what tells a call from others, or None if it must not be merged."""
        if not is_plain_call(node) or self.stored.touches_written(node):
            return None
        try:
            return (node.target, _arguments(node), _attributes(node))
        except _NoKeyError:
            return None

    def offer(self, node: Node, leader: Node) -> None:
        """Let `leader` take the place of `node`, if both compute the same and may be returned as the same."""
        if not same_value(node.meta.get("val"), leader.meta.get("val")):
            return
        kinds = self.stored.output_kinds
        if node in kinds and leader in kinds and {*kinds[node], *kinds[leader]} != {OutputKind.USER_OUTPUT}:
            return
        self.editor.replace(node, leader)
        if node in kinds:
            kinds.setdefault(leader, []).extend(kinds.pop(node))
        self._absorbed.setdefault(leader, []).append(node)
        self._names.append((node.name, leader.name))

    def names(self) -> tuple[tuple[str, str], ...]:
        """Return what was merged so far."""
        return tuple(self._names)

    def finish(self) -> None:
        """Take out what has been merged, and let the provenance of those that stay tell of it."""
        gone = [node for nodes in self._absorbed.values() for node in nodes]
        for leader, nodes in self._absorbed.items():
            self._unite(leader, nodes)
        for node in gone:
            if node.op == "call_function":
                self.editor.erase(node)
        self.editor.remove_inputs([node for node in gone if node.op == "placeholder"])

    def _unite(self, leader: Node, nodes: Sequence[Node]) -> None:
        united = inherited((leader, *nodes))
        if united.get("debug_handle") != leader.meta.get("debug_handle"):
            self.editor.set_meta(leader, "debug_handle", united["debug_handle"])
        origins = [origin for node in (leader, *nodes) for origin in node.meta.get("from_node") or ()]
        distinct = list(dict.fromkeys(origins))
        if distinct != list(leader.meta.get("from_node") or ()):
            self.editor.set_meta(leader, "from_node", distinct)


class _NoKeyError(Exception):
    """An argument is of a kind that cannot be compared."""


def _attributes(node: Node) -> Hashable:
    """Return what else is done to the result of a call: equal calls with other attributes have other values."""
    return tuple((key, repr(node.meta.get(key))) for key in node.meta.get(ATTRIBUTE_KEYS, ()))


def _arguments(node: Node) -> Hashable:
    schema = getattr(underlying(node.target), "_schema", None)
    if schema is None:
        return (_key(node.args), _key(tuple(sorted(node.kwargs.items()))))
    found: list[Hashable] = []
    for position, argument in enumerate(schema.arguments):
        if position < len(node.args):
            found.append(_key(node.args[position]))
        elif argument.name in node.kwargs or argument.has_default_value():
            found.append(_key(node.kwargs.get(argument.name, argument.default_value)))
        else:
            raise _NoKeyError
    return tuple(found)


def _key(argument: Any) -> Hashable:
    """Return a key that is equal for equal arguments only."""
    if type(argument) is int or type(argument) is bool:
        # Most are, and there are many.
        return (type(argument), argument)
    if isinstance(argument, Node):
        return argument
    if isinstance(argument, list | tuple):
        return (list, *map(_key, argument))
    if type(argument) is float:
        # NaN is not equal to itself, and -0.0 is equal to 0.0.
        return (float, argument.hex())
    if type(argument) is complex:
        return (complex, argument.real.hex(), argument.imag.hex())
    if type(argument) in _PLAIN:
        return (type(argument), argument)
    raise _NoKeyError


def _equal_constants(stored: StoredValues) -> list[list[Node]]:
    """Return groups of inputs, in order, that stand for equal tensors nothing writes to."""
    alike: dict[Hashable, list[tuple[Node, torch.Tensor]]] = {}
    for node, _ in stored.stored():
        tensor = stored.tensor(node)
        if tensor is not None and "val" in node.meta:
            key: Hashable = (stored.kind(node), tensor.dtype, tuple(tensor.shape), tensor.stride(), _sample(tensor))
            alike.setdefault(key, []).append((node, tensor))
    groups: dict[Hashable, list[Node]] = {}
    for form, members in alike.items():
        if len(members) > 1:
            digests: dict[Hashable, bytes] = {}
            for node, tensor in members:
                place = place_of(tensor)
                if place not in digests:
                    digests[place] = _digest(tensor)
                groups.setdefault((form, digests[place]), []).append(node)
    return [group for group in groups.values() if len(group) > 1]


def _sample(tensor: torch.Tensor) -> bytes:
    """Return the bytes of both ends of a tensor, if they can be had without copying all of it."""
    if not tensor.is_contiguous():
        return b""
    return b"".join(end_bytes(tensor, range(tensor.dim())))


def _digest(tensor: torch.Tensor) -> bytes:
    found = blake2b(digest_size=32)
    for block in element_blocks(tensor, range(tensor.dim())):
        found.update(bytes_of(block))
    return found.digest()
