"""From nodes that backends can take to partitions as large as possible that can run in some order.

Along every way through the graph, count how often what takes a node changes: from one backend to another, or from a
backend to none and back. A way that leaves a partition and comes back has changed at least twice, so nodes of one
backend with the same count can be put together, whether or not they touch: whatever depends on them from outside has a
larger count. No search for circles is needed, and the time is linear in nodes and edges.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Mapping, Sequence

from torch.fx import Graph, Node


def grown_partitions(graph: Graph, takers: Mapping[Node, Hashable]) -> list[list[Node]]:
    """Return partitions of the nodes that something takes; partitions are made of nodes that touch.

    Args:
        graph: The graph.
        takers: What takes a call; calls that are not there stay in the program.

    Returns:
        Nodes of one taker each, in graph order; partitions in the order of their first nodes. Together they can be
        sorted: no partition waits for itself, directly or through others.
    """
    calls = [node for node in graph.nodes if node.op == "call_function"]
    whose = {node: _taker(node, takers) for node in calls}
    counts = _counted(calls, whose)
    _delay(calls, whose, counts)
    return _connected(calls, whose, counts)


def _taker(node: Node, takers: Mapping[Node, Hashable]) -> Hashable | None:
    # What takes one of several results out goes where they are computed.
    source = node.args[0] if node.target is operator.getitem else node
    return takers.get(source) if isinstance(source, Node) else None


def _counted(calls: Sequence[Node], whose: Mapping[Node, Hashable | None]) -> dict[Node, int]:
    """Return for each call how often the taker changes on the way to it that changes most."""
    counts: dict[Node, int] = {}
    for node in calls:
        counts[node] = max(
            (counts[source] + (whose[source] != whose[node]) for source in node.all_input_nodes if source in counts),
            default=0,
        )
    return counts


def _delay(calls: Sequence[Node], whose: Mapping[Node, Hashable | None], counts: dict[Node, int]) -> None:
    """Let calls that nothing of their own partition feeds wait for the users, so that they join these."""
    for node in reversed(calls):
        users = [user for user in node.users if user in counts]
        if whose[node] is None or not users or len(users) < len(node.users):
            continue
        latest = min(counts[user] - (whose[user] != whose[node]) for user in users)
        feeds = any(
            counts.get(source) == counts[node] and whose[source] == whose[node] for source in node.all_input_nodes
        )
        if latest > counts[node] and not feeds:
            counts[node] = latest


def _connected(
    calls: Sequence[Node], whose: Mapping[Node, Hashable | None], counts: Mapping[Node, int]
) -> list[list[Node]]:
    """Join calls of one taker and count that touch, or that read the same value."""
    taken = [node for node in calls if whose[node] is not None]
    heads = {node: node for node in taken}

    def head(node: Node) -> Node:
        while heads[node] is not node:
            heads[node] = heads[heads[node]]
            node = heads[node]
        return node

    readers: dict[tuple[Node, Hashable, int], Node] = {}
    for node in taken:
        mine = whose[node], counts[node]
        for source in node.all_input_nodes:
            if source in heads and (whose[source], counts[source]) == mine:
                heads[head(source)] = head(node)
            elif source.op == "call_function":
                other = readers.setdefault((source, *mine), node)
                heads[head(other)] = head(node)
    groups: dict[Node, list[Node]] = {}
    for node in taken:
        groups.setdefault(head(node), []).append(node)
    # In the order of their first nodes, since a dictionary keeps the order in which keys came.
    return list(groups.values())
