"""Partitions that are grown can always run, and are about as large as they can be."""

from __future__ import annotations

import random

import pytest
import torch
from torch.fx import Graph, Node

from exirkit.passes import DELEGATION_TAG, grown_partitions, partitions_of

ADD = torch.ops.aten.add.Tensor


def random_graph(draw: random.Random, size: int) -> Graph:
    graph = Graph()
    values = [graph.placeholder(f"x{number}") for number in range(1 + draw.randrange(3))]
    for _ in range(size):
        near = values[-draw.choice((2, 5, 50)) :]
        values.append(graph.call_function(ADD, (draw.choice(near), draw.choice(values))))
    graph.output((values[-1],))
    return graph


@pytest.mark.parametrize("takers", [1, 2, 3])
def test_random_graphs(takers: int) -> None:
    partitions = nodes = 0
    for seed in range(600):
        draw = random.Random(seed)
        graph = random_graph(draw, 1 + seed % 40)
        share = draw.choice((0.3, 0.7, 0.95))
        whose = {
            node: draw.randrange(takers)
            for node in graph.find_nodes(op="call_function", target=ADD)
            if draw.random() < share
        }
        found = grown_partitions(graph, whose)
        check(graph, whose, found)
        partitions += len(found)
        nodes += len(whose)
    assert partitions < (0.3 + 0.15 * takers) * nodes


def check(graph: Graph, whose: dict[Node, int], found: list[list[Node]]) -> None:
    assert sorted(node.name for one in found for node in one) == sorted(node.name for node in whose)
    for number, one in enumerate(found):
        assert len({whose[node] for node in one}) == 1
        for node in one:
            node.meta[DELEGATION_TAG] = f"tag{number}"
    # Raises if partitions wait for each other.
    assert len(partitions_of(graph)) == len(found)


def test_everything_is_one_partition() -> None:
    graph = random_graph(random.Random(0), 200)
    calls = graph.find_nodes(op="call_function", target=ADD)
    reached = grown_partitions(graph, dict.fromkeys(calls, "a"))
    assert sum(map(len, reached)) == 200
    assert len(reached) <= 3


def test_a_branch_that_starts_late_joins_what_uses_it() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    first = graph.call_function(ADD, (x, x))
    other = graph.call_function(torch.ops.aten.sin.default, (first,))
    late = graph.call_function(ADD, (x, 1))
    last = graph.call_function(ADD, (other, late))
    graph.output((last,))
    assert grown_partitions(graph, dict.fromkeys((first, late, last), "a")) == [[first], [late, last]]
