"""Several runs in a row of one loaded method."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.examination import Examination, Failure, file_differences
from exirkit.fuzz.oracles.oracle import FILE_SUSPECTS, Oracle


class RepeatedRuns(Oracle):
    """The second and later runs of one loaded method, with the state that it keeps."""

    name = "repeated-runs"
    title = "several runs in a row, with state"
    cost = 70
    needs = ("results",)
    suspects = tuple(FILE_SUSPECTS)
    former_name = "O7"

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what differs."""
        yield from file_differences(examination, self.name, lambda index, is_new_shape: index > 0 and not is_new_shape)
