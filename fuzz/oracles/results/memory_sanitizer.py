"""The memory sanitizer of our interpreter, which watches every byte of the arenas."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, Failure
from exirkit.fuzz.oracles.oracle import FILE_SUSPECTS, Oracle


class MemorySanitizer(Oracle):
    """Every read sees the latest version of its own value, and nothing that is still needed is overwritten."""

    name = "memory-sanitizer"
    title = "the memory sanitizer of our interpreter"
    cost = 60
    needs = ("results",)
    suspects = tuple(FILE_SUSPECTS)
    former_name = "O6"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield nothing: a sanitized run that finds something raises, so that there are no results."""
        return iter(())
