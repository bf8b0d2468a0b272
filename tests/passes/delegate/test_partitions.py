"""Partitions: every order that is possible is found, and every cycle is named."""

from __future__ import annotations

import itertools
import operator
import random

import networkx
import pytest
import torch
from tests.work import counted
from torch.fx import Graph, Node

from exirkit import ContractError
from exirkit.passes import DELEGATION_TAG, partitions_of

ADD = torch.ops.aten.add.Tensor


def random_graph(seed: int, size: int, tags: int) -> Graph:
    """Return a graph of additions of two values that came before, some of them tagged."""
    draw = random.Random(seed)
    graph = Graph()
    values = [graph.placeholder(f"x{number}") for number in range(1 + draw.randrange(3))]
    for _ in range(size):
        near = values[-draw.choice((2, 5, 50)) :]
        node = graph.call_function(ADD, (draw.choice(near), draw.choice(values)))
        if draw.random() < 0.6:
            node.meta[DELEGATION_TAG] = f"tag{draw.randrange(tags)}"
        values.append(node)
    graph.output((values[-1],))
    return graph


def has_cycle(graph: Graph) -> bool:
    """Tell by another library whether partitions wait for each other."""
    contracted = networkx.DiGraph()
    for node in graph.nodes:
        mine = node.meta.get(DELEGATION_TAG, node)
        for source in node.all_input_nodes:
            theirs = source.meta.get(DELEGATION_TAG, source)
            if theirs != mine:
                contracted.add_edge(theirs, mine)
    return not networkx.is_directed_acyclic_graph(contracted)


@pytest.mark.parametrize("tags", [1, 2, 5, 40])
def test_random_tags(tags: int) -> None:
    cycles = 0
    for seed in range(400):
        graph = random_graph(seed, 1 + seed % 25, tags)
        if has_cycle(graph):
            cycles += 1
            with pytest.raises(ContractError) as raised:
                partitions_of(graph)
            assert raised.value.code == "EK492"
            check_cycle(graph, raised.value.diagnostics[0].notes[0])
        else:
            check_order(graph)
    assert 20 < cycles < 400


def check_order(graph: Graph) -> None:
    """Each partition has all that the ones before it and plain nodes compute."""
    found = partitions_of(graph)
    assert {node for one in found for node in one.calls} == {
        node for node in graph.nodes if DELEGATION_TAG in node.meta
    }
    place = {node: number for number, one in enumerate(found) for node in one.calls}
    for number, one in enumerate(found):
        for needed in reached([source for node in one.calls for source in node.all_input_nodes]):
            assert place.get(needed, -1) <= number


def reached(start: list[Node]) -> set[Node]:
    seen: set[Node] = set()
    while start:
        node = start.pop()
        if node not in seen:
            seen.add(node)
            start += node.all_input_nodes
    return seen


def check_cycle(graph: Graph, note: str) -> None:
    """Each step of the cycle that the message shows is one of the graph."""
    steps = note.removeprefix("the cycle: ").split(" -> ")
    assert steps[0] == steps[-1]
    if any("more" in one for one in steps):
        return
    units = {
        node: f"partition {node.meta[DELEGATION_TAG]}" if DELEGATION_TAG in node.meta else f"%{node.name}"
        for node in graph.nodes
    }
    edges = {(units[source], unit) for node, unit in units.items() for source in node.all_input_nodes}
    assert set(itertools.pairwise(steps)) <= edges


def test_results_go_where_they_are_computed() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    several = graph.call_function(torch.ops.aten.max.dim, (x, 0))
    several.meta[DELEGATION_TAG] = "a"
    first = graph.call_function(operator.getitem, (several, 0))
    first.meta[DELEGATION_TAG] = "b"
    second = graph.call_function(operator.getitem, (several, 1))
    graph.output((first, second))
    (one,) = partitions_of(graph)
    assert (one.tag, one.calls) == ("a", (several, first, second))


def test_work_grows_linearly_with_the_graph() -> None:
    counts = []
    for size in (500, 4_000):
        graph = Graph()
        value = graph.placeholder("x")
        for number in range(size):
            value = graph.call_function(ADD, (value, value))
            value.meta[DELEGATION_TAG] = f"tag{number // 3}"
        graph.output((value,))
        found, calls = counted(partitions_of, graph)
        assert len(found) == -(-size // 3)
        counts.append(calls)
    assert counts[1] < 10 * counts[0]
