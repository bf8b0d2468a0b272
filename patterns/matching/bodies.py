"""Matching calls of control flow: their operands in any order, and what their bodies compute.

The order of operands means nothing: bodies are given them under other names. So named operands are sought among all of
a list, and what is carried keeps its results with it. Lowering makes operands of the numbers in bodies: those that a
pattern does not name are numbers of the bodies again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import getitem
from typing import TYPE_CHECKING, Any

from torch.fx import Graph, Node

from exirkit.ir import control_flow_call, graph_argument, is_pure, results_of_graph, same_argument
from exirkit.patterns.functions.graph import GraphFacts
from exirkit.patterns.matching.arguments import constant_behind
from exirkit.patterns.matching.state import Matcher, State, Then
from exirkit.patterns.operators.arguments import behind
from exirkit.patterns.operators.control_flow import BodyBuilder, ControlFlow, distributed
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.terms import Applied, Body, Call, Parameter, Splat, Variable
from exirkit.patterns.syntax.terms import Sequence as ListTerm
from exirkit.patterns.types.variable import admit

if TYPE_CHECKING:
    from exirkit.patterns.matching.matcher import PatternCompiler

_MOST_NAMED = 3
_MOST_SHOWN = 4
_MOST_ORDERS = 720


def order_key(term: Call) -> str:
    """Return the key under which a match has the places of the results of a call, in the order of the pattern."""
    return f"$order:{id(term)}"


@dataclass(frozen=True, eq=False)
class MatchedBody:
    """A part of a graph: what computes results from inputs, and from nothing else.

    Attributes:
        returned: The results, nodes or plain values.
        inputs: Nodes whose values are given.
        nodes: What is computed, in order.
        numbers: Inputs that stand for constants of the graph around, with these.
    """

    returned: tuple[Any, ...]
    inputs: tuple[Node, ...]
    nodes: tuple[Node, ...]
    numbers: tuple[tuple[Node, Node], ...] = ()

    @property
    def values(self) -> list[Any]:
        """What is recorded of the results."""
        return [one.meta.get("val") if isinstance(one, Node) else one for one in self.returned]

    def results(self, builder: BodyBuilder, args: Sequence[Any]) -> list[Any]:
        """Return the results for arguments; the calls are made again."""
        copied: dict[Node, Any] = dict(zip(self.inputs, args, strict=True))
        graph_builder: Any = builder
        copied |= {inner: graph_builder.around(outer) for inner, outer in self.numbers}
        copy = graph_builder.copy
        for node in self.nodes:
            copied[node] = copy(node, copied)
        return [copied[one] if isinstance(one, Node) else one for one in self.returned]

    def is_same(self, other: MatchedBody) -> bool:
        """Whether another part makes the same calls."""
        if len(self.inputs) != len(other.inputs) or len(self.nodes) != len(other.nodes):
            return False
        known = dict(zip(self.inputs, other.inputs, strict=True))
        standing = {outer: inner for inner, outer in other.numbers}
        known |= {inner: standing[outer] for inner, outer in self.numbers if outer in standing}
        for one, another in zip(self.inputs, other.inputs, strict=True):
            if str(one.meta.get("val")) != str(another.meta.get("val")):
                return False
        return len(self.returned) == len(other.returned) and all(
            _is_same(one, another, known) for one, another in zip(self.returned, other.returned, strict=True)
        )

    def __str__(self) -> str:
        called = [one.target for one in self.nodes if one.op == "call_function" and one.target is not getitem]
        names = [name_of(one) if hasattr(one, "_schema") else str(one) for one in called]
        more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
        return f"{', '.join(names[:_MOST_SHOWN])}{more}" if names else "no calls"


def _is_same(one: Any, other: Any, known: dict[Node, Node]) -> bool:
    if isinstance(one, Node):
        if one in known:
            return known[one] is other
        if not isinstance(other, Node) or one.op != other.op:
            return False
        if one.op == "get_attr":
            mine, theirs = graph_argument(one), graph_argument(other)
            return mine is not None and theirs is not None and _is_same_graph(mine.graph, theirs.graph)
        if one.target is not other.target:
            return False
        if one.op != "call_function" or not _is_same((one.args, one.kwargs), (other.args, other.kwargs), known):
            return False
        known[one] = other
        return True
    if isinstance(one, list | tuple):
        return isinstance(other, list | tuple) and len(one) == len(other) and all(
            _is_same(left, right, known) for left, right in zip(one, other, strict=True)
        )  # fmt: skip
    if isinstance(one, Mapping):
        return isinstance(other, Mapping) and one.keys() == other.keys() and all(
            _is_same(one[key], other[key], known) for key in one
        )  # fmt: skip
    return same_argument(one, other)


def _is_same_graph(one: Graph, other: Graph) -> bool:
    """Whether two graphs of control flow make the same calls."""
    parts = [
        part_of(results_of_graph(graph), list(graph.find_nodes(op="placeholder")), (), {}) for graph in (one, other)
    ]
    mine, theirs = parts
    return isinstance(mine, MatchedBody) and isinstance(theirs, MatchedBody) and mine.is_same(theirs)


def part_of(
    returned: Sequence[Any], inputs: Sequence[Node], demanded: Sequence[Node], numbers: Mapping[Node, Node]
) -> MatchedBody | Node:
    """Return the part of a graph between inputs and results.

    Instead of it, what it needs as well, or what is demanded and it does not need.

    Args:
        returned: The results.
        inputs: What is given.
        demanded: Those of the inputs that it has to use.
        numbers: Constants of the graph around by what stands for them; what is not given of them may be used as well.
    """
    given = frozenset(inputs)
    used: dict[Node, Node] = {}
    found: dict[Node, None] = {}
    pending = [one for one in returned if isinstance(one, Node)]
    met: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in given:
            met.add(node)
        elif node in numbers:
            used[node] = numbers[node]
        elif node not in found:
            if (node.op != "call_function" and graph_argument(node) is None) or not is_pure(node):
                return node
            found[node] = None
            pending += node.all_input_nodes
    for node in demanded:
        if node not in met:
            return node
    return MatchedBody(tuple(returned), tuple(inputs), tuple(sorted(found)), tuple(used.items()))


@dataclass
class _Met:
    """A call that is being matched: its operands and the graphs of its bodies, and the order of its operands.

    Attributes:
        orders: By list, the places of those of its operands that the pattern names.
    """

    node: Node
    predicate: Any
    lists: tuple[tuple[Any, ...], ...]
    graphs: tuple[Graph, ...]
    orders: tuple[tuple[int, ...], ...] = ()

    def inputs(self, graph: Graph) -> list[Node]:
        """Return the placeholders of a body in the order of the operands."""
        placeholders, start, found = list(graph.find_nodes(op="placeholder")), 0, list[Node]()
        for order, operands in zip(self.orders, self.lists, strict=True):
            found += [placeholders[start + one] for one in order]
            start += len(operands)
        return found

    def numbers(self, graph: Graph, facts: GraphFacts) -> dict[Node, Node]:
        """Return constants of no dimension that every body is handed, by what stands for them in one."""
        last = self.lists[-1]
        placeholders = list(graph.find_nodes(op="placeholder"))
        handed = zip(placeholders[len(placeholders) - len(last) :], last, strict=True)
        known = _numbers(facts)
        return {inner: known.get(outer, outer) for inner, outer in handed if _is_number(outer, facts)}

    def returned(self, graph: Graph, op: ControlFlow, name: str) -> list[Any]:
        """Return the results of a body in the order of the operands that they stand for."""
        found = list(results_of_graph(graph))
        return found if name == op.single else [found[one] for one in self.order(op, len(found))]

    def order(self, op: ControlFlow, count: int) -> list[int]:
        """Return the places of results in the order of the operands that they stand for."""
        carried = list(self.orders[0]) if op.carried else []
        return [*carried, *range(len(carried), count)]


class _FactsInBody:
    """Facts about nodes of a body: constants are those that it is handed."""

    def __init__(self, facts: GraphFacts, numbers: Mapping[Node, Node]) -> None:
        self._facts = facts
        self.numbers = numbers

    def is_constant(self, x: Any) -> bool:
        """Whether the value of a node is known."""
        return x in self.numbers

    def value(self, x: Any) -> Any:
        """Return the tensor behind a constant."""
        return self._facts.value(self.numbers[x]) if x in self.numbers else None

    def is_kind(self, x: Any, kind: str) -> bool:
        """Whether a node is what a qualifier says."""
        return x in self.numbers and self._facts.is_kind(self.numbers[x], kind)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._facts, name)


def _numbers(facts: GraphFacts) -> Mapping[Node, Node]:
    return facts.numbers if isinstance(facts, _FactsInBody) else {}


def _parts_of_run(compiler: PatternCompiler, term: Call, holder: list[_Met], then: Then) -> Then:
    """Match predicate, operands and bodies, in this order."""
    op = term.op
    chain = then
    for index in reversed(range(len(op.bodies))):
        chain = _compile_body(compiler, term, index, holder, chain)
    for index in reversed(range(len(op.lists))):
        matcher = compiler.term(term.arguments[op.lists[index]], chain)
        chain = _of_list(matcher, holder, index)
    return chain if op.kind != "cond" else _of_predicate(compiler.term(term.arguments["pred"], chain), holder)


def compile_run(compiler: PatternCompiler, term: Call, then: Then) -> Matcher:
    """Match a call of control flow."""
    op, key, name = term.op, id(term), term.name
    holder: list[_Met] = []
    chain = _parts_of_run(compiler, term, holder, then)

    def met_in_some_order(met: _Met, state: State) -> bool:
        is_tried = False
        for orders in _orders(term, op, met, state.facts):
            is_tried = True
            met.orders = orders
            state.names[order_key(term)] = met.order(op, len(met.node.meta.get("val") or ()))
            holder.append(met)
            try:
                if chain(state):
                    return True
            finally:
                holder.pop()
        state.names.pop(order_key(term), None)
        if not is_tried:
            given = [one for listed in met.lists for one in listed]
            state.fail("as many operands as the pattern names", given, term.arguments[op.lists[-1]])
        return False

    def match(value: Any, state: State) -> bool:
        met = _met(value, op) if isinstance(value, Node) and value not in state.nodes else None
        if met is None:
            is_run = isinstance(value, Node) and value.target is op.target
            return state.fail(_NO_EFFECTS if is_run else f"{op} is expected", value, term)
        state.nodes.append(value)
        state.terms[key] = value
        if name is not None:
            state.names[name] = value
        if (name is None or compiler.guards_hold((name,), state)) and met_in_some_order(met, state):
            return True
        if name is not None:
            del state.names[name]
        del state.terms[key]
        state.nodes.pop()
        return False

    return match


_NO_EFFECTS = "bodies without effects"


def _met(node: Node, op: ControlFlow) -> _Met | None:
    call = control_flow_call(node) if node.op == "call_function" and node.target is op.target else None
    if call is None or not is_pure(node):
        return None
    graphs = tuple(one.graph for one in call.subgraphs)
    roles = {"operands": call.shared, "shared": call.shared, "carried": call.carried, "sliced": call.sliced}
    return _Met(node, call.predicate, tuple(tuple(roles[one]) for one in op.lists), graphs)


def _orders(term: Call, op: ControlFlow, met: _Met, facts: GraphFacts) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield the orders of operands in which those that the pattern names stand where it names them.

    Numbers that the bodies are handed and that the pattern does not name are not operands: they are in the bodies.
    """
    choices: list[list[tuple[int, ...]]] = []
    for name, operands in zip(op.lists, met.lists, strict=True):
        given = term.arguments[name]
        places = range(len(operands))
        numbers = {one for one in places if _is_number(operands[one], facts)} if name == op.lists[-1] else set()
        if not isinstance(given, ListTerm):
            choices.append([tuple(one for one in places if one not in numbers)])
            continue
        splat = next((at for at, one in enumerate(given.items) if isinstance(one, Splat)), None)
        named = len(given.items) - (splat is not None)
        if len(operands) < named or named > _MOST_NAMED:
            return
        front = named if splat is None else splat
        made: list[tuple[int, ...]] = []
        for chosen in itertools.islice(itertools.permutations(places, named), _MOST_ORDERS):
            rest = [one for one in places if one not in chosen and one not in numbers]
            if not rest or splat is not None:
                made.append((*chosen[:front], *rest, *chosen[front:]))
        choices.append(made)
    yield from itertools.product(*choices)


def _is_number(operand: Any, facts: GraphFacts) -> bool:
    return isinstance(operand, Node) and constant_behind(operand, facts) is not None


def _of_list(matcher: Matcher, holder: list[_Met], index: int) -> Then:
    def match(state: State) -> bool:
        met = holder[-1]
        return matcher([met.lists[index][one] for one in met.orders[index]], state)

    return match


def _of_predicate(matcher: Matcher, holder: list[_Met]) -> Then:
    return lambda state: matcher(holder[-1].predicate, state)


def _compile_body(compiler: PatternCompiler, term: Call, index: int, holder: list[_Met], then: Then) -> Then:
    given = term.arguments[term.op.bodies[index]]
    if isinstance(given, Variable):
        return _whole_body(compiler, term.op, given, index, holder, then)
    assert isinstance(given, Body), "the parser lets nothing else be a body"
    return _described_body(compiler, term.op, given, index, holder, then)


def _whole_body(
    compiler: PatternCompiler, op: ControlFlow, given: Variable, index: int, holder: list[_Met], then: Then
) -> Then:
    name = op.bodies[index]

    def whole(state: State) -> bool:
        met = holder[-1]
        graph = met.graphs[index]
        found = part_of(met.returned(graph, op, name), met.inputs(graph), (), met.numbers(graph, state.facts))
        if isinstance(found, Node):
            return state.fail(f"{name} reads nothing but its operands", found, given)
        return _bind(compiler, given, found, state, then)

    return whole


def _described_body(
    compiler: PatternCompiler, op: ControlFlow, given: Body, index: int, holder: list[_Met], then: Then
) -> Then:
    name = op.bodies[index]
    outside: list[tuple[list[Node], GraphFacts]] = []
    keys = [one.key for one in given.parameters]

    def leave(state: State) -> bool:
        """Go on outside of the body; its nodes and parameters are not those of the graph around."""
        inside, around = (state.nodes, state.facts), outside.pop()
        state.nodes, state.facts = around
        bound = {key: state.names.pop(key) for key in (*keys, given.scope)}
        if then(state):
            return True
        outside.append(around)
        state.nodes, state.facts = inside
        state.names.update(bound)
        return False

    result = compiler.without_forms().term(given.result, leave)
    is_list = isinstance(given.result, ListTerm) or (
        isinstance(given.result, Applied) and not compiler.gives_one(given.result)
    )

    def match(state: State) -> bool:
        met = holder[-1]
        graph = met.graphs[index]
        inputs = met.inputs(graph)
        first, last = [one.name for one in given.first], [one.name for one in given.last]
        places = distributed(len(inputs), first, given.rest.name if given.rest else None, last)
        returned = met.returned(graph, op, name)
        if places is None or (not is_list and len(returned) != 1):
            return state.fail(f"{name} has {len(inputs)} parameters and {len(returned)} results", None, given)
        for key, place in zip(keys, places, strict=True):
            state.names[key] = [inputs[one] for one in place] if isinstance(place, list) else inputs[place]
        state.names[given.scope] = graph
        outside.append((state.nodes, state.facts))
        state.nodes, state.facts = [], _FactsInBody(state.facts, met.numbers(graph, state.facts))
        if result(returned if is_list else returned[0], state):
            return True
        state.nodes, state.facts = outside.pop()
        for key in (*keys, given.scope):
            state.names.pop(key, None)
        return False

    return match


def compile_parameter(compiler: PatternCompiler, term: Parameter, then: Then) -> Matcher:
    """Match what a body is given, or for `*rest` all that it stands for."""

    def match(value: Any, state: State) -> bool:
        known = state.names[term.key]
        if isinstance(known, list):
            is_same = isinstance(value, list | tuple) and len(value) == len(known) and all(map(_is_it, value, known))
        else:
            is_same = _is_it(value, known)
        if not is_same:
            what = "nothing" if known == [] else ", ".join(map(str, known if isinstance(known, list) else [known]))
            return state.fail(f"{term.name}, which stands for {what}", value, term)
        return then(state)

    return match


def _is_it(value: Any, known: Node) -> bool:
    # A body cannot return what it is given, but copies of it.
    return isinstance(value, Node) and (value is known or behind(value) is known)


def compile_applied(compiler: PatternCompiler, term: Applied, then: Then) -> Matcher:
    """Match what a body variable stands for: the part of a body between its arguments and a value, or several."""
    holder: list[tuple[tuple[Any, ...], tuple[Node, ...], tuple[Node, ...]]] = []

    def finish(state: State) -> bool:
        returned, inputs, demanded = holder[-1]
        found = part_of(returned, inputs, demanded, _numbers(state.facts))
        if isinstance(found, Node):
            return state.fail(f"{term.function.name} reads all that it is given here, and nothing else", found, term)
        return _bind(compiler, term.function, found, state, then)

    step: Then = finish
    for argument in reversed(term.arguments):
        step = _given(compiler, argument, term.scope, holder, step)

    def match(value: Any, state: State) -> bool:
        returned = tuple(value) if isinstance(value, list | tuple) else (value,)
        holder.append((returned, (), ()))
        try:
            return step(state)
        finally:
            holder.pop()

    return match


def _given(compiler: PatternCompiler, argument: Any, scope: str, holder: list[Any], then: Then) -> Then:
    """Take one argument of a body variable: a parameter, or any call of the body that matches."""
    inner: Any = argument.term if isinstance(argument, Splat) else argument
    if isinstance(inner, Parameter):

        def take(state: State) -> bool:
            known = state.names[inner.key]
            returned, inputs, demanded = holder[-1]
            more = tuple(known) if isinstance(known, list) else (known,)
            holder.append((returned, (*inputs, *more), demanded))
            try:
                return then(state)
            finally:
                holder.pop()

        return take
    matcher = compiler.term(inner, then)

    def search(state: State) -> bool:
        graph: Graph = state.names[scope]
        returned, inputs, demanded = holder[-1]
        for node in list(graph.nodes):
            if node.op != "call_function":
                continue
            holder.append((returned, (*inputs, node), (*demanded, node)))
            try:
                if matcher(node, state):
                    return True
            finally:
                holder.pop()
        return False

    return search


def _bind(compiler: PatternCompiler, variable: Variable, found: MatchedBody, state: State, then: Then) -> bool:
    """Bind a variable to a body, or compare what it is bound to."""
    known = state.names.get(variable.name)
    if known is not None:
        is_same = isinstance(known, MatchedBody) and known.is_same(found)
        return (is_same or state.fail(f"{variable.name} is another body", found, variable)) and then(state)
    kind = compiler.variables[variable.name]
    like = compiler.variables.get(kind.like) if kind.like is not None else None
    if kind.decide(found, state.names) is not True or not _admits(like, found, state):
        return state.fail(f"{variable.name} is not `{kind}`", found, variable)
    return compiler.bound(variable.name, found, state, then)


def _admits(like: Any, found: MatchedBody, state: State) -> bool:
    """Whether results of a body are of the type of what they are like; what that stands for was compared already."""
    if like is None or like.name in state.names:
        return True
    if not hasattr(like, "dtypes"):
        return any(True for _ in admit(like, found.values, state.names))
    return len(found.values) == 1 and any(True for _ in admit(like, found.values[0], state.names))
