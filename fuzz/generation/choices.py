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

SWARMS = 16
"""Kinds of programs, in turn by seed; each lacks a quarter of the features, and has the others oftener."""
LACKING = 4

_THOUSAND = 1000
_BLOCK = 127
_GOLDEN = 0.6180339887498949
_PLASTIC = 0.7548776662466927


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

    def request(self, feature: str, share: float) -> bool:
        """Return whether a program shall have a feature that a share of all programs shall have."""

    def turn(self, number: int) -> int:
        """Return a number below another; all come in turn over many programs."""

    def emphasis(self, feature: str) -> float:
        """Return by how much the share of a feature is greater in the program's swarm; 0: the swarm lacks it."""

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return the items in any order."""


class SeededChoices:
    """Choices of a seed: fast, and the same on every machine.

    What a program is to contain is not left to chance: of every block of 127 seeds as many have a wish granted as shall
    have it.

    Args:
        seed: Not negative.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._turns = 0
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

    def request(self, feature: str, share: float) -> bool:
        """Return whether this seed is one of the share that has a feature."""
        block, place = divmod(self._seed, _BLOCK)
        mixed = zlib.crc32(f"{feature}:{block}".encode())
        # An order of the block's seeds of its own for each feature: so features meet as if by chance.
        rank = (place * (1 + mixed % (_BLOCK - 1)) + mixed // _BLOCK) % _BLOCK
        return rank < int(share * _BLOCK + mixed % 1009 / 1009)

    def turn(self, number: int) -> int:
        """Return a number below another: the fractions of the seeds' multiples of the golden ratio lie evenly."""
        self._turns += 1
        place = self._seed * _GOLDEN + self._turns * _PLASTIC
        return int(place % 1 * number)

    def emphasis(self, feature: str) -> float:
        """Return 0 for a feature that this seed's swarm lacks; as many swarms lack each feature."""
        mixed = zlib.crc32(f"swarm of {feature}".encode())
        swarm = self._seed * 11 % SWARMS
        # An odd factor, of an even number of swarms, gives each feature an order of its own.
        place = (swarm * (1 + 2 * (mixed % (SWARMS // 2))) + mixed // SWARMS) % SWARMS
        return 0.0 if place < LACKING else SWARMS / (SWARMS - LACKING)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return the items in any order."""
        left = list(items)
        return [left.pop(self.integer(0, len(left) - 1)) for _ in items]


class DrawnChoices:
    """Choices that a library makes, such as Hypothesis, which shrinks what fails.

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

    def request(self, feature: str, share: float) -> bool:
        """Return whether a program shall have a feature."""
        del feature
        return self.chance(share)

    def turn(self, number: int) -> int:
        """Return a number below another."""
        return self.integer(0, number - 1)

    def emphasis(self, feature: str) -> float:
        """Return 1: what a library draws belongs to no swarm."""
        del feature
        return 1.0

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return the items in any order; the given one is the simplest."""
        left = list(items)
        return [left.pop(self.integer(0, len(left) - 1)) for _ in items]
