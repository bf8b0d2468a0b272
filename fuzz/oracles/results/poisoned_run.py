"""The first run of the file on our interpreter."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, Failure, file_differences
from exirkit.fuzz.oracles.oracle import FILE_SUSPECTS, Oracle


class PoisonedRun(Oracle):
    """The first run of every method gives what eager torch gives, in arenas that are poisoned before."""

    name = "poisoned-run"
    title = "our interpreter, in poisoned arenas"
    cost = 50
    needs = ("results",)
    suspects = tuple(FILE_SUSPECTS)
    former_name = "O5"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what differs."""
        yield from file_differences(examination, self.name, lambda index, is_new_shape: index == 0)
