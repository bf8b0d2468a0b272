"""The campaign over random graphs finds nothing, and finds mistakes of partitioners."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch.fx import Graph, Node

from exirkit.fuzz.campaigns import CampaignConfig, run_here
from exirkit.fuzz.delegation import __main__ as command
from exirkit.fuzz.delegation import bench, units_on_cycles
from exirkit.ir import ContractError
from exirkit.passes import Partition, cycles_among, grown_partitions, partitions_of

CONFIG = CampaignConfig(bench="exirkit.fuzz.delegation:DelegationBench", first_seed=3 << 40, seeds=600)


def test_nothing_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--instances", "600", "--seed", "3"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("600 graphs in ")
    progress = run_here(CONFIG)
    counts = progress.counts
    assert f"{counts['partitions']} partitions of {counts['calls']} calls" in said
    # Each way of being wrong has been possible.
    assert counts["groups"] > counts["groups given up"] > 100
    assert min(counts["tag sets taken"], counts["tag sets rejected"]) > 100


def everything_at_once(graph: Graph, takers: Mapping[Node, Hashable], *rest: Any, **named: Any) -> list[list[Node]]:
    by_taker: dict[Hashable, list[Node]] = {}
    for nodes in grown_partitions(graph, takers, *rest, **named):
        by_taker.setdefault(takers[nodes[0]], []).extend(nodes)
    return list(by_taker.values())


def without_the_last(graph: Graph, takers: Mapping[Node, Hashable], *rest: Any, **named: Any) -> list[list[Node]]:
    return grown_partitions(graph, takers, *rest, **named)[:-1]


def without_groups(graph: Graph, takers: Mapping[Node, Hashable], groups: Any, **named: Any) -> list[list[Node]]:
    return grown_partitions(graph, takers, **named)


def no_cycles(graph: Graph, groups: Sequence[Sequence[Node]]) -> list[list[int]]:
    return []


def all_cycles(graph: Graph, groups: Sequence[Sequence[Node]]) -> list[list[int]]:
    return cycles_among(graph, groups) or ([[0]] if groups else [])


def any_order(graph: Graph) -> list[Partition]:
    try:
        return partitions_of(graph)
    except ContractError:
        return []


@pytest.mark.parametrize(
    ("name", "wrong", "bucket"),
    [
        ("grown_partitions", everything_at_once, "growing | cycle"),
        ("grown_partitions", without_the_last, "growing | calls"),
        ("grown_partitions", without_groups, "growing | apart"),
        ("cycles_among", no_cycles, "growing | cycles"),
        ("cycles_among", all_cycles, "growing | cycles"),
        ("partitions_of", any_order, "tags | taken"),
    ],
)
def test_mistakes_are_found(monkeypatch: pytest.MonkeyPatch, name: str, wrong: Callable[..., Any], bucket: str) -> None:
    monkeypatch.setattr(bench, name, wrong)
    made = bench.DelegationBench(CONFIG)
    checked = [made.check(made.make((3 << 40) + number)) for number in range(60)]
    assert bucket in {one.bucket for each in checked for one in each.failures}


def test_a_plain_cycle() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    first = graph.call_function(torch.ops.aten.sin.default, (x,))
    between = graph.call_function(torch.ops.aten.cos.default, (first,))
    last = graph.call_function(torch.ops.aten.add.Tensor, (first, between))
    graph.output((last,))
    assert {"a"} < units_on_cycles(graph, {first: "a", last: "a"})
    assert units_on_cycles(graph, dict.fromkeys((first, between, last), "a")) == set()
