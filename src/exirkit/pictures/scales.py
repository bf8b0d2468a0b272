"""Round numbers along an axis, and bytes in short."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def axis_marks(end: int, most: int, *, binary: bool = False) -> list[int]:
    """Return round numbers from 0 to `end`, at most about `most`: multiples of 1, 2 or 5 times a power.

    Args:
        end: The last number of the axis, at least 1.
        most: How many marks there is room for.
        binary: Powers of two, for bytes, instead of those of ten.
    """
    step = 1
    while end / step > most:
        step = step * 2 if binary else _next_step(step)
    return list(range(0, end + 1, step))


def nbytes_short(nbytes: int) -> str:
    """Return a number of bytes with at most one decimal, `1.5 MiB`."""
    size, unit = float(nbytes), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f}".removesuffix(".0") + f" {_UNITS[unit]}"


def _next_step(step: int) -> int:
    """Return the next of 1, 2, 5, 10, 20, 50 ..."""
    lead = int(str(step)[0])
    return step // lead * {1: 2, 2: 5, 5: 10}[lead]
