"""What a partition may be, checked by counting ways: sets of bits, and nothing of the code that partitions.

The edges are read from the arguments of nodes; each node has the set of nodes that it depends on, as bits of a number.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable, Mapping

from torch.fx import Graph, Node


def units_on_circles(graph: Graph, units: Mapping[Node, Hashable]) -> set[Hashable]:
    """Return the units that wait for themselves, directly or through others, if each of them is one call.

    Args:
        graph: The graph.
        units: The unit of a node; other nodes are on their own. What takes a result out of several is in the unit of
            the call that computes them.
    """
    places = {node: place for place, node in enumerate(graph.nodes)}
    names: dict[Hashable, int] = {}
    home: list[int] = []
    for node in graph.nodes:
        name = units.get(_computed_by(node), places[_computed_by(node)])
        home.append(names.setdefault(name, len(names)))
    waits = [0] * len(names)
    for node in graph.nodes:
        for source in _arguments(node.args):
            if home[places[source]] != home[places[node]]:
                waits[home[places[node]]] |= 1 << home[places[source]]
    # Warshall's closure, with a row of bits for each unit.
    for middle in range(len(waits)):
        bit, row = 1 << middle, waits[middle]
        for place, known in enumerate(waits):
            if known & bit:
                waits[place] = known | row
    return {name for name, number in names.items() if waits[number] >> number & 1}


def _computed_by(node: Node) -> Node:
    while node.target is operator.getitem and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def _arguments(values: Iterable[object]) -> Iterable[Node]:
    for value in values:
        if isinstance(value, Node):
            yield value
        elif isinstance(value, list | tuple):
            yield from _arguments(value)
