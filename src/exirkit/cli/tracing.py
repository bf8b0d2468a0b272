"""Runs with tracing on, as commands need them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .errors import CommandError


@contextlib.contextmanager
def tracing_errors() -> Iterator[None]:
    """Let a trace that there is not be an error of the command.

    Raises:
        CommandError: EK776, the official runtime gave none.
    """
    from exirkit.fuzz import NotTracedError

    try:
        yield
    except NotTracedError as error:
        message = f"the official runtime gave no trace: {error}"
        raise CommandError(code="EK776", message=message, hint="`--runtime reference` needs nothing") from error
