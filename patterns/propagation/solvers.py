"""How values are chosen: least cost by minimum cuts, or in one direction; the choice never depends on chance.

Any choice is sound: what a call needs at another value is converted. Solvers differ in what conversions cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from .model import Solver
from .problem import Problem, Solution, Spec


def solve(problem: Problem, solver: Solver | None = None, forced: Mapping[Node, str] | None = None) -> Solution:
    """Choose values.

    Args:
        problem: What is to be solved.
        solver: How; as the propagation says if None.
        forced: Values that are given for some calls.
    """
    chosen = _SOLVERS[solver or problem.made.model.solve](problem, dict(forced or {}))
    return Solution(problem, {node: chosen[node] for node in problem.choices})


def _local(problem: Problem, forced: Mapping[Node, str]) -> dict[Node, str]:
    """Leave every call for which there is a choice as it is."""
    return {**dict.fromkeys(problem.choices, problem.made.first), **forced}


def _forward(problem: Problem, forced: Mapping[Node, str]) -> dict[Node, str]:
    """Give a call the value of its arguments, if they agree."""
    chosen: dict[Node, str] = dict(forced)
    for node in problem.choices:
        if node not in chosen:
            uses = [use for use in problem.demands.get(node, ()) if use.wants is node and problem.costs[use.tensor]]
            chosen[node] = _meet(problem, (problem.gives[use.tensor] for use in uses), chosen)
    return chosen


def _backward(problem: Problem, forced: Mapping[Node, str]) -> dict[Node, str]:
    """Give a call the value that its users want, if they agree."""
    chosen: dict[Node, str] = dict(forced)
    given: dict[Node, list[Spec]] = {}
    for tensor, uses in problem.uses.items():
        spec = problem.gives[tensor]
        if isinstance(spec, Node):
            given.setdefault(spec, []).extend(use.wants for use in uses)
    for node in reversed(problem.choices):
        if node not in chosen:
            chosen[node] = _meet(problem, given.get(node, ()), chosen)
    return chosen


def _meet(problem: Problem, specs: Any, chosen: Mapping[Node, str]) -> str:
    """Return the value on which all agree, or the first value, at which tensors are as they are."""
    values = {chosen[spec] if isinstance(spec, Node) else spec for spec in specs}
    return values.pop() if len(values) == 1 else problem.made.first


# Least cost: values are the two sides of a cut, and conversions are the edges that it cuts


_SOURCE, _SINK = -1, -2


@dataclass
class _Network:
    """Edges between choices, which are numbers, and the two sides.

    A choice on the side of the source has the first value. Edges without a capacity cannot be cut.

    Attributes:
        edges: Capacity by pair of ends; None for an edge that cannot be cut.
        size: How many numbers are in use.
    """

    edges: dict[tuple[int, int], int | None] = field(default_factory=dict)
    size: int = 0

    def add(self, start: int, end: int, capacity: int | None) -> None:
        """Add an edge; parallel ones are one that is as hard to cut as all of them."""
        if start in (end, _SINK) or capacity == 0 or end == _SOURCE:
            return
        known = self.edges.get((start, end), 0)
        self.edges[start, end] = None if known is None or capacity is None else known + capacity

    def add_conversion(self, given: int, wanted: list[int], capacity: int, *, to_second: bool) -> None:
        """Add what is paid once if a tensor has one value and any of its users wants the other.

        With one user that is an edge between the two. With several, all of them pull at a point between.
        """
        ends = list(dict.fromkeys(one for one in wanted if one != given))
        always = _SINK if to_second else _SOURCE
        if not ends or given == always:
            return
        if always in ends:
            ends = [always]
        middle = ends[0]
        if len(ends) > 1:
            middle, self.size = self.size, self.size + 1
            for end in ends:
                self.add(*((middle, end) if to_second else (end, middle)), None)
        self.add(*((given, middle) if to_second else (middle, given)), capacity)

    def components(self) -> Iterator[list[tuple[int, int]]]:
        """Yield the edges of each connected part that lies between both sides: elsewhere nothing has to be cut."""
        parent = list(range(self.size))

        def root(one: int) -> int:
            while parent[one] != one:
                parent[one] = parent[parent[one]]
                one = parent[one]
            return one

        for start, end in self.edges:
            if start >= 0 and end >= 0:
                parent[root(start)] = root(end)
        parts: dict[int, list[tuple[int, int]]] = {}
        for start, end in self.edges:
            if start >= 0 or end >= 0:
                parts.setdefault(root(max(start, end)), []).append((start, end))
        yield from parts.values()


def _cut(problem: Problem, forced: Mapping[Node, str]) -> dict[Node, str]:
    """Choose the values whose conversions cost least, and of these the fewest conversions."""
    first, second = problem.made.names
    choices = [node for node in problem.choices if node not in forced]
    numbers = {node: number for number, node in enumerate(choices)}
    network = _Network(size=len(choices))

    def side(spec: Spec) -> int:
        value = forced.get(spec) if isinstance(spec, Node) else spec
        return numbers[spec] if isinstance(spec, Node) and value is None else _SOURCE if value == first else _SINK

    # One more conversion is never worth an element less, and among equal costs fewer conversions are better.
    unit = 2 * len(problem.gives) + 1
    for tensor, uses in problem.uses.items():
        cost = problem.costs[tensor]
        if cost:
            given, wanted = side(problem.gives[tensor]), [side(use.wants) for use in uses]
            network.add_conversion(given, wanted, cost * unit + 1, to_second=True)
            network.add_conversion(given, wanted, cost * unit + 1, to_second=False)
    for node, costs in problem.call_costs.items():
        if node in numbers:
            network.add(_SOURCE, numbers[node], costs.get(second, 0) * unit)
            network.add(numbers[node], _SINK, costs.get(first, 0) * unit)
    seconds: set[int] = set()
    for edges in network.components():
        seconds |= _second_side(network, edges)
    return {**{node: second if number in seconds else first for node, number in numbers.items()}, **forced}


def _second_side(network: _Network, edges: list[tuple[int, int]]) -> set[int]:
    """Return the choices of one connected part that get the second value: of all least cuts, the fewest."""
    has_source = any(start == _SOURCE for start, _ in edges)
    has_sink = any(end == _SINK for _, end in edges)
    if not has_sink:
        return set()
    if not has_source:
        return {one for edge in edges for one in edge if one >= 0}
    # Takes a quarter of a second to import, and most programs leave nothing to decide.
    import networkx
    from networkx.algorithms.flow import boykov_kolmogorov

    graph: Any = networkx.DiGraph()
    for start, end in edges:
        capacity = network.edges[start, end]
        graph.add_edge(start, end, **({} if capacity is None else {"capacity": capacity}))
    _, (_, sink_side) = networkx.minimum_cut(graph, _SOURCE, _SINK, flow_func=boykov_kolmogorov)
    return {one for one in sink_side if one >= 0}


_SOLVERS: dict[str, Callable[[Problem, Mapping[Node, str]], dict[Node, str]]] = {
    "cut": _cut,
    "forward": _forward,
    "backward": _backward,
    "local": _local,
}
