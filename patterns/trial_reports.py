"""What trials of a rule on values that it is for have shown."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


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
