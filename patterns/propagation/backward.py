"""What users need of the tensors of one graph: from its results backwards, through loops until nothing grows."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from exirkit.ir import ControlFlowCall, Diagnostic, GraphEditor, control_flow_call, locate, results_of_graph, underlying
from exirkit.patterns.engine.graph_builder import GraphBuilder, dialect_of
from exirkit.patterns.functions.ranges import Range, hull, widest
from exirkit.patterns.operators.arguments import normalized_arguments
from exirkit.patterns.operators.in_place import calls_by_target
from exirkit.patterns.syntax.constant_names import FACTS

from .compilation import is_covered_kind
from .demands import Demands, Need, Shorter
from .domains import RANGES
from .fitting import is_tensor, slots_of
from .inference import Answers
from .problem import operator_of

_MOST_ROUNDS = 200


class NeededRanges:
    """What is needed of the nodes of a graph, as it is.

    Args:
        made: The analysis.
        graph: The graph.
        results: What is needed of its results, where that is known; everything where it is not.
    """

    def __init__(self, made: Demands, graph: Graph, results: Mapping[int, Range] | None = None) -> None:
        self.made = made
        self.graph = graph
        self._needs: dict[Node, Range] = {}
        self._rows: dict[Node, Need] = {}
        self._parts: dict[Node, dict[int, Range]] = {}
        self._bodies: dict[Node, list[NeededRanges]] = {}
        for at, one in enumerate(results_of_graph(graph)):
            self._add(one, None if results is None else results.get(at))
        for node in reversed(graph.nodes):
            if node.op == "call_function":
                self._visit(node)

    def of(self, node: Node) -> Range | None:
        """Return what is needed of a node; None if nothing uses it, or if it is not one tensor."""
        return self._needs.get(node)

    def row(self, node: Node) -> Need | None:
        """Return the row that says what a call needs of its arguments."""
        return self._rows.get(node)

    def bodies(self, node: Node) -> Sequence[NeededRanges]:
        """Return what is needed inside of the graphs that a call of control flow runs, in the order of the graphs."""
        return self._bodies.get(node, ())

    def shorter(self) -> list[tuple[Node, Shorter]]:
        """Return which calls can be replaced, in graph order."""
        found = []
        for node in self.graph.nodes:
            need, op = self._needs.get(node), underlying(node.target)
            if node.op != "call_function" or need is None or op not in self.made.shorter_of:
                continue
            one = self.made.shorter_call(op, normalized_arguments(node), node, need)
            if one is not None:
                found.append((node, one))
        return found

    def _add(self, node: Any, need: Range | None) -> None:
        """Note that a use needs something of a tensor; everything if it is not said what."""
        if not isinstance(node, Node) or not is_tensor(node):
            return
        need = widest(node.meta["val"].dtype) if need is None else need
        known = self._needs.get(node)
        self._needs[node] = need if known is None else hull(known, need)

    def _visit(self, node: Node) -> None:
        if node.target is operator.getitem and isinstance(node.args[0], Node) and isinstance(node.args[1], int):
            if node in self._needs:
                self._parts.setdefault(node.args[0], {})[node.args[1]] = self._needs[node]
            return
        call = control_flow_call(node)
        op = underlying(node.target)
        if call is not None and call.kind in ("cond", "while_loop"):
            self._control_flow(call)
        elif op in self.made.rows_of:
            self._call(node, op)
        else:
            for source in node.all_input_nodes:
                self._add(source, None)

    def _call(self, node: Node, op: Any) -> None:
        named, result = normalized_arguments(node), node.meta.get("val")
        need = self._of_results(node, op)
        first = result[0] if isinstance(result, list | tuple) and result else result
        row: Need | None = None
        needs: dict[tuple[str, int | None], Range] = {}
        if need is not None and is_covered_kind(first):
            row, needs = self.made.needs(op, named, first, need)
        if row is not None:
            self._rows[node] = row
        for slot in slots_of(op, named):
            self._add(slot.tensor, needs.get((slot.name, slot.index)))

    def _of_results(self, node: Node, op: Any) -> Range | None:
        """Return what is needed of the result that rows speak of; None if another one is needed as well."""
        if not isinstance(node.meta.get("val"), list | tuple):
            return self._needs.get(node)
        parts = self._parts.get(node, {})
        if any(user.target is not operator.getitem for user in node.users) or not parts:
            return None
        if str(op._schema.returns[0].type) == "List[Tensor]":
            return hull(*parts.values())
        return parts.get(0) if set(parts) == {0} else None

    # Control flow

    def _control_flow(self, call: ControlFlowCall) -> None:
        """Say what a call needs of its operands: of branches, what any needs; of loops, what any round needs."""
        parts = dict(self._parts.get(call.node, {}))
        if call.node in self._needs:
            parts[0] = self._needs[call.node]
        if call.kind == "while_loop":
            parts, bodies = self._of_loop(call, parts)
        else:
            bodies = [NeededRanges(self.made, graph.graph, parts) for graph in call.subgraphs]
        self._bodies[call.node] = bodies
        operands = [*call.carried, *call.sliced, *call.shared]
        for at, operand in enumerate(operands):
            for need in (one for body in bodies for one in body._of_input(at)):
                self._add(operand, need)
            if at < len(call.carried):
                self._add(operand, parts.get(at))
        for source in call.node.all_input_nodes:
            if all(source is not operand for operand in operands):
                self._add(source, None)

    def _of_loop(self, call: ControlFlowCall, parts: dict[int, Range]) -> tuple[dict[int, Range], list[NeededRanges]]:
        values = {
            at: one.meta["val"] for at, one in enumerate(call.carried) if isinstance(one, Node) and is_tensor(one)
        }
        needs = {at: parts.get(at, widest(value.dtype)) for at, value in values.items()}
        for number in range(_MOST_ROUNDS):
            bodies = [
                NeededRanges(self.made, graph.graph, needs if graph is call.body else None) for graph in call.subgraphs
            ]
            grown = {
                at: self._grown(values[at], before, [one for body in bodies for one in body._of_input(at)], number)
                for at, before in needs.items()
            }
            if grown == needs:
                return needs, bodies
            needs = grown
        raise RuntimeError(f"{self.made.model.id}: what a loop needs grows without end")

    def _grown(self, value: torch.Tensor, before: Range, needs: Sequence[Range], number: int) -> Range:
        after = hull(before, *needs)
        return after if number < self.made.model.widen else RANGES.widened(before, after, value)

    def _of_input(self, at: int) -> list[Range]:
        """Return what is needed of an input of the graph: nothing, or one range."""
        inputs = self.graph.find_nodes(op="placeholder")
        need = self._needs.get(inputs[at]) if at < len(inputs) else None
        return [] if need is None else [need]


def account_of_need(needed: NeededRanges, node: Node) -> Diagnostic:
    """Return what is needed of a node, and by which users, as a note, EK298.

    Args:
        needed: What is needed of its graph.
        node: The node.
    """
    need = needed.of(node)
    notes = []
    for user in node.users:
        row = needed.row(user)
        why = f"row {row.place()}" if row is not None else "it needs its arguments as they are"
        of_user = needed.of(user)
        also = "" if of_user is None else f", of which {of_user.text()} is needed"
        notes.append(f"used by %{user.name} ({operator_of(user)}){also}: {why}")
    message = f"%{node.name}: nothing needs it" if need is None else f"of %{node.name} is needed: {need.text()}"
    shorter = dict(needed.shorter()).get(node)
    if shorter is not None:
        message += f"; it can be replaced: row {shorter.place()}"
    return Diagnostic.of("EK298", message, severity="note", location=locate(node), notes=tuple(notes))


def apply_shorter(editor: GraphEditor, needed: NeededRanges) -> int:
    """Replace the calls of a graph of whose results not all is needed.

    All of them at once is right: what replaces a call gives what is needed of it for all arguments, and rows of calls
    say what they need of theirs.

    Args:
        editor: Editor of the graph, inside a transaction.
        needed: What is needed of the graph as it is.

    Returns:
        How many calls were replaced.

    Raises:
        ExpressionError: A program of the analysis cannot be run for a call.
    """
    found = needed.shorter()
    wrap, is_edge = dialect_of(calls_by_target(editor.graph))
    for node, one in found:
        given = [each for each in node.all_input_nodes if is_covered_kind(each.meta.get("val"))]
        builder = GraphBuilder(
            editor, node, [node], wrap=wrap, lifts_numbers=is_edge, name=f"{node.name}_number", sizes=given
        )
        names = {**normalized_arguments(node), FACTS: Answers({})}
        (result,) = one.call.run(names, builder)
        editor.replace(node, builder.node_of(result, node.meta["val"]))
        editor.erase_unused(node)
    return len(found)
