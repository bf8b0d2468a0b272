"""How small and how large partitions may be, and how many there may be: large ones are cut, what is left over stays."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.fx import Node

from .call_facts import CallFacts, is_result_of_several
from .model import Maximum, Minimum

_STORED = ("param", "buffer", "const")


@dataclass(frozen=True)
class FoundPartition:
    """Calls that go to a backend together.

    Attributes:
        backend: Name of the backend.
        compile_specs: What is compiled for: keys and values.
        nodes: The calls, in graph order.
        rules: Places of the rules that took them, in order.
        calls: The same as rules see them, without those that take a result out of several.
        stays: Why it stays in the program, as the sort of reason and the reason; None if it is taken.
    """

    backend: str
    compile_specs: tuple[tuple[str, str], ...]
    nodes: tuple[Node, ...]
    rules: tuple[int, ...]
    calls: tuple[CallFacts, ...] = field(repr=False)
    stays: tuple[str, str] | None = None

    def size(self, unit: str) -> float:
        """Return how many `nodes`, `elements`, `macs`, `nbytes` or bytes of `weights` its calls have."""
        return size_of(self.calls, unit)


def size_of(calls: Sequence[CallFacts], unit: str) -> float:
    """Return how much calls are together."""
    if unit == "nodes":
        return len(calls)
    if unit == "weights":
        return sum(_stored_nbytes(calls).values())
    return sum(float(call.value_of(unit)) for call in calls)


def limited(partition: FoundPartition, minimum: Minimum, maximum: Maximum) -> FoundPartition:
    """Return a partition with the reason why it stays, if it is too small or too large."""
    for unit in Minimum.model_fields:
        least = getattr(minimum, unit)
        # What is not asked for is not computed.
        if least and (size := partition.size(unit)) < least:
            text = f"its partition is below the minimum: {int(size)} of {least} {unit}"
            return replace(partition, stays=("too_small", text))
    for unit, most in _limits(maximum).items():
        size = partition.size(unit)
        if size > most:
            amount = "an unknown number" if math.isinf(size) else int(size)
            text = f"it is above the maximum of a partition by itself: {amount} of {most} {unit}"
            return replace(partition, stays=("too_large", text))
    return partition


def fewest(partitions: Sequence[FoundPartition], most: int | None) -> list[FoundPartition]:
    """Return partitions, of which those that compute the least stay if there are more than so many."""
    taken = [one for one in partitions if one.stays is None]
    if most is None or len(taken) <= most:
        return list(partitions)
    ranked = sorted(taken, key=lambda one: (-one.size("macs"), -one.size("elements"), -one.size("nodes")))
    dropped = {id(one) for one in ranked[most:]}
    text = f"there are {len(taken)} partitions, {most} of which may be taken; those that compute the most are"
    return [replace(one, stays=("too_many", text)) if id(one) in dropped else one for one in partitions]


def pieces(
    nodes: Sequence[Node],
    together: Iterable[Sequence[Node]],
    calls: Mapping[Node, CallFacts],
    maximum: Maximum,
) -> list[list[Node]]:
    """Cut a partition into pieces that are not above the maximum, each as large as it can be.

    Pieces follow each other: none waits for a later one, so none waits for itself.

    Args:
        nodes: The partition, in graph order.
        together: Nodes that must not be parted, such as those of a match.
        calls: What is known of calls.
        maximum: What a piece may have. A unit that is above it by itself is a piece.
    """
    limits = _limits(maximum)
    if not limits or not any(size_of([calls[one] for one in nodes if one in calls], unit) > most
                             for unit, most in limits.items()):  # fmt: skip
        return [list(nodes)]
    made: list[list[Node]] = []
    load = _Load()
    for unit in _ordered_units(nodes, together):
        inside = [calls[one] for one in unit if one in calls]
        grown = load.with_calls(inside, limits)
        if not made or any(grown.sizes[name] > most for name, most in limits.items()):
            made.append([])
            grown = _Load().with_calls(inside, limits)
        made[-1] += unit
        load = grown
    place = {node: at for at, node in enumerate(nodes)}
    return [sorted(one, key=place.__getitem__) for one in made]


@dataclass(frozen=True)
class _Load:
    """What a piece has so far, so that it is not added up again for every call."""

    sizes: Mapping[str, float] = field(default_factory=dict)
    stored: Mapping[Node, int] = field(default_factory=dict)

    def with_calls(self, calls: Sequence[CallFacts], units: Iterable[str]) -> _Load:
        """Return the load with further calls."""
        new = {node: nbytes for node, nbytes in _stored_nbytes(calls).items() if node not in self.stored}
        more = {unit: sum(new.values()) if unit == "weights" else size_of(calls, unit) for unit in units}
        sizes = {unit: self.sizes.get(unit, 0) + size for unit, size in more.items()}
        return _Load(sizes, {**self.stored, **new} if new else self.stored)


def _ordered_units(nodes: Sequence[Node], together: Iterable[Sequence[Node]]) -> list[list[Node]]:
    """Return what must not be parted, each before what uses it; of several that can be next, the first in the graph."""
    unit_of: dict[Node, int] = {}
    for number, match in enumerate(together):
        unit_of.update((node, number) for node in match)
    for node in nodes:
        # The results of a call go where it goes.
        source = node.args[0] if is_result_of_several(node) else None
        known = unit_of.get(source) if isinstance(source, Node) else None
        if node not in unit_of:
            unit_of[node] = known if known is not None else -1 - len(unit_of)
    units: dict[int, list[Node]] = {}
    for node in nodes:
        units.setdefault(unit_of[node], []).append(node)
    inside = set(nodes)
    needs = {
        key: {unit_of[source] for node in unit for source in node.all_input_nodes if source in inside} - {key}
        for key, unit in units.items()
    }
    users: dict[int, list[int]] = {}
    for key, sources in needs.items():
        for source in sources:
            users.setdefault(source, []).append(key)
    place = {key: at for at, key in enumerate(units)}
    waiting = {key: len(sources) for key, sources in needs.items()}
    ready = [(place[key], key) for key, count in waiting.items() if not count]
    ordered: list[list[Node]] = []
    while ready:
        _, key = heapq.heappop(ready)
        ordered.append(units[key])
        for user in users.get(key, ()):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (place[user], user))
    assert len(ordered) == len(units), "matches that wait for each other were given up before"
    return ordered


def _limits(maximum: Maximum) -> dict[str, int]:
    units = {unit: getattr(maximum, unit) for unit in ("nodes", "nbytes", "weights")}
    return {unit: most for unit, most in units.items() if most is not None}


def _stored_nbytes(calls: Sequence[CallFacts]) -> dict[Node, int]:
    """Return the bytes of parameters, buffers and constants that calls read, each once."""
    found: dict[Node, int] = {}
    for call in calls:
        for source in call.node.all_input_nodes:
            value = source.meta.get("val")
            if source.op != "placeholder" or not isinstance(value, torch.Tensor) or source in found:
                continue
            if any(call.facts.is_kind(source, kind) for kind in _STORED):
                found[source] = int(value.numel()) * value.element_size()
    return found
