"""Ranges that have their places in a memory, and the gaps between them."""

from __future__ import annotations

from collections.abc import Iterator

from .fitting import Claim


class PlacedRanges:
    """Ranges with places.

    Attributes:
        offset: First byte of each range, by its number.
    """

    def __init__(self) -> None:
        self.offset: dict[int, int] = {}
        self._claims: dict[int, Claim] = {}

    def put(self, number: int, claim: Claim, offset: int) -> None:
        """Put a range at a place, whatever is there."""
        self.offset[number] = offset
        self._claims[number] = claim

    def remove(self, number: int) -> None:
        """Take a range out."""
        del self.offset[number], self._claims[number]

    def end(self, number: int) -> int:
        """Return the byte after the last one of a range."""
        return self.offset[number] + self._claims[number].size

    def beyond(self, limit: int) -> set[int]:
        """Return the ranges that reach beyond so many bytes."""
        return {number for number in self.offset if self.end(number) > limit}

    @property
    def peak(self) -> int:
        """Bytes of the fullest step."""
        steps = [step for claim in self._claims.values() for step in (claim.first, claim.last)]
        return self.live_bytes(Claim(0, min(steps), max(steps), 0)) if steps else 0

    @property
    def height(self) -> int:
        """Bytes of a memory that holds the ranges at their places."""
        return max((self.end(number) for number in self.offset), default=0)

    def insert(self, number: int, claim: Claim, unit: int, limit: int) -> bool:
        """Put a range into the lowest gap that holds it, if there is one.

        Args:
            number: Number of the range, which is not in yet.
            claim: Its size and its steps.
            unit: What its place is a multiple of.
            limit: Bytes of the memory.

        Returns:
            Whether there is a gap.
        """
        place = 0
        for start, end in sorted(self._in_the_way(claim)):
            if place + claim.size <= start:
                break
            place = max(place, end + -end % unit)
        if place + claim.size > limit:
            return False
        self.put(number, claim, place)
        return True

    def cheapest_place(self, claim: Claim, unit: int, limit: int) -> tuple[int, set[int]] | None:
        """Return where a range would drive out what gains least, and what that is; None if it drives out too much.

        Args:
            claim: Its size and steps. It has to gain more than what it drives out, none of which must be in.
            unit: What its place is a multiple of.
            limit: Bytes of the memory.
        """
        there = [
            (self.offset[number], self.offset[number] + other.size, number, other)
            for number, other in self._claims.items()
            if other.size and other.first <= claim.last and claim.first <= other.last
        ]
        best: tuple[int, int, set[int]] | None = None
        for place in sorted({0, *(end + -end % unit for _, end, _, _ in there)}):
            end = place + claim.size
            driven = [one for one in there if one[0] < end and place < one[1]]
            loss = sum(other.gain for *_, other in driven)
            if end > limit or any(other.must for *_, other in driven) or loss >= claim.gain:
                continue
            if best is None or loss < best[0]:
                best = loss, place, {number for _, _, number, _ in driven}
        return None if best is None else best[1:]

    @property
    def gain(self) -> int:
        """What the ranges that need not be in gain."""
        return sum(claim.gain for claim in self._claims.values() if not claim.must)

    def copy(self) -> PlacedRanges:
        """Return the same ranges, to try something."""
        twin = PlacedRanges()
        twin.offset, twin._claims = dict(self.offset), dict(self._claims)
        return twin

    def live_bytes(self, claim: Claim) -> int:
        """Return the most bytes of ranges that are needed at one step at which a claim is needed too."""
        changes: list[tuple[int, int]] = []
        for other in self._claims.values():
            if other.first <= claim.last and claim.first <= other.last:
                changes += [(max(other.first, claim.first), other.size), (other.last + 1, -other.size)]
        most = live = 0
        for _, change in sorted(changes):
            live += change
            most = max(most, live)
        return most

    def _in_the_way(self, claim: Claim) -> Iterator[tuple[int, int]]:
        for number, other in self._claims.items():
            if other.size and other.first <= claim.last and claim.first <= other.last:
                yield self.offset[number], self.offset[number] + other.size
