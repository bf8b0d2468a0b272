"""How much a file may ask for before it is rejected, whatever the machine could give."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Bounds that no honest program of today reaches.

    Attributes:
        arena_nbytes: Size of all arenas of one method together, and of any one tensor.
        dimensions: Number of dimensions of a tensor, as in the C++ runtime.
        jumps_back: Number of jumps to an earlier instruction in one run of a method.
    """

    arena_nbytes: int = 1 << 36
    dimensions: int = 16
    jumps_back: int = 1 << 24
