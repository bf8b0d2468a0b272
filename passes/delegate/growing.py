"""From nodes that backends can take to partitions as large as possible that can run in some order."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch.fx import Graph, Node

from exirkit.ir import ContractError, Diagnostic, locate
from exirkit.passes.analysis import DisjointSets

from .backend import DELEGATION_TAG

Joins = Literal["touching", "readers", "all"]
Unit = tuple[Node, ...]
"""Nodes that are one to the partitions."""


def grown_partitions(
    graph: Graph,
    takers: Mapping[Node, Hashable],
    together: Sequence[Sequence[Node]] = (),
    *,
    joins: Joins = "readers",
) -> list[list[Node]]:
    """Return partitions of the nodes that something takes; partitions are made of nodes that touch.

    Args:
        graph: The graph.
        takers: What takes a call; calls that are not there stay in the program.
        together: Calls of one taker that are in one partition in any case; no call is in two of these, and
            `cycles_among` finds nothing about them.
        joins: What is put together besides calls of which one reads the other: nothing (`touching`), calls that read
            the same value (`readers`), or whatever can be (`all`), which makes the fewest partitions.

    Returns:
        Nodes of one taker each, in graph order; partitions in the order of their first nodes. Together they can be
        sorted: no partition waits for itself, directly or through others.

    Raises:
        ValueError: Calls of `together` wait for themselves.
    """
    net = _net_of(graph, together)
    order = _sorted(net)
    if len(order) < len(net.units):
        raise ValueError("calls that are to be together wait for each other")
    whose = [_taker(unit[0], takers) for unit in net.units]
    counts = _counted(net, order, whose)
    _delay(net, order, whose, counts)
    return _connected(net, whose, counts, joins)


def cycles_among(graph: Graph, together: Sequence[Sequence[Node]]) -> list[list[int]]:
    """Return which sets of calls wait for themselves or for each other if each of them is one call.

    Args:
        graph: The graph.
        together: Sets of calls without a common one.

    Returns:
        Numbers of sets, by cycle; sets of different cycles do not wait for each other both ways. Without one set of
        each, fewer cycles are left.
    """
    net = _net_of(graph, together)
    stuck = set(range(len(net.units))) - set(_sorted(net))
    if not stuck:
        return []
    number = {net.number[one[0]]: place for place, one in enumerate(together) if one}
    import networkx

    waiting = networkx.DiGraph((place, user) for place in stuck for user in net.users[place] if user in stuck)
    cycles = (one for one in networkx.strongly_connected_components(waiting) if len(one) > 1)
    found = [sorted(number[one] for one in cycle if one in number) for cycle in cycles]
    return sorted(one for one in found if one)


@dataclass
class _Net:
    """Units of a graph and what they wait for, by their numbers, which are in graph order of their first calls."""

    calls: list[Node]
    units: list[Unit] = field(default_factory=list)
    number: dict[Node, int] = field(default_factory=dict)
    sources: list[list[int]] = field(default_factory=list)
    users: list[list[int]] = field(default_factory=list)


def _net_of(graph: Graph, together: Sequence[Sequence[Node]]) -> _Net:
    sets = {node: tuple(one) for one in together for node in one}
    net = _Net([node for node in graph.nodes if node.op == "call_function"])
    for node in net.calls:
        source = node.args[0] if node.target is operator.getitem else None
        if node in net.number:
            continue
        if isinstance(source, Node) and source in net.number:
            # What takes one of several results out goes where they are computed.
            net.number[node] = net.number[source]
            net.units[net.number[source]] += (node,)
            continue
        unit = sets.get(node, (node,))
        net.number.update(dict.fromkeys(unit, len(net.units)))
        net.units.append(unit)
    for place, unit in enumerate(net.units):
        found = dict.fromkeys(net.number[one] for node in unit for one in node.all_input_nodes if one in net.number)
        found.pop(place, None)
        net.sources.append(list(found))
        net.users.append([])
    for place, sources in enumerate(net.sources):
        for source in sources:
            net.users[source].append(place)
    return net


def _sorted(net: _Net) -> list[int]:
    """Return units so that each comes after what it waits for; those on cycles and behind them are missing."""
    waits = [len(sources) for sources in net.sources]
    order = [place for place, count in enumerate(waits) if not count]
    for place in order:
        for user in net.users[place]:
            waits[user] -= 1
            if not waits[user]:
                order.append(user)
    return order


def _taker(node: Node, takers: Mapping[Node, Hashable]) -> Hashable | None:
    # What takes one of several results out goes where they are computed.
    while node.target is operator.getitem and isinstance(node.args[0], Node):
        node = node.args[0]
    return takers.get(node)


def _counted(net: _Net, order: Sequence[int], whose: Sequence[Hashable | None]) -> list[int]:
    """Return for each unit how often the taker changes on the way to it that changes most."""
    counts = [0] * len(net.units)
    for place in order:
        counts[place] = max(
            (counts[source] + (whose[source] != whose[place]) for source in net.sources[place]), default=0
        )
    return counts


def _delay(net: _Net, order: Sequence[int], whose: Sequence[Hashable | None], counts: list[int]) -> None:
    """Let groups of units wait until they can join a group of users, where everything that needs them can as well.

    Any counts will do that grow where the taker changes, and never shrink, along every edge.
    """
    groups = DisjointSets[int]()
    for place in reversed(order):
        for user in net.users[place]:
            if whose[place] is not None and (whose[user], counts[user]) == (whose[place], counts[place]):
                groups.link(user, place)
    members: dict[int, list[int]] = {}
    for place in reversed(order):
        if whose[place] is not None:
            members.setdefault(groups.of(place), []).append(place)
    # Those that others wait for come last, so that they see where the others went.
    for group in sorted(members.values(), key=lambda one: -counts[one[0]]):
        inside = set(group)
        users = [user for place in group for user in net.users[place] if user not in inside]
        if not users:
            continue
        taker = whose[group[0]]
        latest = min(counts[user] - (whose[user] != taker) for user in users)
        if latest > counts[group[0]] and any(whose[user] == taker and counts[user] == latest for user in users):
            for place in group:
                counts[place] = latest


def _connected(net: _Net, whose: Sequence[Hashable | None], counts: Sequence[int], joins: Joins) -> list[list[Node]]:
    """Join units of one taker and count that touch, and others as wanted."""
    taken = [place for place, who in enumerate(whose) if who is not None]
    groups = DisjointSets[int]()
    readers: dict[tuple[Node, Hashable, int], int] = {}
    for place in taken:
        mine = whose[place], counts[place]
        for source in dict.fromkeys(one for node in net.units[place] for one in node.all_input_nodes):
            at = net.number.get(source)
            if at is not None and (whose[at], counts[at]) == mine:
                groups.link(place, at)
            elif joins == "readers":
                # Inputs and parameters as well: what a delegate is handed once need not be handed to two.
                groups.link(place, readers.setdefault((source, *mine), place))
    alike: dict[tuple[Hashable, int], int] = {}
    for place in taken if joins == "all" else ():
        groups.link(place, alike.setdefault((whose[place], counts[place]), place))
    made: dict[int, list[Node]] = {}
    # Nodes come in graph order, and so groups in the order of their first ones.
    for node in net.calls:
        place = net.number[node]
        if whose[place] is not None:
            made.setdefault(groups.of(place), []).append(node)
    return list(made.values())


_SHOWN = 6


@dataclass(frozen=True)
class Partition:
    """Nodes of one graph that become one delegate.

    Attributes:
        tag: What the partitioner calls it.
        inputs: Placeholders that belong to it, in graph order. A constant that is tagged belongs to all that read it.
        calls: Calls that belong to it, in an order in which they can run.
    """

    tag: str
    inputs: tuple[Node, ...]
    calls: tuple[Node, ...]


def partitions_of(graph: Graph) -> list[Partition]:
    """Return the partitions of a graph by the tags of its nodes, in an order in which they can run.

    Takes time linear in nodes and edges, times the logarithm of the number of nodes.

    Raises:
        ContractError: EK491, a node is tagged that no delegate can take; EK492, partitions wait for each other, or one
            for a node outside that waits for it.
    """
    tags = _tags(graph)
    members: dict[str, list[Node]] = defaultdict(list)
    for node, tag in tags.items():
        members[tag].append(node)
    order = _run_order(graph, tags)
    found = {tag: place for place, tag in enumerate(order)}
    stored = [node for node in tags if node.op == "placeholder"]
    return [
        Partition(
            tag,
            tuple(node for node in stored if any(tags.get(user) == tag for user in node.users) or tags[node] == tag),
            tuple(node for node in members[tag] if node.op == "call_function"),
        )
        for tag in sorted((tag for tag in members if tag in found), key=found.__getitem__)
    ]


def _tags(graph: Graph) -> dict[Node, str]:
    tags: dict[Node, str] = {}
    for node in graph.nodes:
        source = node.args[0] if node.target is operator.getitem else None
        # What takes a result out of several goes where they are computed, whatever its own tag says.
        tag = tags.get(source) if isinstance(source, Node) else node.meta.get(DELEGATION_TAG)
        if tag is None:
            continue
        if node.op not in ("placeholder", "call_function"):
            raise ContractError(_untakable(node, tag))
        tags[node] = tag
    return tags


def _run_order(graph: Graph, tags: Mapping[Node, str]) -> list[str]:
    """Return the tags that have calls, in an order in which each finds its arguments.

    Each partition is taken for one node; where what remains cannot be sorted, partitions wait for each other.
    """
    units: dict[Node, Node | str] = {
        node: tags[node] if node in tags and node.op == "call_function" else node for node in graph.nodes
    }
    places: dict[Node | str, int] = {}
    for place, unit in enumerate(units.values()):
        places.setdefault(unit, place)
    import networkx

    waiting = networkx.DiGraph()
    waiting.add_nodes_from(places)
    for node, unit in units.items():
        waiting.add_edges_from((units[source], unit) for source in node.all_input_nodes if units[source] != unit)
    try:
        order = list(networkx.lexicographical_topological_sort(waiting, key=places.__getitem__))
    except networkx.NetworkXUnfeasible:
        components = list(networkx.strongly_connected_components(waiting))
        tag = next(unit for unit in places if isinstance(unit, str) and any({unit} < one for one in components))
        behind = (user for user in waiting[tag] if networkx.has_path(waiting, user, tag))
        cycle = min((networkx.shortest_path(waiting, user, tag) for user in behind), key=len)
        raise ContractError(_cycle(units, [tag, *cycle])) from None
    return [unit for unit in order if isinstance(unit, str)]


def _cycle(units: Mapping[Node, Node | str], cycle: Sequence[Node | str]) -> Diagnostic:
    """Describe a cycle of units that wait for each other, which begins and ends with a partition."""
    tag = cycle[0]
    first = next(node for node, unit in units.items() if unit == tag)
    shown = " -> ".join(_shortened([f"partition {one}" if isinstance(one, str) else f"%{one.name}" for one in cycle]))
    return Diagnostic.of(
        code="EK492",
        message=f"partition {tag} cannot run in one go: it waits for what it computes itself",
        location=locate(first),
        expected="partitions of which none needs results that are computed from its own results elsewhere",
        notes=(f"the cycle: {shown}",),
        hint="give the nodes before and after what lies between them different tags, or tag what lies between as well",
    )


def _shortened(path: list[str]) -> Iterator[str]:
    if len(path) <= _SHOWN:
        yield from path
        return
    yield from path[: _SHOWN - 2]
    yield f"({len(path) - _SHOWN} more)"
    yield from path[-2:]


def _untakable(node: Node, tag: str) -> Diagnostic:
    return Diagnostic.of(
        code="EK491",
        message=f"%{node.name}, a node of kind {node.op}, is tagged {tag!r}",
        location=locate(node),
        expected="tags on calls of operators, and on parameters, buffers and constants that only they read",
        hint="leave the tag away",
    )
