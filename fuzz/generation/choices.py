"""Where choices come from: one interface, so that a seed and a shrinking library drive the same generator.

Smaller is simpler everywhere: the least integer, the first option and `False` make the simplest program.
"""

from __future__ import annotations

import random
import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")

_THOUSAND = 1000


class Choices(Protocol):
    """Makes the choices of one program."""

    def integer(self, low: int, high: int) -> int:
        """Return a number between two, both included."""

    def chance(self, probability: float) -> bool:
        """Return True as often as that."""

    def pick(self, options: Sequence[T]) -> T:
        """Return one of several, the simplest first."""

    def weighted(self, cumulative: Sequence[float]) -> int:
        """Return an index.

        Args:
            cumulative: Sum of the weights up to and including each index, growing.
        """

    def wish(self, feature: str, share: float) -> bool:
        """Return whether a program shall have a feature that a share of all programs shall have."""

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return the items in any order."""


class SeededChoices:
    """Choices of a seed: fast, and the same on every machine.

    What a program is to contain is not left to chance: over any row of consecutive seeds each wish is granted as often
    as it shall be, up to a few programs (a Weyl sequence for each feature).

    Args:
        seed: Not negative.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random: Callable[[], float] = random.Random(seed).random

    def integer(self, low: int, high: int) -> int:
        """Return a number between two, both included."""
        return low + int(self._random() * (high - low + 1))

    def chance(self, probability: float) -> bool:
        """Return True as often as that."""
        return self._random() < probability

    def pick(self, options: Sequence[T]) -> T:
        """Return one of several."""
        return options[int(self._random() * len(options))]

    def weighted(self, cumulative: Sequence[float]) -> int:
        """Return an index; the weights are given as their sums."""
        return min(bisect_right(cumulative, self._random() * cumulative[-1]), len(cumulative) - 1)

    def wish(self, feature: str, share: float) -> bool:
        """Return whether this seed is one of the share that has a feature."""
        step = _step(feature)
        return (self._seed * step + (step >> 7)) % 2**32 < share * 2**32

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return the items in any order."""
        left = list(items)
        return [left.pop(self.integer(0, len(left) - 1)) for _ in items]


class DrawnChoices:
    """Choices that somebody else makes, such as a library that shrinks what fails.

    Args:
        draw: Returns a number between two, both included; the least is the simplest.
    """

    def __init__(self, draw: Callable[[int, int], int]) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        """Return a number between two, both included."""
        return self._draw(low, high) if low < high else low

    def chance(self, probability: float) -> bool:
        """Return True as often as that."""
        if probability <= 0 or probability >= 1:
            return probability >= 1
        return self._draw(0, _THOUSAND - 1) >= _THOUSAND * (1 - probability)

    def pick(self, options: Sequence[T]) -> T:
        """Return one of several."""
        return options[self.integer(0, len(options) - 1)]

    def weighted(self, cumulative: Sequence[float]) -> int:
        """Return an index; the weights are given as their sums."""
        return min(bisect_right(cumulative, self._draw(0, 9999) / 10000 * cumulative[-1]), len(cumulative) - 1)

    def wish(self, feature: str, share: float) -> bool:
        """Return whether a program shall have a feature."""
        del feature
        return self.chance(share)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return the items in any order; the given one is the simplest."""
        left = list(items)
        return [left.pop(self.integer(0, len(left) - 1)) for _ in items]


def _step(feature: str) -> int:
    """Return an odd number of 32 bits between a fifth and two fifths of the range, away from simple fractions."""
    made = _STEPS.get(feature)
    if made is None:
        made = _STEPS[feature] = (int(2**32 * 0.2) + zlib.crc32(feature.encode()) // 5) | 1
    return made


_STEPS: dict[str, int] = {}
