"""Partitions of many random graphs, each checked by code that shares nothing with what made them."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, cast

from torch.fx import Node

from exirkit.fuzz.campaigns import Analysis, CampaignConfig, Case, Checked, Found
from exirkit.ir import ContractError
from exirkit.passes import DELEGATION_TAG, cycles_among, grown_partitions, partitions_of

from .graphs import Instance, draw_instance
from .reachability import units_on_cycles

_Finding = tuple[str, str]
"""Kind and text of what is wrong."""


class DelegationBench:
    """Partitioners on random graphs. Seeds `S << 40` and following are the graphs of seed `S`.

    What is counted: `partitions`, `calls` (in partitions), `groups` and `groups given up` (that would wait for
    themselves or for each other), `tag sets taken` and `tag sets rejected` (of random tags).
    """

    def __init__(self, config: CampaignConfig) -> None:
        del config

    def make(self, seed: int) -> Case[Instance]:
        """Draw the graph of a seed."""
        instance = draw_instance(0, seed)
        return Case(seed, instance, steps=len(instance.graph.nodes))

    def check(self, case: Case[Instance]) -> Checked:
        """Grow partitions, and make partitions of random tags."""
        counts: Counter[str] = Counter()
        failures = [
            Found(oracle=oracle, symptom=kind, message=text, bucket=f"{oracle} | {kind}")
            for oracle, findings in (
                ("growing", check_growing(case.program, counts)),
                ("tags", check_tags(case.program, counts)),
            )
            for kind, text in findings
        ]
        return Checked("failed" if failures else "passed", tuple(failures), counts=dict(counts))

    def analyse(self, case: Case[Instance], number: int) -> Analysis:
        """Show the graph; most have a dozen calls, and are not reduced."""
        found = self.check(case).failures[number]
        return Analysis(seed=case.seed, number=number, bucket=found.bucket, reduced=f"{case.program.graph}\n")


def check_growing(instance: Instance, counts: Counter[str]) -> Iterator[_Finding]:
    """Grow partitions, and yield what is wrong with them."""
    graph, groups = instance.graph, list(instance.groups)
    counts["groups"] += len(groups)
    while True:
        units = {node: ("group", place) for place, group in enumerate(groups) for node in group}
        reported = cycles_among(graph, groups)
        really = {name[1] for name in units_on_cycles(graph, units) if isinstance(name, tuple)}
        if {place for cycle in reported for place in cycle} != really:
            yield "cycles", f"cycles {reported} are reported, and groups {sorted(really)} are on some"
            return
        if not reported:
            break
        counts["groups given up"] += len(reported)
        given_up = {cycle[-1] for cycle in reported}
        groups = [group for place, group in enumerate(groups) if place not in given_up]
    found = grown_partitions(graph, instance.takers, groups, joins=cast(Any, instance.joins))
    counts["partitions"] += len(found)
    counts["calls"] += sum(map(len, found))
    yield from _wrong_with(found, instance, groups)


def _wrong_with(
    found: Sequence[Sequence[Node]], instance: Instance, groups: Sequence[Sequence[Node]]
) -> Iterator[_Finding]:
    home = {node: place for place, nodes in enumerate(found) for node in nodes}
    wanted = {
        node for node in instance.graph.nodes
        if (node.args[0] if _is_result(node) else node) in instance.takers
    }  # fmt: skip
    if sum(map(len, found)) != len(home) or home.keys() != wanted:
        yield "calls", "the partitions are not the calls that are taken, each once"
    if any(len({instance.takers[node] for node in nodes if node in instance.takers}) != 1 for nodes in found):
        yield "takers", "a partition has calls of two takers"
    if any(len({home.get(node) for node in group}) != 1 for group in groups):
        yield "apart", "the calls of a group are in several partitions"
    stuck = units_on_cycles(instance.graph, {node: ("partition", place) for node, place in home.items()})
    if stuck:
        yield "cycle", f"partitions wait for themselves: {sorted(map(str, stuck))}"


def check_tags(instance: Instance, counts: Counter[str]) -> Iterator[_Finding]:
    """Make partitions of random tags: they are rejected if and only if no order is right; yield what is wrong."""
    computing = [node for node in instance.graph.nodes if node.op == "call_function" and not _is_result(node)]
    tags = {node: ("tag", node.meta[DELEGATION_TAG]) for node in computing if DELEGATION_TAG in node.meta}
    stuck = units_on_cycles(instance.graph, tags)
    try:
        found = partitions_of(instance.graph)
    except ContractError as error:
        counts["tag sets rejected"] += 1
        if error.code != "EK492" or not stuck:
            yield "rejected", f"tags are rejected with {error.code}, and {'something' if stuck else 'nothing'} waits"
        return
    counts["tag sets taken"] += 1
    if stuck:
        yield "taken", f"tags are taken, and {sorted(map(str, stuck))} wait for themselves"
    if {("tag", one.tag) for one in found} != set(tags.values()):
        yield "other tags", f"partitions {[one.tag for one in found]} are made of tags {sorted(set(tags.values()))}"


def _is_result(node: Node) -> bool:
    return node.target is operator.getitem
