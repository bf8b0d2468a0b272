"""A program that was checked, and what it reached."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass

_SECONDS_A_CHARACTER = 1e-4


def number_of(what: str) -> int:
    """Return the number of something that is reached."""
    return zlib.crc32(what.encode())


@dataclass(frozen=True)
class Entry:
    """A program and what it reaches.

    Attributes:
        seed: That it was generated from, and its choices of the chain.
        program: As text.
        seconds: CPU seconds of its check.
        verdict: As campaigns have it.
        reached: A number for each condition and outcome, and so on.
    """

    seed: int
    program: str
    seconds: float
    verdict: str
    reached: frozenset[int]

    @property
    def cost(self) -> float:
        """What it costs campaigns in seconds, and those who install exirkit in characters."""
        return self.seconds + _SECONDS_A_CHARACTER * len(self.program)

    def line(self) -> str:
        """Return the entry as a line of JSON."""
        return json.dumps(vars(self) | {"reached": sorted(self.reached)}) + "\n"
