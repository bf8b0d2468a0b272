"""A memory that does not hold all that wants to be in it: ranges are put into gaps, and drive out what gains less."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from .fitting import Claim
from .gaps import PlacedRanges

# How often ranges may drive out others, for every range.
_EXCHANGES = 2


@dataclass(frozen=True, slots=True)
class Shelf:
    """A memory and what wants to be in it.

    Attributes:
        claims: Sizes, steps and gains, by number.
        units: What the place of each is a multiple of.
        limit: Bytes of the memory.
    """

    claims: Mapping[int, Claim]
    units: Mapping[int, int]
    limit: int

    def ranges(self, offsets: Mapping[int, int]) -> PlacedRanges:
        """Return ranges with places that are known."""
        ranges = PlacedRanges()
        for one, offset in offsets.items():
            ranges.put(one, self.claims[one], offset)
        return ranges

    def cut(self, ranges: PlacedRanges) -> None:
        """Take out what lies beyond the end of the memory."""
        for one in ranges.beyond(self.limit):
            ranges.remove(one)

    def missing(self, ranges: PlacedRanges) -> list[int]:
        """Return what is not in, what gains most first."""
        left = [one for one in self.claims if one not in ranges.offset]
        return sorted(left, key=lambda one: (-self.claims[one].gain, one))

    def holds_what_must(self, ranges: PlacedRanges) -> bool:
        """Return whether all that must be in is in."""
        return all(one in ranges.offset for one, claim in self.claims.items() if claim.must)

    def fill(self, ranges: PlacedRanges, order: Collection[int]) -> None:
        """Put what is not in yet into gaps, in the given order, after what must be in."""
        for one in sorted(
            (one for one in order if one not in ranges.offset), key=lambda one: not self.claims[one].must
        ):
            ranges.insert(one, self.claims[one], self.units[one], self.limit)

    def filled(self, ranges: PlacedRanges) -> list[PlacedRanges]:
        """Return the ranges with as much besides as gaps hold, in several orders."""
        found = []
        for order in self._orders():
            trial = ranges.copy()
            self.fill(trial, order)
            found.append(trial)
        return found

    def exchanged(self, ranges: PlacedRanges) -> PlacedRanges:
        """Let what is not in drive out what gains less, as long as that gains something."""
        left = _EXCHANGES * len(self.claims)
        improved = True
        while improved and left > 0:
            improved = False
            for one in self.missing(ranges):
                left -= 1
                trial = self._with(ranges, one)
                if trial is not None and trial.gain > ranges.gain:
                    ranges, improved = trial, True
        return ranges

    def _with(self, ranges: PlacedRanges, one: int) -> PlacedRanges | None:
        found = ranges.cheapest_place(self.claims[one], self.units[one], self.limit)
        if found is None:
            return None
        place, driven = found
        trial = ranges.copy()
        for other in driven:
            trial.remove(other)
        trial.put(one, self.claims[one], place)
        self.fill(trial, self.missing(trial))
        return trial

    def _orders(self) -> list[list[int]]:
        claims = self.claims

        def area(one: int) -> int:
            return claims[one].size * (claims[one].last - claims[one].first + 1)

        return [
            sorted(claims, key=lambda one: (-claims[one].gain, one)),
            sorted(claims, key=lambda one: (-claims[one].gain / area(one), one)),
            sorted(claims, key=lambda one: (-claims[one].gain / claims[one].size, one)),
            sorted(claims, key=lambda one: (-claims[one].size, one)),
            sorted(claims, key=lambda one: (claims[one].first, -claims[one].gain, one)),
        ]
