"""Which of many ranges to put into a memory that does not hold them all: the ones that gain most.

Only the sum of live bytes is looked at; whether the chosen ones can be placed without gaps is for a planner to say.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

# Choices that are looked at in all: enough to choose from about a dozen ranges that are live at once exactly.
_CHOICES = 300_000
_FEWEST_STATES, _MOST_STATES = 64, 16_384

_Chain = tuple[int, Any] | None


@dataclass(frozen=True, slots=True)
class Claim:
    """What wants to be in the memory.

    Attributes:
        size: Bytes, more than 0.
        first: First step that needs them.
        last: Last step that needs them.
        gain: What is won if it is in; 0 or more.
        must: Whether it has to be in.
    """

    size: int
    first: int
    last: int
    gain: int
    must: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """What to put in.

    Attributes:
        chosen: Numbers of the claims that are in, in order.
        gain: What the optional ones among them gain.
        is_best: Whether no choice within the limit gains more.
    """

    chosen: list[int]
    gain: int
    is_best: bool


def choose_claims(claims: Sequence[Claim], limit: int) -> Choice | None:
    """Return the claims that gain most while no step needs more than so many bytes.

    A walk over the steps keeps, for every set of chosen claims that are live, the best way to it. Where these become
    too many the best ones are kept, and the result is compared with those of simple orders.

    Returns:
        The choice; None if those that must be in are too much already.
    """
    swept = _sweep(claims, limit)
    if swept is None or swept.is_best:
        return swept
    listed = [swept, *(_in_order(claims, limit, order) for order in _orders(claims))]
    return max(listed, key=lambda choice: choice.gain)


class Load:
    """Bytes that are needed at each step.

    Args:
        spans: First and last steps that will be asked about.
    """

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._steps = np.unique(np.asarray([step for span in spans for step in span], dtype=np.int64))
        self._bytes: npt.NDArray[np.int64] = np.zeros(len(self._steps), dtype=np.int64)

    def most(self, first: int, last: int) -> int:
        """Return the most bytes needed at a step from first to last."""
        low, high = np.searchsorted(self._steps, (first, last + 1))
        return int(self._bytes[low:high].max(initial=0))

    @property
    def peak(self) -> int:
        """Bytes of the fullest step."""
        return int(self._bytes.max(initial=0))

    def add(self, first: int, last: int, nbytes: int) -> None:
        """Need so many bytes more; fewer if negative."""
        low, high = np.searchsorted(self._steps, (first, last + 1))
        self._bytes[low:high] += nbytes


def _sweep(claims: Sequence[Claim], limit: int) -> Choice | None:
    most_states = min(_MOST_STATES, max(_FEWEST_STATES, _CHOICES // max(1, len(claims))))
    # For each set of chosen claims that are live: what all chosen ones gain, bytes of the live ones, and the chain of
    # the chosen ones.
    states: dict[int, tuple[int, int, _Chain]] = {0: (0, 0, None)}
    dying: list[tuple[int, int, int]] = []
    unused: list[int] = []
    width = base = 0
    is_best = True
    for number in sorted(range(len(claims)), key=lambda one: (claims[one].first, not claims[one].must, one)):
        claim = claims[number]
        gone: list[tuple[int, int]] = []
        while dying and dying[0][0] < claim.first:
            _, place, size = heapq.heappop(dying)
            if place < 0:
                base -= size
            else:
                gone.append((1 << place, size))
                unused.append(place)
        if gone:
            states = _without(states, gone)
        if claim.must:
            heapq.heappush(dying, (claim.last, -1, claim.size))
            base += claim.size
            states = {live: state for live, state in states.items() if base + state[1] <= limit}
            if not states:
                return None
            continue
        place = unused.pop() if unused else width
        width = max(width, place + 1)
        heapq.heappush(dying, (claim.last, place, claim.size))
        states = _with(states, claim, number, 1 << place, limit - base)
        if len(states) > most_states:
            is_best = False
            states = _best_of(states, most_states)
    best = max(states.values(), key=lambda state: state[0])
    chosen = [number for number, claim in enumerate(claims) if claim.must]
    chain = best[2]
    while chain is not None:
        number, chain = chain
        chosen.append(number)
    return Choice(sorted(chosen), best[0], is_best)


def _with(
    states: dict[int, tuple[int, int, _Chain]], claim: Claim, number: int, bit: int, room: int
) -> dict[int, tuple[int, int, _Chain]]:
    grown = dict(states)
    for live, (gain, used, chain) in states.items():
        if used + claim.size <= room:
            grown[live | bit] = (gain + claim.gain, used + claim.size, (number, chain))
    return grown


def _without(
    states: dict[int, tuple[int, int, _Chain]], gone: Sequence[tuple[int, int]]
) -> dict[int, tuple[int, int, _Chain]]:
    """Forget what is not live any more; of the ways to what is left, keep the one that gained most."""
    bits = sum(bit for bit, _ in gone)
    left: dict[int, tuple[int, int, _Chain]] = {}
    for live, (gain, used, chain) in states.items():
        kept = live & ~bits
        known = left.get(kept)
        if known is None:
            left[kept] = (gain, used - sum(size for bit, size in gone if live & bit), chain)
        elif known[0] < gain:
            left[kept] = (gain, known[1], chain)
    return left


def _best_of(states: dict[int, tuple[int, int, _Chain]], count: int) -> dict[int, tuple[int, int, _Chain]]:
    """Keep the states that gain most, and the emptiest one, from which everything that must be in can be reached."""
    listed = sorted(states.items(), key=lambda one: (-one[1][0], one[1][1], one[0]))
    emptiest = min(listed, key=lambda one: (one[1][1], -one[1][0], one[0]))
    return dict([*listed[: count - 1], emptiest])


def _orders(claims: Sequence[Claim]) -> list[list[int]]:
    numbers = range(len(claims))

    def length(one: int) -> int:
        return claims[one].last - claims[one].first + 1

    return [
        sorted(numbers, key=lambda one: (-claims[one].gain / (claims[one].size * length(one)), one)),
        sorted(numbers, key=lambda one: (-claims[one].gain / claims[one].size, one)),
        sorted(numbers, key=lambda one: (-claims[one].gain, one)),
    ]


def _in_order(claims: Sequence[Claim], limit: int, order: Sequence[int]) -> Choice:
    """Put in whatever fits, in the given order, after what must be in."""
    load = Load([(claim.first, claim.last) for claim in claims])
    chosen, gain = [], 0
    for number in sorted(order, key=lambda one: not claims[one].must):
        claim = claims[number]
        if claim.must or load.most(claim.first, claim.last) + claim.size <= limit:
            load.add(claim.first, claim.last, claim.size)
            chosen.append(number)
            gain += 0 if claim.must else claim.gain
    return Choice(sorted(chosen), gain, False)
