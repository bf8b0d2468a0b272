"""`--import MODULE`: Python modules that register operators."""

from __future__ import annotations

from collections.abc import Sequence

from exirkit.patterns import import_library

from .failures import WRONG_USAGE, CommandError


def import_libraries(names: Sequence[str]) -> None:
    """Import modules.

    Raises:
        CommandError: EK225, one cannot be imported.
    """
    for name in names:
        problem = import_library(name)
        if problem is not None:
            raise CommandError(
                code="EK225", message=problem, hint="install it, or correct the name", exit_code=WRONG_USAGE
            )
