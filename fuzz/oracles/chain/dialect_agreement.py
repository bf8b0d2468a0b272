"""Every dialect against eager torch."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, Failure, compared, dialect_runs
from exirkit.fuzz.oracles.oracle import Oracle


class DialectAgreement(Oracle):
    """The program computes the same in every dialect."""

    name = "dialect-agreement"
    title = "every dialect against eager torch"
    cost = 30
    suspects = ("passes", "planner")
    former_name = "O3"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield differences in the first dialect that has any."""
        for stage, run in dialect_runs(examination):
            if run.error is not None:
                yield run.error
                return
            failures = list(compared(examination, self.name, stage, run.results, is_lowered=stage != "export"))
            if failures:
                yield from failures
                return
