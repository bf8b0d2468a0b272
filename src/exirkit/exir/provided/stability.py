"""Marks of what may change: decorators that warn."""

from __future__ import annotations

from typing_extensions import deprecated as deprecated


class ExperimentalWarning(DeprecationWarning):
    """Something was used that may change without notice; filtered like its base by default."""


class experimental(deprecated):  # noqa: N801
    """Mark a class or function as one that may change without notice.

    Args:
        message: What the warning says.
        category: Class of the warning; None for no warning at run time.
        stacklevel: Frames between the warning and the line that it names.
    """

    def __init__(
        self, message: str, /, *, category: type[Warning] | None = ExperimentalWarning, stacklevel: int = 1
    ) -> None:
        super().__init__(message, category=category, stacklevel=stacklevel)
