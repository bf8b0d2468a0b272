"""The search for a small arena: cheap packings one after another, until one meets the lower bound or time is up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from .packing import Demand, Packer, Placement, SparsePacker, degrees, packer_for, peak_bytes, peak_step
from .shared_objects import pack_shared_objects

# Estimated microseconds that optional candidates may take for one arena. An estimate, not a clock: plans do not depend
# on the speed of the machine.
_BUDGET = 800_000
_MAX_PROMOTIONS = 32


def smallest_placement(demand: Demand, official_order: Sequence[int]) -> Placement:
    """Return the smallest placement found.

    Args:
        demand: What to place; pinned ranges stay where they are.
        official_order: All indices, in the order in which the official planner takes them.
    """
    lifelong, others = _split_lifelong(demand)
    floor = sum(demand.size[index] for index in lifelong)
    inner = _restricted(demand, others)
    bound = peak_bytes(inner)
    best = Placement([], -1)
    for placement in _candidates(demand, inner, others, official_order, bound):
        if best.height < 0 or placement.height < best.height:
            best = placement
        if best.height <= bound:
            break
    offsets = [0] * len(demand)
    for index, offset in zip(others, best.offsets, strict=True):
        offsets[index] = floor + offset
    for index, offset in zip(lifelong, accumulate((demand.size[i] for i in lifelong), initial=0), strict=False):
        offsets[index] = offset
    return Placement(offsets, floor + best.height)


def _split_lifelong(demand: Demand) -> tuple[list[int], list[int]]:
    """Separate the ranges that are needed at every step.

    Nothing else can ever use their bytes, so they may as well lie at the bottom: sliding them there, and all that lay
    above them down, makes no plan larger. It makes the rest much cheaper to pack where a model has many mutable
    buffers.
    """
    everything = list(range(len(demand)))
    if demand.pinned or not everything:
        return [], everything
    start, end = min(demand.first), max(demand.last)
    lifelong = [index for index in everything if demand.first[index] == start and demand.last[index] == end]
    kept = set(lifelong)
    return lifelong, [index for index in everything if index not in kept]


def _restricted(demand: Demand, indices: Sequence[int]) -> Demand:
    if len(indices) == len(demand):
        return demand
    return Demand(
        [demand.first[index] for index in indices],
        [demand.last[index] for index in indices],
        [demand.size[index] for index in indices],
    )


def _candidates(
    demand: Demand, inner: Demand, others: Sequence[int], official_order: Sequence[int], bound: int
) -> Iterator[Placement]:
    """Yield placements of the inner demand, the most promising first; each is computed when it is asked for."""
    packer = packer_for(inner)
    orders = _Orders(inner)
    best = packer.pack(orders.by_size())
    best_order = orders.by_size()
    yield best
    affordable = _BUDGET // (packer.cost() + 1)
    if isinstance(packer, SparsePacker) and not inner.pinned and affordable:
        yield packer.pack_between(orders.by_length(), bound)
    optional = [
        (orders.by_area(), False),
        (orders.by_peak(), False),
        (orders.by_size(), True),
        (orders.by_conflicts(), False),
    ]
    for order, tight in optional[:affordable]:
        placement = packer.pack(order, tight=tight)
        if placement.height < best.height:
            best, best_order = placement, order
        yield placement
    if not demand.pinned:
        packed = pack_shared_objects(demand, official_order)
        if packed is not None:
            offsets = packed[0].offsets
            # Each range finds at least its official place free: what was placed before it lay below it there, or is
            # not needed at the same time. So this plan ends no higher than the official one.
            order = sorted(range(len(inner)), key=lambda place: (offsets[others[place]], place))
            yield packer.pack(order)
    yield from _promotions(inner, packer, best_order, min(_MAX_PROMOTIONS, affordable - 5))


def _promotions(demand: Demand, packer: Packer, order: Sequence[int], rounds: int) -> Iterator[Placement]:
    """Yield the packings that follow when the range that ends highest is moved to the front of the order."""
    order = list(order)
    for _ in range(rounds):
        placement = packer.pack(order)
        yield placement
        top = max(order, key=lambda i: (placement.offsets[i] + demand.size[i], -i))
        if top == order[0]:
            return
        order.remove(top)
        order.insert(0, top)


class _Orders:
    """Orders in which the ranges of a demand may be placed; each ends in the index, so that it is one order only."""

    def __init__(self, demand: Demand) -> None:
        self._demand = demand
        self._length = [last - first + 1 for first, last in zip(demand.first, demand.last, strict=True)]
        self._indices = range(len(demand))

    def by_size(self) -> list[int]:
        size, length, first = self._demand.size, self._length, self._demand.first
        return sorted(self._indices, key=lambda i: (-size[i], -length[i], first[i], i))

    def by_area(self) -> list[int]:
        size, length, first = self._demand.size, self._length, self._demand.first
        return sorted(self._indices, key=lambda i: (-size[i] * length[i], first[i], i))

    def by_length(self) -> list[int]:
        length, first = self._length, self._demand.first
        return sorted(self._indices, key=lambda i: (-length[i], first[i], i))

    def by_conflicts(self) -> list[int]:
        conflicts, size = degrees(self._demand), self._demand.size
        return sorted(self._indices, key=lambda i: (-conflicts[i], -size[i], i))

    def by_peak(self) -> list[int]:
        """What is needed when most is needed comes first, the longest of it lowest: there it leaves no gap."""
        demand, length, size = self._demand, self._length, self._demand.size
        step = peak_step(demand)
        at_peak = [first <= step <= last for first, last in zip(demand.first, demand.last, strict=True)]
        return sorted(
            self._indices,
            key=lambda i: (not at_peak[i], -length[i] if at_peak[i] else 0, -size[i], -length[i], demand.first[i], i),
        )
