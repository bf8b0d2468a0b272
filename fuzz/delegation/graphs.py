"""Random graphs for partitioners, and what is to be partitioned of them."""

from __future__ import annotations

import operator
import random
from dataclasses import dataclass

import torch
from torch.fx import Graph, Node

from exirkit.passes import DELEGATION_TAG

_ADD = torch.ops.aten.add.Tensor
_SIN = torch.ops.aten.sin.default
_SEVERAL = torch.ops.aten.max.dim


@dataclass(frozen=True)
class Instance:
    """A graph, and what is to be partitioned of it.

    Attributes:
        graph: The graph; some of its nodes are tagged at random, without regard to the rest.
        takers: What takes a call.
        groups: Sets of calls of one taker that are wanted together.
        joins: What else is put together.
    """

    graph: Graph
    takers: dict[Node, int]
    groups: list[list[Node]]
    joins: str


def draw_instance(seed: int, number: int, largest: int = 24) -> Instance:
    """Return an instance; the same for the same numbers.

    Args:
        seed: Of the campaign.
        number: Number of the instance.
        largest: The most operator calls.
    """
    draw = random.Random((seed << 40) + number)
    graph = Graph()
    values = [graph.placeholder(f"x{place}") for place in range(1 + draw.randrange(3))]
    reach = draw.choice((2, 3, 6, 100))
    calls = [_draw_call(draw, graph, values, reach) for _ in range(1 + draw.randrange(largest))]
    ends = [values[-1], *(node for node in calls if draw.random() < 0.1)]
    graph.output(tuple(ends))
    takers = _draw_takers(draw, calls)
    _draw_tags(draw, graph)
    groups = _draw_groups(draw, takers)
    return Instance(graph, takers, groups, draw.choice(("touching", "readers", "all")))


def _draw_call(draw: random.Random, graph: Graph, values: list[Node], reach: int) -> Node:
    near = values[-reach:]
    kind = draw.random()
    if kind < 0.6:
        node = graph.call_function(_ADD, (draw.choice(near), draw.choice(values)))
    elif kind < 0.85:
        node = graph.call_function(_SIN, (draw.choice(near),))
    else:
        node = graph.call_function(_SEVERAL, (draw.choice(near), 0))
        # Up to three times one of the two results is taken out.
        values += [graph.call_function(operator.getitem, (node, draw.randrange(2))) for _ in range(draw.randrange(4))]
        return node
    values.append(node)
    return node


def _draw_takers(draw: random.Random, calls: list[Node]) -> dict[Node, int]:
    share, count = draw.choice((0.2, 0.5, 0.8, 1.0)), 1 + draw.randrange(3)
    return {node: draw.randrange(count) for node in calls if draw.random() < share}


def _draw_tags(draw: random.Random, graph: Graph) -> None:
    """Tag calls and inputs without regard to what is between them."""
    count = draw.choice((1, 2, 4, 12))
    for node in graph.nodes:
        if node.op != "output" and draw.random() < 0.5:
            node.meta[DELEGATION_TAG] = f"tag{draw.randrange(count)}"


def _draw_groups(draw: random.Random, takers: dict[Node, int]) -> list[list[Node]]:
    left = list(takers)
    draw.shuffle(left)
    groups: list[list[Node]] = []
    while left and draw.random() < 0.7:
        first = left.pop()
        others = [node for node in left if takers[node] == takers[first]][: draw.randrange(4)]
        left = [node for node in left if node not in others]
        groups.append([first, *others])
    return groups
