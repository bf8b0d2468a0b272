"""The campaign over random graphs finds nothing, and finds what is planted."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import networkx
import pytest
import torch
from torch.fx import Graph, Node

from exirkit.fuzz.delegation import __main__ as command
from exirkit.fuzz.delegation import campaign, draw_instance, run_campaign, run_chunk, units_on_circles
from exirkit.ir import ContractError
from exirkit.passes import Partition, circles_among, grown_partitions, partitions_of


def test_nothing_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--instances", "600", "--seed", "3"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("600 graphs in ")
    total = run_campaign(600, 3)
    assert f"{total.partitions} partitions of {total.calls} calls" in said
    # Each way of being wrong has been possible.
    assert total.groups > total.groups_given_up > 100
    assert min(total.tag_sets_taken, total.tag_sets_refused) > 100
    assert total == run_campaign(600, 3)


def everything_at_once(graph: Graph, takers: Mapping[Node, Hashable], *rest: Any, **named: Any) -> list[list[Node]]:
    by_taker: dict[Hashable, list[Node]] = {}
    for nodes in grown_partitions(graph, takers, *rest, **named):
        by_taker.setdefault(takers[nodes[0]], []).extend(nodes)
    return list(by_taker.values())


def without_the_last(graph: Graph, takers: Mapping[Node, Hashable], *rest: Any, **named: Any) -> list[list[Node]]:
    return grown_partitions(graph, takers, *rest, **named)[:-1]


def without_groups(graph: Graph, takers: Mapping[Node, Hashable], groups: Any, **named: Any) -> list[list[Node]]:
    return grown_partitions(graph, takers, **named)


def no_circles(graph: Graph, groups: Sequence[Sequence[Node]]) -> list[list[int]]:
    return []


def all_circles(graph: Graph, groups: Sequence[Sequence[Node]]) -> list[list[int]]:
    return circles_among(graph, groups) or ([[0]] if groups else [])


def any_order(graph: Graph) -> list[Partition]:
    try:
        return partitions_of(graph)
    except ContractError:
        return []


@pytest.mark.parametrize(
    ("name", "planted", "says"),
    [
        ("grown_partitions", everything_at_once, "partitions wait for themselves"),
        ("grown_partitions", without_the_last, "not the calls that are taken, each once"),
        ("grown_partitions", without_groups, "a group is apart"),
        ("circles_among", no_circles, "are on some"),
        ("circles_among", all_circles, "are on some"),
        ("partitions_of", any_order, "tags are taken"),
    ],
)
def test_planted_bugs_are_found(
    monkeypatch: pytest.MonkeyPatch, name: str, planted: Callable[..., Any], says: str
) -> None:
    monkeypatch.setattr(campaign, name, planted)
    findings = run_chunk((3, 0, 60)).findings
    assert any(says in one for one in findings)
    assert all(one.startswith("seed 3, instance ") for one in findings)


def test_circles_are_those_of_another_library() -> None:
    seen = 0
    for number in range(150):
        instance = draw_instance(7, number)
        units = {node: f"taker {who}" for node, who in instance.takers.items()}
        contracted = networkx.DiGraph()
        home = {node: units.get(node.args[0] if "getitem" in str(node.target) else node, node) for node in
                instance.graph.nodes}  # fmt: skip
        for node in instance.graph.nodes:
            if "getitem" in str(node.target):
                home[node] = home[node.args[0]]
        contracted.add_edges_from(
            (home[source], home[node]) for node in home for source in node.all_input_nodes if home[source] != home[node]
        )
        on_circles = {
            unit for one in networkx.strongly_connected_components(contracted) if len(one) > 1 for unit in one
        }
        ours = units_on_circles(instance.graph, units)
        assert {one for one in ours if isinstance(one, str)} == {one for one in on_circles if isinstance(one, str)}
        seen += bool(ours)
    assert 20 < seen < 150


def test_a_plain_circle() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    first = graph.call_function(torch.ops.aten.sin.default, (x,))
    between = graph.call_function(torch.ops.aten.cos.default, (first,))
    last = graph.call_function(torch.ops.aten.add.Tensor, (first, between))
    graph.output((last,))
    assert {"a"} < units_on_circles(graph, {first: "a", last: "a"})
    assert units_on_circles(graph, dict.fromkeys((first, between, last), "a")) == set()
