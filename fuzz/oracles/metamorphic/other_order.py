"""A metamorphic relation: independent calls may be made in any order."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, Failure, NotRunError, failures_of_relative, reordered
from exirkit.fuzz.oracles.oracle import Oracle

_ONE_OF = 4


class OtherOrder(Oracle):
    """A program that makes independent calls in another order computes the same.

    It lowers a second program: it is asked when it is named, and by every fourth seed.
    """

    name = "other-order"
    title = "the order of independent calls means nothing"
    cost = 132
    is_default = False
    needs = ("results",)
    suspects = ("stage",)

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what the other program computes differently."""
        if examination.seed % _ONE_OF != 1:
            return
        changed, note = reordered(examination.program, examination.seed)
        if not note:
            raise NotRunError("there is one order only")
        yield from failures_of_relative(self.name, examination, changed, note)
