"""The program itself: eager torch runs it, and it can be built."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, Failure
from exirkit.fuzz.oracles.oracle import Oracle


class EagerRun(Oracle):
    """Eager torch runs the program, and it can be built; whatever fails here is a bug of the generator."""

    name = "eager-run"
    title = "eager torch runs the program"
    cost = 0
    needs = ("eager results", "exported")
    suspects = ("program",)
    former_name = "O0"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield nothing: what fails is what the oracle needs."""
        return iter(())
