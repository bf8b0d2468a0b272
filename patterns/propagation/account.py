"""Why a tensor has its value: the row of its call, its neighbours, and what another value would cost."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch.fx import Node

from exirkit.ir import Diagnostic, Location, control_flow_call, locate

from .fixpoint import InferredValues
from .problem import Problem, Solution, Use, operator_of
from .solvers import solve


@dataclass(frozen=True)
class Neighbour:
    """A tensor that a call takes, or a use of what it gives.

    Attributes:
        node: Name of the node on the other side.
        operator: Its operator.
        argument: Name of the argument; empty for a result of the graph.
        given: Value of the tensor.
        wanted: Value that the use takes.
        cost: Cost of converting it; nothing if the values are the same, or for a stored tensor.
    """

    node: str
    operator: str
    argument: str
    given: str
    wanted: str
    cost: int

    def text(self) -> str:
        """Return one line about it, without the side that it is on."""
        name = f" as {self.argument}" if self.argument else ""
        same = f"{self.given}" if self.given == self.wanted else f"{self.given}, wanted at {self.wanted}"
        paid = f": converted for {self.cost}" if self.cost else ": stored, converted once"
        return f"%{self.node} ({self.operator}){name}: {same}{'' if self.given == self.wanted else paid}"


@dataclass(frozen=True)
class NodeAccount:
    """Why a node has its value.

    Attributes:
        node: Its name.
        place: Where it comes from.
        value: Its value; None if it can only be as it is.
        row: Where its row stands, `FILE:LINE`; None without one.
        chosen: Whether the solver chose the value.
        takes: What it takes.
        users: Who uses what it gives.
        others: Least cost of everything by value, if this call had it; for a value that was chosen.
    """

    node: str
    place: Location
    value: str | None
    row: str | None
    chosen: bool
    takes: Sequence[Neighbour]
    users: Sequence[Neighbour]
    others: Mapping[str, int]

    def diagnostic(self) -> Diagnostic:
        """Return the account as a note, EK298."""
        notes = [*(f"takes {one.text()}" for one in self.takes), *(f"used by {one.text()}" for one in self.users)]
        if self.chosen and self.value is not None:
            least = self.others[self.value]
            notes += [
                f"with {value} everything would cost {cost}, {cost - least} more than now"
                for value, cost in self.others.items()
                if value != self.value
            ]
        return Diagnostic.of("EK298", self._message(), severity="note", location=self.place, notes=tuple(notes))

    def _message(self) -> str:
        if self.value is None:
            return f"%{self.node} has no value here: it is as it was"
        if self.row is None:
            return f"%{self.node} is at {self.value}, as recorded: no row speaks of it"
        how = "chosen by cost" if self.chosen else "fixed"
        return f"%{self.node} is at {self.value}, {how}: row {self.row}"


def account_of_node(solution: Solution, node: Node) -> NodeAccount:
    """Return why a node has its value.

    Args:
        solution: What was chosen for its graph.
        node: The node.
    """
    problem = solution.problem
    row = problem.rows.get(node)
    takes = [_neighbour(solution, use, use.tensor) for use in problem.demands.get(node, ())]
    tensors = [node] if node in problem.gives else [one for one in node.users if one in problem.gives and row]
    users = [_neighbour(solution, use, use.user) for tensor in tensors for use in problem.uses.get(tensor, ())]
    value = solution.value_of(tensors[0]) if tensors else solution.chosen.get(node)
    chosen = node in solution.chosen
    return NodeAccount(
        node.name,
        locate(node),
        value,
        None if row is None else row.place(),
        chosen,
        takes,
        users,
        _others(problem, solution, node) if chosen else {},
    )


def account_of_fact(values: InferredValues, node: Node) -> Diagnostic:
    """Return why a fact is known of a node as a note, EK298: the row of its call, and what is known of its arguments.

    Args:
        values: What is inferred for its graph.
        node: The node.
    """
    fact, row = values.of(node), values.row(node)
    notes = [f"takes %{one.name} ({operator_of(one)}): {fact_text(values, one)}" for one in node.all_input_nodes]
    if row is not None:
        why = f"row {row.place()}"
    elif node.op != "call_function":
        why = "what the program says of it"
    elif control_flow_call(node) is not None:
        why = "what is true of all branches, and after any number of rounds"
    elif node.target is operator.getitem:
        why = "one of several results"
    else:
        why = "no row speaks of it"
    if fact is None:
        return Diagnostic.of("EK298", f"%{node.name} is not a tensor", severity="note", location=locate(node))
    message = f"%{node.name} is {fact_text(values, node)}: {why}"
    return Diagnostic.of("EK298", message, severity="note", location=locate(node), notes=tuple(notes))


def fact_text(values: InferredValues, node: Node) -> str:
    """Return what is known of a node as text; of several results, of each."""
    fact, text = values.of(node), values.inference.domain.text
    if isinstance(fact, list):
        return "; ".join("not a tensor" if one is None else text(one) for one in fact)
    return "not a tensor" if fact is None else text(fact)


def _neighbour(solution: Solution, use: Use, other: Node) -> Neighbour:
    given, wanted = solution.value_of(use.tensor) or "", solution.value(use.wants)
    cost = 0 if given == wanted else solution.problem.costs[use.tensor]
    return Neighbour(other.name, operator_of(other), use.name, given, wanted, cost)


def _others(problem: Problem, solution: Solution, node: Node) -> dict[str, int]:
    mine = solution.chosen[node]
    return {
        value: solution.cost if value == mine else solve(problem, forced={node: value}).cost
        for value in problem.made.names
    }
