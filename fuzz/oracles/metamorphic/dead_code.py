"""A metamorphic relation: calls whose results nothing uses change nothing."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, Failure, NotRunError, failures_of_relative, with_dead_code
from exirkit.fuzz.oracles.oracle import Oracle

_ONE_OF = 4


class DeadCode(Oracle):
    """A program with calls whose results nothing uses computes the same.

    It lowers a second program: it is asked when it is named, and by every fourth seed.
    """

    name = "dead-code"
    title = "calls whose results nothing uses change nothing"
    cost = 133
    is_default = False
    needs = ("results",)
    suspects = ("stage",)

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what the other program computes differently."""
        if examination.seed % _ONE_OF != 2:
            return
        changed, note = with_dead_code(examination.program, examination.seed)
        if not note:
            raise NotRunError("no call was chosen")
        yield from failures_of_relative(self.name, examination, changed, note)
