"""A metamorphic relation: names mean nothing."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, Failure, NotRunError, failures_of_relative, renamed
from exirkit.fuzz.oracles.oracle import Oracle

_ONE_OF = 4


class OtherNames(Oracle):
    """A program with other names for everything computes the same.

    It lowers a second program: it is asked when it is named, and by every fourth seed.
    """

    name = "other-names"
    title = "names mean nothing"
    cost = 131
    is_default = False
    needs = ("results",)
    suspects = ("stage",)

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what the other program computes differently."""
        if examination.seed % _ONE_OF != 0:
            return
        changed, note = renamed(examination.program, examination.seed)
        if not note:
            raise NotRunError("nothing has a name")
        yield from failures_of_relative(self.name, examination, changed, note)
