"""Runs whose sizes differ from those of the run before."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, Failure, file_differences
from exirkit.fuzz.oracles.oracle import FILE_SUSPECTS, Oracle


class ChangingShapes(Oracle):
    """Runs of one loaded method whose sizes differ from those of the run before."""

    name = "changing-shapes"
    title = "a schedule of shapes in one loaded method"
    cost = 80
    needs = ("results",)
    suspects = tuple(FILE_SUSPECTS)
    former_name = "O8"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what differs."""
        yield from file_differences(examination, self.name, lambda index, is_new_shape: index > 0 and is_new_shape)
