"""What trials of a rule on values that it is for have shown."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_SHOWN = 2


@dataclass
class Counterexample:
    """Values for which a rule is wrong.

    Attributes:
        seed: Makes the values again.
        problem: What differs.
        values: Variables and sizes, as text.
    """

    seed: str
    problem: str
    values: dict[str, str]


@dataclass
class PositiveReport:
    """Trials of a rule on values that it is for.

    Attributes:
        passed: Trials in which both agreed.
        cells: Trials by way through the pattern and dtypes.
        rejected: Values that had to be thrown away, by reason.
        counterexamples: Values for which they disagreed.
        open: Why the rule cannot be tried at all.
    """

    passed: int = 0
    cells: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    counterexamples: list[Counterexample] = field(default_factory=list)
    open: str | None = None

    def reasons(self) -> str:
        """Return why values were thrown away, the most frequent reasons first, each with its number.

        Reasons that differ in numbers only are one, of which the first is shown: the numbers are those of a sample.
        """
        kinds: dict[str, tuple[str, int]] = {}
        for reason, count in self.rejected.items():
            kind = _NUMBER.sub("#", reason)
            first, known = kinds.get(kind, (reason, 0))
            kinds[kind] = first, known + count
        ordered = sorted(kinds.values(), key=lambda one: -one[1])
        return "; ".join(f"{count} times {reason}" for reason, count in ordered[:_SHOWN])

    def main_reason(self) -> str:
        """Return the most frequent reason without its number, or nothing."""
        return self.reasons().partition("; ")[0].partition(" times ")[2]
