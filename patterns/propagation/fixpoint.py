"""What an analysis knows of the tensors of one graph: inferred when it is asked for, with loops until nothing grows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from exirkit.ir import ControlFlowCall, attribute_of, control_flow_call, results_of_graph, underlying, value_of
from exirkit.patterns.functions.ranges import Range
from exirkit.patterns.operators.arguments import normalized_arguments

from .compilation import is_covered_kind
from .inference import Claim, Inference

StoredTensor = Callable[[Node], torch.Tensor | None]

TOLD_KEY = "value_range"
"""Entry of `node.meta` of an input: between which numbers its elements are promised to lie."""

_MOST_ROUNDS = 200


class InferredValues:
    """Facts of the nodes of a graph, which may be edited meanwhile.

    A fact is inferred once for a node and the arguments that it has. It stays true while a rule replaces what is before
    it by something equal.

    Args:
        inference: The analysis.
        stored: Returns the tensor behind a node that is known while the program is lowered, or None.
        entries: Facts of inputs of the graph, if it is a body of control flow.
        graph: The body.
    """

    def __init__(
        self,
        inference: Inference,
        stored: StoredTensor | None = None,
        entries: Mapping[Node, Any] | None = None,
        graph: Graph | None = None,
    ) -> None:
        self.inference = inference
        self.graph = graph
        self._stored = stored or (lambda node: None)
        self._entries = dict(entries or {})
        self._known: dict[Node, tuple[Any, Any, Any]] = {}
        self._rows: dict[Node, Claim] = {}
        # What bodies of control flow begin with, by the call.
        self._bodies: dict[Node, list[InferredValues]] = {}

    def of(self, node: Node) -> Any:
        """Return what is known of a node: a fact, a list of facts for several results, or None for no tensor."""
        pending = [node]
        while pending:
            one = pending[-1]
            if self._is_known(one):
                pending.pop()
                continue
            sources = one._input_nodes if self._depends(one) else ()
            waiting = [source for source in sources if not self._is_known(source)]
            if waiting:
                pending += waiting
                continue
            self._known[one] = (one._args, one._kwargs, self._inferred(one))
            pending.pop()
        return self._known[node][2]

    def row(self, node: Node) -> Claim | None:
        """Return the row that speaks of a call that was asked for."""
        self.of(node)
        return self._rows.get(node)

    def bodies(self, node: Node) -> Sequence[InferredValues]:
        """Return what is known inside of the graphs that a call of control flow runs, in the order of the graphs."""
        self.of(node)
        return self._bodies.get(node, ())

    def _is_known(self, node: Node) -> bool:
        known = self._known.get(node)
        return known is not None and known[0] is node._args and known[1] is node._kwargs

    def _fact(self, node: Node) -> Any:
        return self._known[node][2]

    # One node

    def _depends(self, node: Node) -> bool:
        """Whether what is known of a node depends on what is known of its arguments."""
        if node.op != "call_function" or node.target is operator.getitem or control_flow_call(node) is not None:
            return True
        return underlying(node.target) in self.inference.rows_of

    def _inferred(self, node: Node) -> Any:
        value = node.meta.get("val")
        if node.op in ("placeholder", "get_attr"):
            return self._given(node, value)
        if node.op != "call_function":
            return None
        if node.target is operator.getitem:
            found = self._fact(node.args[0])  # type: ignore[arg-type]
            index = node.args[1]
            is_part = isinstance(found, list) and isinstance(index, int) and -len(found) <= index < len(found)
            return found[index] if is_part else self._unknown(value)
        call = control_flow_call(node)
        if call is not None:
            return self._control_flow(call)
        op = underlying(node.target)
        if op not in self.inference.rows_of:
            return self._unknown(value)
        named = normalized_arguments(node)
        known = {id(one): self._fact(one) for one in node._input_nodes if is_covered_kind(one.meta.get("val"))}
        results = list(value) if isinstance(value, list | tuple) else [value]
        row, facts = self.inference.infer(op, named, [one if is_covered_kind(one) else None for one in results], known)
        if row is not None:
            self._rows[node] = row
        return facts if isinstance(value, list | tuple) else facts[0]

    def _given(self, node: Node, value: Any) -> Any:
        if node in self._entries:
            return self._entries[node]
        if not is_covered_kind(value):
            return None
        told = node.meta.get(TOLD_KEY) if self.inference.model.values == "ranges" else None
        if told is not None:
            return told
        tensor = attribute_of(node) if node.op == "get_attr" else self._stored(node)
        if isinstance(tensor, torch.Tensor) and tensor.numel() * tensor.element_size() <= self._limit:
            return self.inference.domain.of_tensor(tensor)
        return self._unknown(value)

    @property
    def _limit(self) -> int:
        return self.inference.model.stored_nbytes

    def _unknown(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._unknown(one) for one in value]
        return self.inference.domain.unknown(value) if is_covered_kind(value) else None

    # Control flow

    def _control_flow(self, call: ControlFlowCall) -> Any:
        """Infer the results of a call of graphs: of branches, what is true of all; of loops, what no round changes."""
        carried = [self._argument(one) for one in call.carried]
        around = [*map(self._argument, call.sliced), *map(self._argument, call.shared)]
        if call.kind == "cond":
            bodies = [self._body(graph.graph, [*carried, *around]) for graph in call.subgraphs]
            results = self._of_branches(bodies)
        else:
            carried, bodies, results = self._of_loop(call, carried, around)
            results = [*carried, *results[len(carried) :]]
        self._bodies[call.node] = bodies
        value = call.node.meta.get("val")
        if not isinstance(value, list | tuple):
            return results[0]
        known = zip(results, value, strict=False)
        return [fact if is_covered_kind(one) else None for fact, one in known]

    def _of_loop(
        self, call: ControlFlowCall, carried: list[Any], around: list[Any]
    ) -> tuple[list[Any], list[InferredValues], list[Any]]:
        values = [value_of(one) for one in call.carried]
        for number in range(_MOST_ROUNDS):
            bodies = [self._body(graph.graph, [*carried, *around]) for graph in call.subgraphs]
            results = self._results(bodies[call.subgraphs.index(call.body)])
            triples = zip(values, carried, results, strict=False)
            grown = [self._grown(value, before, after, number) for value, before, after in triples]
            if grown == carried:
                return carried, bodies, results
            carried = grown
        raise RuntimeError(f"{self.inference.model.id}: facts of a loop grow without end")

    def _grown(self, value: Any, before: Any, after: Any, number: int) -> Any:
        if not is_covered_kind(value) or before is None or after is None:
            return before
        domain = self.inference.domain
        if number < self.inference.model.widen:
            return domain.joined(before, after)
        return domain.widened(before, after, value)

    def _of_branches(self, bodies: Sequence[InferredValues]) -> list[Any]:
        join = self.inference.domain.joined
        each = [self._results(body) for body in bodies]
        return [_folded(join, facts) for facts in zip(*each, strict=True)]

    def _body(self, graph: Graph, facts: Sequence[Any]) -> InferredValues:
        inputs = graph.find_nodes(op="placeholder")
        known = {node: fact for node, fact in zip(inputs, facts, strict=False) if fact is not None}
        return InferredValues(self.inference, entries=known, graph=graph)

    def _results(self, body: InferredValues) -> list[Any]:
        assert body.graph is not None
        return [body.of(one) if isinstance(one, Node) else None for one in results_of_graph(body.graph)]

    def _argument(self, one: Any) -> Any:
        return self._fact(one) if isinstance(one, Node) and not isinstance(self._fact(one), list) else None


def _folded(join: Callable[[Any, Any], Any], facts: Sequence[Any]) -> Any:
    made = facts[0]
    for one in facts[1:]:
        made = None if made is None or one is None else join(made, one)
    return made


def tell_ranges(program: ExportedProgram, ranges: Sequence[Range | None]) -> None:
    """Promise between which numbers the elements of inputs lie, in the order in which the program takes them.

    Args:
        program: A program; inputs that it stores are not counted.
        ranges: A range, or None for an input of which nothing is promised.
    """
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    for name, told in zip(program.graph_signature.user_inputs, ranges, strict=False):
        if told is not None and isinstance(name, str) and name in nodes:
            nodes[name].meta[TOLD_KEY] = told


def told_ranges(program: ExportedProgram) -> list[Range | None]:
    """Return what is promised of the inputs of a program, in the order in which it takes them."""
    nodes = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    names = program.graph_signature.user_inputs
    return [nodes[name].meta.get(TOLD_KEY) if isinstance(name, str) and name in nodes else None for name in names]


def facts_of(values: InferredValues, graph: Graph) -> Iterator[tuple[Node, Any]]:
    """Yield the nodes of a graph that stand for one tensor, with what is known of them."""
    for node in graph.nodes:
        if node.op != "output" and is_covered_kind(node.meta.get("val")):
            yield node, values.of(node)
