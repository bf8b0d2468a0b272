"""How much the tests try: what there is time for at every change, or everything: `EXIRKIT_TESTS=all make test`."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TypeVar

TRIES_ALL = os.environ.get("EXIRKIT_TESTS") == "all"

Choice = TypeVar("Choice")


def some_of(choices: Sequence[Choice], always: Collection[Choice], number: int, more: int) -> list[Choice]:
    """Return what to try in one of several cases, so that together they try everything.

    Args:
        choices: All there is to try.
        always: What is tried in every case.
        number: Number of the case.
        more: How many others are tried in it; the next case goes on behind them.
    """
    others = [one for one in choices if one not in always]
    if TRIES_ALL or more >= len(others):
        return list(choices)
    chosen = {others[(number * more + step) % len(others)] for step in range(more)}
    return [one for one in choices if one in always or one in chosen]
