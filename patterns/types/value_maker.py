"""Numbers for trials, within bounds and of a profile."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

from .literals import rounded
from .sizes import SizeExpression
from .variable import Variable


class UnsolvedError(Exception):
    """These choices contradict each other; others may not."""


class ValueMaker:
    """Makes the values that are not tensors.

    Args:
        rng: Source of randomness.
        profile: `normal`, `special` or `boundary`.
        names: Known values and sizes.
    """

    def __init__(self, rng: random.Random, profile: str, names: Mapping[str, Any]) -> None:
        self.rng = rng
        self.profile = profile
        self.names = names

    def make(self, variable: Variable) -> Any:
        """Return a value of a type.

        Raises:
            UnsolvedError: There is none for these tensors.
        """
        return variable.draw(self)

    def bound(self, expression: SizeExpression | None) -> int | None:
        """Return the value of a bound.

        Raises:
            UnsolvedError: It is not known.
        """
        if expression is None:
            return None
        try:
            value = expression.evaluate(self.names)
        except ArithmeticError:
            raise UnsolvedError from None
        if type(value) is not int:
            raise UnsolvedError
        return value

    def integer(self, low: int | None, high: int | None) -> int:
        """Return an integer between bounds.

        Raises:
            UnsolvedError: There is none.
        """
        if low is None:
            low = -4 if high is None else high - 8
        if high is None:
            high = low + 12
        if high < low:
            raise UnsolvedError
        if self.profile == "boundary" and self.rng.random() < 0.5:
            return self.rng.choice((low, high))
        return self.rng.randint(low, high)

    def floating(self, low: float | None, high: float | None) -> float:
        """Return a float between bounds."""
        if low is None and high is None:
            return self._unbounded()
        edges = [one for one in (low, high) if one is not None]
        if self.rng.random() < (0.5 if self.profile == "boundary" else 0.1):
            return self.rng.choice([*edges, *map(rounded, edges)])
        if low is None or high is None or not math.isfinite(high - low):
            spread = abs(self.rng.gauss(0.0, 2.0))
            return low + spread if low is not None and math.isfinite(low) else (high or 0.0) - spread
        if low > 0 and high / low > 10:
            return min(high, max(low, math.exp(self.rng.uniform(math.log(low), math.log(high)))))
        return self.rng.uniform(low, high)

    def _unbounded(self) -> float:
        usual = (0.0, 1.0, -1.0, 0.5, 2.0, self.rng.gauss(0.0, 3.0))
        special = (math.inf, -math.inf, math.nan, -0.0, 1e-45, 3.4028234663852886e38)
        return self.rng.choice(special if self.profile == "special" and self.rng.random() < 0.4 else usual)


class SymbolicMaker(ValueMaker):
    """Makes values that agree with sizes that are symbols, without comparing them."""

    def make(self, variable: Variable) -> Any:
        """Return a value of a type."""
        return variable.draw_symbolic(self)


def drawn_length(rng: random.Random, least: int, most: int) -> int:
    """Return the length of a list: mostly a short one, and beyond `most` now and then.

    What decides about long ones is peeked at and not drawn, so that all other draws are the same without them.
    """
    count = rng.randint(least, most)
    ahead = random.Random()
    ahead.setstate(rng.getstate())
    return count if count < most or ahead.random() < 0.75 else most + ahead.randint(1, 5)
