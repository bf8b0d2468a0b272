"""Metadata against execution, at every node of every dialect."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, Failure, dialect_runs
from exirkit.fuzz.oracles.oracle import Oracle


class MetadataAgreement(Oracle):
    """Every value has the dtype, shape and layout that its node records, in every dialect."""

    name = "metadata-agreement"
    title = "metadata against execution, at every node of every dialect"
    cost = 20
    suspects = ("export", "passes", "planner")
    former_name = "O2"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield values that are not as recorded, in the first dialect that has any."""
        for _, run in dialect_runs(examination):
            if run.findings:
                yield from run.findings
                return
