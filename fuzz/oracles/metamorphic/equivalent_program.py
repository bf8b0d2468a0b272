"""A metamorphic relation: programs that must compute the same do."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, Failure, NotRunError, equivalent, failures_of_relative
from exirkit.fuzz.oracles.oracle import Oracle


class EquivalentProgram(Oracle):
    """Detours and dead code change nothing, and neither does compiling a second time."""

    name = "equivalent-program"
    title = "metamorphic equivalents"
    cost = 130
    is_default = False
    needs = ("results",)
    suspects = ("equivalent program",)
    former_name = "O13"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what the equivalent program computes differently."""
        changed, note = equivalent(examination.program, examination.seed)
        if not note:
            raise NotRunError("there is no place for a detour")
        yield from failures_of_relative(self.name, examination, changed, note)
