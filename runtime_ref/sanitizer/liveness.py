"""Which tensors are still to be read after each instruction, and which of them another one would damage.

Values are what counts, not memory: a move makes a value another tensor, and what the value is read for later keeps
that tensor alive from then on. Sets of values are bits of one integer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import or_

from exirkit.runtime_ref.checks.plan_facts import PlanFacts

from .allocations import Allocation, AllocationMap
from .effects import Effect


class Liveness:
    """What is still to be read, before and after every instruction of one method.

    Attributes:
        before: For each instruction the values that it or a later one reads; the last entry is the end.
    """

    def __init__(self, effects: Sequence[Effect], places: AllocationMap, ends: Iterable[int]) -> None:
        """Walk backwards until nothing changes.

        Args:
            effects: All instructions.
            places: Which values are views of which.
            ends: What is read when the method has ended: outputs, and state.
        """
        self._effects = effects
        self._views: dict[int, int] = {}
        for view, base in places.base.items():
            self._views[base] = self._views.get(base, 0) | 1 << view
        self.before: list[int] = [0] * len(effects) + [bits(ends)]
        kills = [self._killed(effect.kills) for effect in effects]
        reads = [bits(effect.reads) for effect in effects]
        changed = True
        while changed:
            changed = False
            for number in range(len(effects) - 1, -1, -1):
                live = self.after(number)
                found = (live & ~kills[number]) | reads[number]
                for source, target in effects[number].handles:
                    found |= (live >> target & 1) << source
                if found != self.before[number]:
                    self.before[number] = found
                    changed = True

    def after(self, number: int) -> int:
        """Return the values that are read after an instruction."""
        live = 0
        for following in self._effects[number].following:
            live |= self.before[following]
        return live

    def _killed(self, kills: Iterable[int]) -> int:
        killed = 0
        for index in kills:
            killed |= 1 << index | self._views.get(index, 0)
        return killed


class Conflicts:
    """Which values may lie, at some time, where another one may write."""

    def __init__(self, places: AllocationMap, facts: PlanFacts, count: int) -> None:
        self._places = places
        # A value may show the memory of everything that it may become.
        held: dict[int, list[Allocation]] = {}
        becoming = {target for _, target in facts.handles}
        for index in range(count):
            tensors = facts.may_have_been([index]) if index in becoming else (index,)
            found = [places.of[one] for one in sorted(tensors) if one in places.of]
            if found:
                held[index] = found
        self._held = held
        entries = [(place, index) for index, all_places in held.items() for place in all_places]
        self._arenas = {
            arena: _Overlaps([(place, index) for place, index in entries if place.arena == arena])
            for arena in {place.arena for place, _ in entries}
        }

    def of(self, index: int, candidates: int) -> tuple[int, ...]:
        """Return those of the `candidates` (bits) that share bytes with value `index` and are not views of it."""
        found = 0
        for place in self._held.get(index, ()):
            found |= self._arenas[place.arena].with_place(place)
        return tuple(
            one
            for one in members(found & candidates & ~(1 << index))
            if self._places.owner(one) != self._places.owner(index)
        )


class _Overlaps:
    """AllocationMap of one arena, by their starts and by their ends."""

    def __init__(self, entries: Sequence[tuple[Allocation, int]]) -> None:
        by_start = sorted((place.start, index) for place, index in entries)
        by_end = sorted(((place.end, index) for place, index in entries), reverse=True)
        self._starts = [start for start, _ in by_start]
        self._ends = [-end for end, _ in by_end]
        self._started: list[int] = [0, *accumulate((1 << index for _, index in by_start), or_)]
        self._unended: list[int] = [0, *accumulate((1 << index for _, index in by_end), or_)]

    def with_place(self, place: Allocation) -> int:
        """Return the values that may share bytes with a place; those with several places may not really do."""
        started: int = self._started[bisect_left(self._starts, place.end)]
        return started & self._unended[bisect_right(self._ends, -place.start - 1)]


def bits(indices: Iterable[int]) -> int:
    """Return a set of values as the bits of a number."""
    found = 0
    for index in indices:
        found |= 1 << index
    return found


def members(found: int) -> Iterator[int]:
    """Yield the values of a set, in rising order."""
    while found:
        lowest = found & -found
        yield lowest.bit_length() - 1
        found ^= lowest
