"""What a partition may be, by cycles in a graph of units: nothing of the code that partitions is used.

The edges are read from the arguments of nodes.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Mapping

import networkx
from torch.fx import Graph, Node


def units_on_cycles(graph: Graph, units: Mapping[Node, Hashable]) -> set[Hashable]:
    """Return the units that wait for themselves through others, if each of them is one call.

    Args:
        graph: The graph.
        units: The unit of a node; other nodes are on their own. What takes a result out of several is in the unit of
            the call that computes them.
    """
    home = {node: units.get(_computed_by(node), _computed_by(node)) for node in graph.nodes}
    waits = networkx.DiGraph(
        (home[source], home[node])
        for node in graph.nodes
        for source in node.all_input_nodes
        if home[source] != home[node]
    )
    components = networkx.strongly_connected_components(waits)
    return {unit for component in components if len(component) > 1 for unit in component}


def _computed_by(node: Node) -> Node:
    while node.target is operator.getitem and isinstance(node.args[0], Node):
        node = node.args[0]
    return node
