"""Finding the parts of a program that are to be computed band by band, so that it needs less memory at once.

A region is a run of calls of which only the last result is used behind it. Computed in bands of that result, it holds
what it reads, the bands that are done, and the values of one band. Bands overlap where windows do: what lies in two
bands is computed twice, and that is what a region costs. The program is divided into regions and calls that stay as
they are, such that each needs at most the given memory, at the least cost.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import facts_of, underlying
from exirkit.passes.analysis import LiveValues, overwritable_nodes, result_sizes, shares_memory
from exirkit.patterns import Target

from .bands import Band, Call, Operand, Reading, call_of, first_value, read

_COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of bands that are considered."""

_LONGEST = 600
"""Calls of the longest region that is considered."""

_MOST_REPEATED = 2.0
"""How much of a region may be computed again, as a part of what it takes without bands."""


@dataclass(frozen=True)
class Region:
    """Calls that are computed band by band.

    Attributes:
        result: The last one, whose bands are joined.
        nodes: All of them, in order.
        bands: Bands of the result, which cover it.
        readings: For each band, how the calls that it needs are computed.
        nbytes: Bytes that are alive at once while the region is computed.
        cost: What is computed more than once, and what is copied, as a time by the target description, in ns.
    """

    result: Node
    nodes: tuple[Node, ...]
    bands: tuple[Band, ...]
    readings: tuple[Mapping[Node, Reading], ...]
    nbytes: float
    cost: float


def find_regions(
    program: ExportedProgram, limit: float, target: Target, *, in_place: bool, exact: bool
) -> list[Region] | None:
    """Return the regions with which a program needs at most so much memory, at the least cost.

    Args:
        program: In the Edge dialect.
        limit: Bytes that may be alive at once.
        target: What calls cost.
        in_place: Whether results are planned over arguments that nothing else needs.
        exact: Leave out products of matrices, whose sums may be rounded in another order when they have fewer rows.

    Returns:
        Regions in order, none if none are needed; None if the limit cannot be met.
    """
    return _Division(_Facts(program, target, in_place=in_place, exact=exact), limit).cheapest()


@dataclass(frozen=True)
class _Cover:
    """One way to compute the bands of a result, followed back from it.

    Attributes:
        bands: Bands of the result.
        readings: For each band, how each call that it needs is computed, by the place of the call.
        costs: What is computed more than once in all calls from a place on, by the place.
    """

    bands: tuple[Band, ...]
    readings: list[dict[int, Reading]] = field(default_factory=list)
    costs: dict[int, float] = field(default_factory=dict)


class _Facts:
    """What is known of a program's calls, by their places in the graph."""

    def __init__(self, program: ExportedProgram, target: Target, *, in_place: bool, exact: bool) -> None:
        self.nodes: list[Node] = list(program.graph.nodes)
        self.place = {node: place for place, node in enumerate(self.nodes)}
        self.live = LiveValues(program, in_place=in_place)
        self.in_place = in_place
        sizes = list(map(result_sizes, self.nodes))
        # Of several results regions use the first; the others are there while the call runs.
        self.nbytes = [one[0] if one else 0.0 for one in sizes]
        self.beside = [sum(one[1:]) for one in sizes]
        self.is_sharing = list(map(shares_memory, self.nodes))
        self._sizes: dict[int, tuple[int, ...]] = {}
        self._overwritable: dict[int, list[int]] = {}
        self._estimates: dict[int, float] = {}
        self.target = target
        self._exact = exact
        self._calls: dict[int, Call | None] = {}
        self._readings: dict[tuple[int, Band], Reading | None] = {}

    def call(self, place: int) -> Call | None:
        if place not in self._calls:
            node = self.nodes[place]
            is_product = node.op == "call_function" and facts_of(underlying(node.target)).bands == "product"
            self._calls[place] = None if self._exact and is_product else call_of(node)
        return self._calls[place]

    def reading(self, place: int, band: Band) -> Reading | None:
        key = (place, band)
        if key not in self._readings:
            call = self.call(place)
            self._readings[key] = None if call is None else read(self.nodes[place], call, band)
        return self._readings[key]

    def is_constant(self, place: int) -> bool:
        """Return whether a value depends on constants alone: it is computed in front of a region, not in it."""
        return not self.live.varies(self.nodes[place])

    def sizes(self, place: int) -> tuple[int, ...]:
        """Return the sizes of a result, or of the first of several."""
        if place not in self._sizes:
            self._sizes[place] = tuple(first_value(self.nodes[place]).shape)
        return self._sizes[place]

    def share(self, place: int, reading: Reading) -> float:
        """Return which part of a result is computed."""
        return reading.result.size / self.sizes(place)[reading.result.dim]

    def overwritable(self, place: int) -> list[int]:
        """Return the places of arguments that a result may lie over."""
        if place not in self._overwritable:
            self._overwritable[place] = [self.place[one] for one in overwritable_nodes(self.nodes[place])]
        return self._overwritable[place]

    def estimate(self, place: int) -> float:
        """Return the time of a call in nanoseconds."""
        if place not in self._estimates:
            self._estimates[place] = self.target.estimate_of(self.nodes[place])
        return self._estimates[place]

    def copying(self, nbytes: float) -> float:
        """Return the time that copying takes in nanoseconds."""
        known = self.target.cost_ns("aten.slice_copy.Tensor", elements=int(nbytes) // 4)
        return nbytes / 4 if known is None else known


@dataclass(frozen=True)
class _Way:
    """One way to divide the calls up to a place.

    Attributes:
        cost: What it costs in nanoseconds beyond what they take undivided.
        region: The region that ends there; without one, the last call stays as it is.
        start: Place at which the last part begins.
    """

    cost: float
    region: Region | None
    start: int


class _Division:
    """Divides one program.

    Places count nodes of the graph; a program is divided behind them.
    """

    def __init__(self, facts: _Facts, limit: float) -> None:
        self.facts = facts
        self.limit = limit
        live = facts.live
        self.needs = [live.at(node) for node in facts.nodes]
        # Bytes that are alive between a node and the next one.
        self.between = [live.behind(node) for node in facts.nodes]
        # The cheapest way to each place.
        self._best = [_Way(0.0, None, -1), *[_Way(math.inf, None, -1)] * len(facts.nodes)]
        self.too_large = [place for place, nbytes in enumerate(self.needs) if nbytes > limit]

    def cheapest(self) -> list[Region] | None:
        """Return the regions of the cheapest division."""
        if not self.too_large:
            return []
        count = len(self.facts.nodes)
        for place in range(count):
            before = self._best[place]
            if self.needs[place] <= self.limit and before.cost < math.inf:
                self._best[place + 1] = _Way(before.cost, None, place)
            if place in self._cuts and place >= self.too_large[0]:
                self._end_regions_at(place)
        if self._best[count].cost == math.inf:
            return None
        found: list[Region] = []
        place = count
        while place > 0:
            way = self._best[place]
            found += [way.region] if way.region is not None else []
            place = way.start
        return found[::-1]

    @cached_property
    def _cuts(self) -> frozenset[int]:
        """Places behind which less is alive than before or behind them, or in front of what is too large."""
        between = self.between
        last = len(between) - 2
        return frozenset(
            place
            for place in range(last + 1)
            if place == last
            or self.needs[place + 1] > self.limit
            or between[place] < max(between[max(0, place - 1)], between[place + 1])
        )

    def _end_regions_at(self, end: int) -> None:
        """Take the cheapest way that ends with a region whose result is at a place, if it is cheaper than the best."""
        call = self.facts.call(end)
        # Of several results the first one is taken out by a call that follows.
        is_single = isinstance(self.facts.nodes[end].meta.get("val"), torch.Tensor)
        is_possible = call is not None and is_single and self._joining(end) <= self.limit
        starts = self._starts(end) if is_possible else []
        for dim, size in enumerate(call.shape if call is not None else ()):
            done: set[int] = set()
            for count in sorted({*_COUNTS, min(size, _COUNTS[-1])}):
                if not 1 < count <= size or done.issuperset(starts):
                    continue
                cover = self._cover(end, _equal_bands(dim, size, count), self._best[end + 1].cost)
                for start in starts:
                    if start not in done and start in cover.costs and self._end_region(start, end, cover):
                        # More bands compute more twice: the first number that does is the one.
                        done.add(start)
                if not cover.costs:
                    break

    def _end_region(self, start: int, end: int, cover: _Cover) -> bool:
        """Take the way that ends with one region, if it is cheaper than the best; return whether the limit is met."""
        before, best = self._best[start], self._best[end + 1]
        if before.cost + cover.costs[start] >= best.cost:
            return False
        region = self._region(start, end, cover)
        if region is None:
            return False
        if before.cost + region.cost < best.cost:
            self._best[end + 1] = _Way(before.cost + region.cost, region, start)
        return True

    def _starts(self, end: int) -> list[int]:
        """Return where regions may begin that end at a place: such that nothing else of them is used behind it."""
        place_of, nodes = self.facts.place, self.facts.nodes
        # It has to take something in that is too large.
        latest = max((place for place in self.too_large if place <= end), default=-1)
        found = []
        for place in range(end, max(-1, end - _LONGEST), -1):
            node = nodes[place]
            if self.facts.is_constant(place):
                continue
            if node.op != "call_function" or self.facts.call(place) is None:
                break
            if place != end and any(place_of[user] > end for user in node.users):
                break
            if place <= latest and place - 1 in self._cuts:
                found.append(place)
        return found

    def _cover(self, end: int, bands: tuple[Band, ...], most: float) -> _Cover:
        """Follow bands of a result back through the calls that it is made of, as far as that goes, and costs less."""
        facts = self.facts
        cover = _Cover(bands, [{} for _ in bands])
        wanted: list[dict[int, Band]] = [{end: band} for band in bands]
        cost = whole = 0.0
        for place in range(end, max(-1, end - _LONGEST), -1):
            call = facts.call(place)
            if facts.is_constant(place):
                cover.costs[place] = cost
                continue
            if call is None:
                break
            places = 0
            for want, readings in zip(wanted, cover.readings, strict=True):
                band = want.get(place)
                if band is None:
                    continue
                reading = None if band is _WHOLE else facts.reading(place, band)
                if reading is None:
                    return cover
                self._pass_on(call, reading, want)
                readings[place] = reading
                places += reading.result.size
            if places:
                band = next(readings[place].result for readings in cover.readings if place in readings)
                once = facts.estimate(place)
                cost += max(0.0, places / facts.sizes(place)[band.dim] - 1) * once
                whole += once
            if cost > _MOST_REPEATED * whole or cost >= most:
                break
            cover.costs[place] = cost
        return cover

    def _pass_on(self, call: Call, reading: Reading, want: dict[int, Band]) -> None:
        """Note what a call reads: the smallest band with all that is read of a value."""
        place = self.facts.place
        banded = {(one.name, one.place) for one in reading.operands}
        for name, number, node in call.tensors:
            if (name, number) not in banded:
                want[place[node]] = _WHOLE
        for one in reading.operands:
            known = want.get(place[one.node])
            is_alike = known is None or known.dim == one.band.dim
            want[place[one.node]] = one.band.joined(known) if is_alike else _WHOLE

    def _region(self, start: int, end: int, cover: _Cover) -> Region | None:
        """Return a region, or None if it needs more than the limit."""
        facts = self.facts
        before, most, copied = self.between[start - 1] if start else 0.0, 0.0, 0.0
        each = facts.nbytes[end] / facts.sizes(end)[cover.bands[0].dim]
        # From the last one on, when most of the result is there.
        for band, readings in zip(reversed(cover.bands), reversed(cover.readings), strict=True):
            done = before + each * band.start
            values = _BandValues(facts, start, readings)
            values.compute_all(end, self.limit - done)
            most, copied = max(most, done + values.most), copied + values.copied
            if most > self.limit:
                return None
        cost = cover.costs[start] + facts.copying(copied + facts.nbytes[end])
        nbytes = max(most, self._joining(end))
        nodes = tuple(facts.nodes[place] for place in range(start, end + 1) if not facts.is_constant(place))
        of_nodes = tuple(
            {facts.nodes[place]: readings[place] for place in sorted(readings) if place >= start}
            for readings in cover.readings
        )
        return Region(facts.nodes[end], nodes, cover.bands, of_nodes, nbytes, cost)

    def _joining(self, end: int) -> float:
        """Return the bytes that are alive when the bands of a result are joined."""
        return self.between[end] + self.facts.nbytes[end]


_WHOLE = Band(-1, 0, 0)
"""Stands for a value of which all is read."""


class _BandValues:
    """Counts the bytes of one band's values while they are computed.

    Args:
        facts: Of the program.
        start: Place of the first call of the region.
        readings: How calls are computed, by their place.

    Attributes:
        most: The most bytes at once.
        copied: Bytes of copies of parts of values.
    """

    def __init__(self, facts: _Facts, start: int, readings: Mapping[int, Reading]) -> None:
        self.most = self.copied = 0.0
        self._facts = facts
        self._readings = {place: reading for place, reading in readings.items() if place >= start}
        self._now = 0.0
        # The places of the calls whose memory values lie in, its bytes, and how often it is yet to be read.
        self._owner: dict[int, int] = {}
        self._held: dict[int, float] = {}
        self._reads: dict[int, int] = {}

    def compute_all(self, end: int, limit: float) -> None:
        """Count all calls, up to the first one with which there are more bytes than a limit."""
        inside = sorted(self._readings)
        self._reads_of = Counter(source for place in inside for source in self._inner(place))
        self._reads_of[end] += 1
        for place in inside:
            self._compute(place)
            if self.most > limit:
                return

    def _inner(self, place: int) -> list[int]:
        """Return the values of the region of which a call reads bands."""
        sources = (self._facts.place[one.node] for one in self._readings[place].operands)
        return [source for source in sources if source in self._readings]

    def _compute(self, place: int) -> None:
        """Count what a call makes, and let go what nothing needs behind it."""
        copies = sum(map(self._copy, self._readings[place].operands))
        inner = self._inner(place)
        self._raise(copies)
        owner = self._owner_of(place, inner, copies)
        self._now -= copies
        self._owner[place] = owner
        self._reads[owner] = self._reads.get(owner, 0) + self._reads_of[place]
        for source in inner:
            self._reads[self._owner[source]] -= 1
        for one in {owner, *(self._owner[source] for source in inner)}:
            if not self._reads[one]:
                self._now -= self._held.pop(one, 0.0)

    def _owner_of(self, place: int, inner: Sequence[int], copies: float) -> int:
        """Return in whose memory a result lies, which is counted if it is its own."""
        if self._facts.is_sharing[place] and inner and not copies:
            return self._owner[inner[0]]
        over = self._overwritten(place) if self._facts.in_place and not copies else None
        if over is not None:
            return self._owner[over]
        share = self._facts.share(place, self._readings[place])
        # What shares a copy keeps it.
        self._held[place] = copies if self._facts.is_sharing[place] else share * self._facts.nbytes[place]
        self._raise(self._held[place] + share * self._facts.beside[place])
        self._now -= share * self._facts.beside[place]
        return place

    def _raise(self, nbytes: float) -> None:
        self._now += nbytes
        self.most = max(self.most, self._now)

    def _copy(self, operand: Operand) -> float:
        """Return the bytes of the copies that are made of an operand: of a part of it, and padded."""
        facts, band, padding = self._facts, operand.band, operand.padding
        source = facts.place[operand.node]
        size = facts.sizes(source)[band.dim]
        held = self._readings[source].result if source in self._readings else None
        start, stop = (0, size) if held is None else (held.start, held.stop)
        places = 0 if (start, stop) == (band.start, band.stop) else band.size
        if padding is not None:
            places += band.size + padding.before + padding.after
        found = facts.nbytes[source] / size * places
        self.copied += found
        return found

    def _overwritten(self, place: int) -> int | None:
        """Return the operand over which the result is planned, if there is one."""
        facts, readings = self._facts, self._readings
        for source in facts.overwritable(place):
            if source in readings and self._reads.get(self._owner.get(source, -1)) == 1:
                is_alike = readings[place].result == readings[source].result
                if is_alike and facts.nbytes[place] == facts.nbytes[source]:
                    return source
        return None


def _equal_bands(dim: int, size: int, count: int) -> tuple[Band, ...]:
    """Divide a dim into bands that differ by one place at most."""
    ends = [size * one // count for one in range(count + 1)]
    return tuple(Band(dim, start, stop) for start, stop in itertools.pairwise(ends))
