"""Partitions of many random graphs, each checked by code that shares nothing with what made them."""

from __future__ import annotations

import multiprocessing
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, cast

from torch.fx import Node

from exirkit.ir import ContractError
from exirkit.passes import DELEGATION_TAG, circles_among, grown_partitions, partitions_of

from .graphs import Instance, draw_instance
from .reachability import units_on_circles

_CHUNK = 2_000


@dataclass
class Tally:
    """What became of instances.

    Attributes:
        instances: How many were tried.
        partitions: How many partitions were grown.
        calls: How many calls are in them.
        groups: How many groups were wanted.
        groups_given_up: How many of them would have waited for themselves or for each other.
        tag_sets_taken: How many random tag sets could be called in some order.
        tag_sets_refused: How many could not.
        findings: What is wrong, with the number of the instance.
    """

    instances: int = 0
    partitions: int = 0
    calls: int = 0
    groups: int = 0
    groups_given_up: int = 0
    tag_sets_taken: int = 0
    tag_sets_refused: int = 0
    findings: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Add what another one has."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def run_campaign(instances: int, seed: int, workers: int = 1, listen: Callable[[Tally], None] | None = None) -> Tally:
    """Check so many instances.

    Args:
        instances: How many.
        seed: Of the campaign; results do not depend on `workers`.
        workers: How many processes.
        listen: Called with the sums after each chunk.
    """
    chunks = [(seed, start, min(_CHUNK, instances - start)) for start in range(0, instances, _CHUNK)]
    total = Tally()
    for tally in _done(chunks, workers):
        total.add(tally)
        if listen is not None:
            listen(total)
    return total


def _done(chunks: Sequence[tuple[int, int, int]], workers: int) -> Iterator[Tally]:
    if workers <= 1:
        yield from map(run_chunk, chunks)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap(run_chunk, chunks)


def run_chunk(chunk: tuple[int, int, int]) -> Tally:
    """Check instances: the seed, the number of the first one, and how many."""
    seed, start, count = chunk
    tally = Tally()
    for number in range(start, start + count):
        instance = draw_instance(seed, number)
        findings = [*check_growing(instance, tally), *check_tags(instance, tally)]
        tally.instances += 1
        tally.findings += [f"seed {seed}, instance {number}: {one}" for one in findings]
    return tally


def check_growing(instance: Instance, tally: Tally) -> Iterator[str]:
    """Grow partitions, and yield what is wrong with them."""
    graph, groups = instance.graph, list(instance.groups)
    tally.groups += len(groups)
    while True:
        units = {node: ("group", place) for place, group in enumerate(groups) for node in group}
        circles = circles_among(graph, groups)
        really = {name[1] for name in units_on_circles(graph, units) if isinstance(name, tuple)}
        if {place for circle in circles for place in circle} != really:
            yield f"circles {circles} are said to be, and groups {sorted(really)} are on some"
            return
        if not circles:
            break
        tally.groups_given_up += len(circles)
        given_up = {circle[-1] for circle in circles}
        groups = [group for place, group in enumerate(groups) if place not in given_up]
    found = grown_partitions(graph, instance.takers, groups, joins=cast(Any, instance.joins))
    tally.partitions += len(found)
    tally.calls += sum(map(len, found))
    yield from _wrong_with(found, instance, groups)


def _wrong_with(found: Sequence[Sequence[Node]], instance: Instance, groups: Sequence[Sequence[Node]]) -> Iterator[str]:
    home = {node: place for place, nodes in enumerate(found) for node in nodes}
    wanted = {
        node for node in instance.graph.nodes
        if (node.args[0] if _is_result(node) else node) in instance.takers
    }  # fmt: skip
    if sum(map(len, found)) != len(home) or home.keys() != wanted:
        yield "the partitions are not the calls that are taken, each once"
    if any(len({instance.takers[node] for node in nodes if node in instance.takers}) != 1 for nodes in found):
        yield "a partition has calls of two takers"
    if any(len({home.get(node) for node in group}) != 1 for group in groups):
        yield "a group is apart"
    stuck = units_on_circles(instance.graph, {node: ("partition", place) for node, place in home.items()})
    if stuck:
        yield f"partitions wait for themselves: {sorted(map(str, stuck))}"


def check_tags(instance: Instance, tally: Tally) -> Iterator[str]:
    """Make partitions of random tags, and yield what is wrong: they are refused if and only if no order is right."""
    computing = [node for node in instance.graph.nodes if node.op == "call_function" and not _is_result(node)]
    tags = {node: ("tag", node.meta[DELEGATION_TAG]) for node in computing if DELEGATION_TAG in node.meta}
    stuck = units_on_circles(instance.graph, tags)
    try:
        found = partitions_of(instance.graph)
    except ContractError as error:
        tally.tag_sets_refused += 1
        if error.code != "EK492" or not stuck:
            yield f"tags are refused with {error.code}, and {'nothing waits' if not stuck else 'something waits'}"
        return
    tally.tag_sets_taken += 1
    if stuck:
        yield f"tags are taken, and {sorted(map(str, stuck))} wait for themselves"
    if {("tag", one.tag) for one in found} != set(tags.values()):
        yield f"partitions {[one.tag for one in found]} are made of tags {sorted(set(tags.values()))}"


def _is_result(node: Node) -> bool:
    return node.target is operator.getitem
