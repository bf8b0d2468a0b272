"""Ctrl-C ends a command as an interruption, whatever a library has made of the exception on its way."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = 130


class Interrupts:
    """Whether the user has pressed Ctrl-C.

    An interrupt may come while a library imports itself, and arrive as the ImportError that the library raises then.

    Attributes:
        seen: Ctrl-C was pressed.
    """

    def __init__(self) -> None:
        self.seen = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        signal.default_int_handler(number, frame)


@contextlib.contextmanager
def noticed_interrupts() -> Iterator[Interrupts]:
    """Note interrupts while the block runs; they are raised as always."""
    interrupts = Interrupts()
    # Only the main thread may set handlers, and somebody else's handler is theirs.
    is_ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not is_ours:
        yield interrupts
        return
    previous = signal.signal(signal.SIGINT, interrupts._note)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, previous)
