"""A propagation on one graph: which values are fixed, which are to be chosen, what conversions cost; and solutions."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import torch
from torch.fx import Graph, Node

from exirkit.ir import UsageError, delegate_of, operator_name, underlying
from exirkit.patterns.operators.arguments import normalized_arguments
from exirkit.patterns.syntax.terms import Operator

from .compilation import is_covered_kind
from .declaration import Propagation, Transfer
from .fitting import results_in, row_for, slots_of
from .fixpoint import InferredValues
from .model import SAME

Spec = str | Node
"""A value, or the call for which the solver chooses one."""

_UNKNOWN_SIZE = 4_096


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a tensor that can have several values.

    Attributes:
        tensor: The node of the tensor.
        user: The node that uses it.
        name: Name of the argument; empty for a result of the graph.
        index: Its place in a list; the number of the result, for a result of the graph.
        wants: Value that the use takes.
    """

    tensor: Node
    user: Node
    name: str
    index: int | None
    wants: Spec


@dataclass(frozen=True, slots=True)
class Conversion:
    """A tensor that is needed at another value than it is made with.

    Attributes:
        tensor: Its node.
        given: Value that it has.
        wanted: Value that is needed.
        cost: Cost of converting it; nothing for a stored tensor that is converted while the program is lowered.
        uses: The uses that it serves.
    """

    tensor: Node
    given: str
    wanted: str
    cost: int
    uses: tuple[Use, ...]


@dataclass
class Problem:
    """What is to be solved on one graph.

    Attributes:
        made: The propagation.
        gives: Value of each tensor that can have several.
        uses: Uses of these tensors, in graph order.
        rows: Row of each call that has one.
        arguments: All arguments of these calls by name, as they are before anything is converted.
        costs: Cost of converting each tensor.
        facts: What is known of each tensor, as it is before anything is converted.
        call_costs: Costs by value of calls for which one is chosen.
    """

    made: Propagation
    gives: dict[Node, Spec] = field(default_factory=dict)
    uses: dict[Node, list[Use]] = field(default_factory=dict)
    rows: dict[Node, Transfer] = field(default_factory=dict)
    arguments: dict[Node, dict[str, Any]] = field(default_factory=dict)
    costs: dict[Node, int] = field(default_factory=dict)
    call_costs: dict[Node, dict[str, int]] = field(default_factory=dict)
    facts: dict[Node, Any] = field(default_factory=dict)

    @property
    def choices(self) -> list[Node]:
        """Calls for which a value is chosen, in graph order."""
        return [node for node, row in self.rows.items() if row.is_choice]

    @cached_property
    def demands(self) -> dict[Node, list[Use]]:
        """The uses of each user."""
        found: dict[Node, list[Use]] = {}
        for uses in self.uses.values():
            for use in uses:
                found.setdefault(use.user, []).append(use)
        return found


@dataclass
class Solution:
    """Values for all tensors.

    Attributes:
        problem: What was solved.
        chosen: Value of each call for which one was to be chosen.
    """

    problem: Problem
    chosen: Mapping[Node, str]

    def value(self, spec: Spec) -> str:
        """Return the value that is meant."""
        return self.chosen[spec] if isinstance(spec, Node) else spec

    def value_of(self, tensor: Node) -> str | None:
        """Return the value of a tensor; None if it can only be as it is."""
        spec = self.problem.gives.get(tensor)
        return None if spec is None else self.value(spec)

    def leaves(self, node: Node) -> bool:
        """Whether a call with a row is what it was: the row says the first value of everything."""
        row, first = self.problem.rows[node], self.problem.made.first
        return all(self.chosen[node] == first if said == SAME else said == first for said in row.written())

    @cached_property
    def conversions(self) -> tuple[Conversion, ...]:
        """The conversions that are needed, in graph order: one for each tensor and value."""
        return tuple(self._conversions())

    @property
    def paid(self) -> tuple[Conversion, ...]:
        """Conversions that the program makes when it runs."""
        return tuple(one for one in self.conversions if one.cost)

    @property
    def cost(self) -> int:
        """What all conversions and calls cost together."""
        calls = (costs.get(self.chosen[node], 0) for node, costs in self.problem.call_costs.items())
        return sum(one.cost for one in self.conversions) + sum(calls)

    def _conversions(self) -> Iterator[Conversion]:
        for tensor, uses in self.problem.uses.items():
            given = self.value(self.problem.gives[tensor])
            wanted: dict[str, list[Use]] = {}
            for use in uses:
                if (value := self.value(use.wants)) != given:
                    wanted.setdefault(value, []).append(use)
            for value, served in wanted.items():
                yield Conversion(tensor, given, value, self.problem.costs[tensor], tuple(served))


def problem_of(made: Propagation, graph: Graph, stored: Collection[Node] = ()) -> Problem:
    """Return what is to be solved on a graph.

    Args:
        made: The propagation.
        graph: The graph.
        stored: Inputs that are stored tensors which nothing writes to; with the tensors, facts of them are known.

    Raises:
        UsageError: EK295, a cost is not a whole number.
    """
    if made.uses is not None:
        known = stored.get if isinstance(stored, Mapping) else None
        made = made.knowing(_GraphFacts(InferredValues(made.uses, known)))
    return _Reader(made, graph, stored).read()


class _GraphFacts:
    """What is known of the nodes of a graph, and of the results that are recorded of them."""

    def __init__(self, values: InferredValues) -> None:
        self._values = values
        self._results: dict[int, Any] = {}

    def __call__(self, x: Any) -> Any:
        """Return what is known of a node, or of a recorded result."""
        return self._values.of(x) if isinstance(x, Node) else self._results.get(id(x))

    def note(self, node: Node) -> None:
        """Note what is known of the results of a call."""
        value, fact = node.meta.get("val"), self._values.of(node)
        pairs = zip(value, fact, strict=False) if isinstance(value, list | tuple) else [(value, fact)]
        self._results.update({id(one): known for one, known in pairs})


class _Reader:
    def __init__(self, made: Propagation, graph: Graph, stored: Collection[Node]) -> None:
        self._made = made
        self._graph = graph
        self._stored = set(stored) if made.model.stored == "free" else set()
        self._problem = Problem(made)
        # What a call with several results says of all of them.
        self._of_results: dict[Node, Spec] = {}

    def read(self) -> Problem:
        for node in self._graph.nodes:
            if node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                for at, one in enumerate(_flat(node.args)):
                    if one in self._problem.gives:
                        self._use(one, node, "", at, self._made.recorded_value(one))
            else:
                self._give(node, None)
        return self._problem

    def _give(self, node: Node, spec: Spec | None) -> None:
        """Note the value of a tensor, if it can have several: None for the one that it has in the program."""
        if is_covered_kind(node.meta.get("val")) and self._made.covers(node):
            self._problem.facts[node] = self._made.fact(node)
            self._problem.gives[node] = self._made.recorded_value(node) if spec is None else spec
            cost = self._made.answered({"x": node})
            self._problem.costs[node] = 0 if node in self._stored else self._number(self._made.cost, cost, node)

    def _use(self, tensor: Node, user: Node, name: str, index: int | None, wants: Spec) -> None:
        self._problem.uses.setdefault(tensor, []).append(Use(tensor, user, name, index, wants))

    def _call(self, node: Node) -> None:
        if node.target is operator.getitem:
            source: Any = node.args[0]
            self._give(node, self._of_results.get(source) if isinstance(source, Node) else None)
            return
        row = self._delegate_row(node)
        if row is not None:
            self._delegate(node, row)
            return
        op = underlying(node.target)
        named: dict[str, Any] = {}
        # Of most operators no row speaks, and their arguments need not be found by name.
        if op in self._made.rows_of:
            named = normalized_arguments(node)
            if isinstance(self._made.facts, _GraphFacts):
                self._made.facts.note(node)
            row = row_for(self._made, op, named, node.meta.get("val"))
        if row is None:
            for one in node.all_input_nodes:
                if one in self._problem.gives:
                    self._use(one, node, "", None, self._made.recorded_value(one))
            self._give(node, None)
        else:
            self._fitted(node, op, row, named)

    def _fitted(self, node: Node, op: Operator, row: Transfer, named: dict[str, Any]) -> None:
        """Note what a row says of a call."""
        self._problem.rows[node] = row
        self._problem.arguments[node] = named
        first = self._made.first
        for slot in slots_of(op, named):
            if slot.tensor in self._problem.gives:
                said = row.of_argument(slot.name, first)
                self._use(slot.tensor, node, slot.name, slot.index, node if said == SAME else said)
        said = row.model.result or first
        spec: Spec = node if said == SAME else said
        if row.cost:
            value = results_in(node.meta.get("val"))
            names = self._made.answered({**named, "result": value[0] if value else None})
            self._problem.call_costs[node] = {value: self._number(one, names, node) for value, one in row.cost.items()}
        self._of_results[node] = spec
        self._give(node, spec)

    def _delegate_row(self, node: Node) -> Transfer | None:
        """Return the row of a call of a delegate."""
        found = delegate_of(node) if self._made.delegates else None
        if found is None:
            return None
        specs = {one.key: one.value.decode(errors="replace") for one in found.compile_specs}
        return next((row for row in self._made.delegates if _is_compiled_for(row.model.delegates, specs)), None)

    def _delegate(self, node: Node, row: Transfer) -> None:
        self._problem.rows[node] = row
        said = row.model.args
        for index, one in enumerate(node.args[1:], start=1):
            if isinstance(one, Node) and one in self._problem.gives:
                self._use(one, node, "", index, node if said == SAME else str(said))
        result = row.model.result or self._made.first
        self._of_results[node] = node if result == SAME else result
        self._give(node, self._of_results[node])

    def _number(self, expression: Any, names: Mapping[str, Any], node: Node) -> int:
        """Return a cost; sizes that vary count as what the model was exported with."""
        cost = expression.value(names)
        if isinstance(cost, torch.SymInt):
            cost = int(cost.node.hint) if cost.node.has_hint() else _UNKNOWN_SIZE
        if type(cost) is not int or cost < 0:
            raise UsageError(
                expression.text.diagnostic("EK295", f"the cost at %{node.name} is {cost!r}, not a whole number from 0")
            )
        return cost


def _is_compiled_for(patterns: Mapping[str, str], specs: Mapping[str, str]) -> bool:
    return all(key in specs and fnmatchcase(specs[key].lower(), pattern) for key, pattern in patterns.items())


def _flat(args: Any) -> Iterator[Any]:
    """Yield the results of a graph, in order."""
    for one in args:
        if isinstance(one, list | tuple):
            yield from _flat(one)
        else:
            yield one


def operator_of(node: Node) -> str:
    """Return the name of the operator that a node calls, or what else the node is."""
    return operator_name(node.target) or (node.op if node.op != "call_function" else str(node.target))
