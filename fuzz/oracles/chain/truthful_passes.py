"""What passes report about themselves."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, Failure, audited, watch_stages
from exirkit.fuzz.oracles.oracle import Oracle

_ONE_OF = 16


class TruthfulPasses(Oracle):
    """Every pass reports a change if it has made one; those of the chain only then.

    Repetitions of stages end by these reports, and verifiers skip what has not changed. Every stage is examined while
    the program is lowered, which takes as long as lowering does, so that only one seed of sixteen asks.
    """

    name = "truthful-passes"
    title = "passes report truthfully whether they changed anything"
    cost = 110
    needs = ("own plan",)
    suspects = ("stage",)

    def prepare(self, examination: Examination) -> None:
        """Have the stages examined while the program is lowered."""
        if examination.seed % _ONE_OF == 1:
            watch_stages(examination)

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield a failure for each pass with a false report."""
        if examination.seed % _ONE_OF != 1:
            return
        for stage, text in audited(examination, runs_again=False).untruthful.items():
            yield Failure(self.name, "false report", f"{stage}: {text}", stage)
