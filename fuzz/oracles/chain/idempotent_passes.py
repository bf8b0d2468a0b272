"""Passes on their own results."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, Failure, audited
from exirkit.fuzz.oracles.oracle import Oracle

_ONE_OF = 4


class IdempotentPasses(Oracle):
    """A pass that runs on its own result changes nothing more.

    Passes of users need not be so: it is asked when it is named, and by every fourth seed, as `truthful-passes`.
    """

    name = "idempotent-passes"
    title = "a pass leaves its own result alone"
    cost = 111
    is_default = False
    needs = ("own plan",)
    suspects = ("stage",)

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield a failure for each pass that is not done when it has run."""
        if examination.seed % _ONE_OF != 1:
            return
        for stage, text in audited(examination, runs_again=True).repeating.items():
            yield Failure(self.name, "not idempotent", f"{stage}: {text}", stage)
