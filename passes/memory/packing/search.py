"""The search for a small arena: cheap packings one after another, until one meets the lower bound or time is up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from .demand import Demand, Placement, degrees, lower_bound, peak_step
from .packers import Packer, SparsePacker, packer_for
from .shared_objects import pack_shared_objects

# Estimated microseconds that optional candidates may take: so many for each range, and for one arena at most. Lowering
# takes thousands for each. Estimates, not a clock: plans do not depend on the speed of the machine.
_BUDGET_OF_RANGE = 160
_BUDGET = 800_000
_MAX_PROMOTIONS = 32
_MAX_REORDERINGS = 400


@dataclass(slots=True)
class Effort:
    """How long to search.

    Attributes:
        factor: Times the default budget.
    """

    factor: float = 1.0

    def microseconds(self, count: int) -> int:
        """Return the estimated microseconds that may be spent on so many ranges."""
        return int(self.factor * min(_BUDGET, max(_BUDGET_OF_RANGE * count, 2000)))


def smallest_placement(demand: Demand, effort: Effort | None = None, *, enough: int = 0) -> Placement:
    """Return the smallest placement found.

    Args:
        demand: What to place; pinned ranges stay where they are.
        effort: How long to search.
        enough: The search ends with the first placement of at most so many bytes.
    """
    lifelong, others = _split_lifelong(demand)
    floor = sum(demand.size[index] for index in lifelong)
    inner = demand if not lifelong else demand.restricted(others)
    bound = lower_bound(inner)
    best = Placement([], -1)
    for placement in _candidates(demand, inner, others, bound, effort or Effort()):
        if best.height < 0 or placement.height < best.height:
            best = placement
            if best.height <= max(bound, enough - floor):
                break
    if not lifelong:
        return best
    offsets = [0] * len(demand)
    for index, offset in zip(others, best.offsets, strict=True):
        offsets[index] = floor + offset
    for index, offset in zip(lifelong, accumulate((demand.size[i] for i in lifelong), initial=0), strict=False):
        offsets[index] = offset
    return Placement(offsets, floor + best.height)


def _split_lifelong(demand: Demand) -> tuple[list[int], list[int]]:
    """Separate the ranges that are needed at every step of every run.

    Nothing else can ever use their bytes, so they may as well lie at the bottom: sliding them there, and all that lay
    above them down, makes no plan larger. It makes the rest much cheaper to pack where a model has many mutable
    buffers.
    """
    everything = list(range(len(demand)))
    if demand.pinned or demand.alignment or not everything:
        return [], everything
    start, end = min(demand.first), max(demand.last)
    lifelong = [index for index in everything if demand.first[index] == start and demand.last[index] == end]
    if demand.alternatives is not None:
        lifelong = [index for index in lifelong if not demand.alternatives.excluded[demand.body[index]]]
    if not lifelong:
        return [], everything
    kept = set(lifelong)
    return lifelong, [index for index in everything if index not in kept]


def _candidates(
    demand: Demand,
    inner: Demand,
    others: Sequence[int],
    bound: int,
    effort: Effort,
) -> Iterator[Placement]:
    """Yield placements of the inner demand, the most promising first; each is computed when it is asked for."""
    packer = packer_for(inner)
    orders = _Orders(inner)
    best_order = orders.by_size()
    best = packer.pack(best_order)
    yield best
    budget = effort.microseconds(len(inner))
    affordable = budget // (packer.cost() + 1)
    if isinstance(packer, SparsePacker) and packer.cost_between() <= budget and not (inner.pinned or inner.alignment):
        yield packer.pack_between(orders.by_length(), bound)
    optional = [
        (orders.by_area, False),
        (orders.by_peak, False),
        (orders.by_size, True),
        (orders.by_conflicts, False),
        (orders.by_length, False),
    ]
    for make_order, tight in optional[:affordable]:
        candidate = make_order()
        placement = packer.pack(candidate, tight=tight)
        if placement.height < best.height:
            best, best_order = placement, candidate
        yield placement
    compacted = _compacted_official(demand, others)
    if compacted is not None:
        yield packer.pack(compacted)
    affordable -= len(optional)
    rounds = min(_MAX_PROMOTIONS, affordable // 2)
    yield from _promotions(inner, packer, best_order, rounds)
    yield from _reorderings(inner, packer, best_order, best.height, min(_MAX_REORDERINGS, affordable - rounds))


def _compacted_official(demand: Demand, others: Sequence[int]) -> list[int] | None:
    """Return the order in which packing ends no higher than the official plan.

    Each range finds at least its official place free: what was placed before it lay below it there, or is not needed at
    the same time.
    """
    if demand.pinned or demand.alignment:
        return None
    packed = pack_shared_objects(demand)
    if packed is None:
        return None
    offsets = packed.offsets
    return sorted(range(len(others)), key=lambda place: (offsets[others[place]], place))


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


def _reorderings(demand: Demand, packer: Packer, order: Sequence[int], height: int, rounds: int) -> Iterator[Placement]:
    """Yield packings of changed orders; a change that makes the plan no larger stays.

    A change moves one range to an earlier place: every second time one that ends at the top. Which one and where to is
    drawn from a sequence of numbers that is always the same.
    """
    order = list(order)
    count = len(order)
    if count < 2:
        return
    tops = _tops(demand, packer.pack(order).offsets, height) if rounds > 0 else []
    draw = 12345
    for number in range(rounds):
        draw = (draw * 6364136223846793005 + 1442695040888963407) & 0xFFFF_FFFF_FFFF_FFFF
        moved = tops[(draw >> 40) % len(tops)] if tops and number & 1 else order[(draw >> 40) % count]
        at = order.index(moved)
        to = (draw >> 20 & 0xFFFFF) % count
        if to == at:
            continue
        changed = order.copy()
        changed.insert(to, changed.pop(at))
        placement = packer.pack(changed)
        yield placement
        if placement.height <= height:
            order, height = changed, placement.height
            tops = _tops(demand, placement.offsets, height)


def _tops(demand: Demand, offsets: Sequence[int], height: int) -> list[int]:
    return [i for i, offset in enumerate(offsets) if offset + demand.size[i] >= height and i not in demand.pinned]


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
