"""From tagged nodes to partitions that a program can call one after the other."""

from __future__ import annotations

import heapq
import operator
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch.fx import Graph, Node

from exirkit.ir import ContractError, Diagnostic, locate

from .partitioner import TAG

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
        tag = tags.get(source) if isinstance(source, Node) else node.meta.get(TAG)
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
    waits: Counter[Node | str] = Counter()
    users: dict[Node | str, set[Node | str]] = defaultdict(set)
    for node, unit in units.items():
        for source in node.all_input_nodes:
            before = units[source]
            if before != unit and unit not in users[before]:
                users[before].add(unit)
                waits[unit] += 1
    names = list(places)
    ready = [place for unit, place in places.items() if not waits[unit]]
    by_place = {place: unit for unit, place in places.items()}
    heapq.heapify(ready)
    order: list[str] = []
    done = 0
    while ready:
        unit = by_place[heapq.heappop(ready)]
        done += 1
        if isinstance(unit, str):
            order.append(unit)
        for user in users[unit]:
            waits[user] -= 1
            if not waits[user]:
                heapq.heappush(ready, places[user])
    if done < len(names):
        stuck = [unit for unit in names if waits[unit]]
        raise ContractError(_circle(units, stuck, users))
    return order


def _circle(
    units: Mapping[Node, Node | str], stuck: Sequence[Node | str], users: Mapping[Node | str, set[Node | str]]
) -> Diagnostic:
    """Describe one circle among units that wait for each other."""
    remaining = set(stuck)
    sources: dict[Node | str, Node | str] = {}
    for unit in stuck:
        for user in sorted(users[unit], key=str):
            if user in remaining:
                sources.setdefault(user, unit)
    at: Node | str = stuck[0]
    seen: list[Node | str] = []
    while at not in seen:
        seen.append(at)
        at = sources[at]
    circle = seen[seen.index(at) :][::-1]
    tag = next(unit for unit in circle if isinstance(unit, str))
    first = next(node for node, unit in units.items() if unit == tag)
    path = [f"partition {unit}" if isinstance(unit, str) else f"%{unit.name}" for unit in circle]
    shown = " -> ".join(_shortened([*path, path[0]]))
    return Diagnostic(
        code="EK492",
        message=f"partition {tag} cannot run in one go: it waits for what it computes itself",
        location=locate(first),
        expected="partitions of which none needs results that are computed from its own results elsewhere",
        notes=(f"the circle: {shown}",),
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
    return Diagnostic(
        code="EK491",
        message=f"%{node.name}, a node of kind {node.op}, is tagged {tag!r}",
        location=locate(node),
        expected="tags on calls of operators, and on parameters, buffers and constants that only they read",
        hint="leave the tag away",
    )
