"""Garbage collection during long work on programs."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SELDOM: Final = 50_000
"""How many objects are made between two collections; torch's graphs are full of cycles, so that some have to be."""

_lock = threading.Lock()
_active = 0
_usual = (0, 0, 0)
_freezes = False


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collect cycles seldom, and not in objects that are older than the work.

    A program of 10,000 calls is some million objects, which live as long as the work does. To look through them again
    and again takes a third of the time of lowering. Afterwards thresholds are what they were. Blocks may be nested and
    may be active in several threads: the first one changes the thresholds, the last one restores them.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _active, _usual, _freezes
    with _lock:
        _active += 1
        if _active > 1:
            return
        _usual = gc.get_threshold()
        # A threshold of zero switches collection off, and a caller that has frozen objects wants them to stay so.
        if 0 < _usual[0] < _SELDOM:
            gc.set_threshold(_SELDOM, *_usual[1:])
        _freezes = gc.get_freeze_count() == 0
        if _freezes:
            gc.freeze()


def _leave() -> None:
    global _active
    with _lock:
        _active -= 1
        if _active:
            return
        if _freezes:
            gc.unfreeze()
        gc.set_threshold(*_usual)
