"""How much of an arena holds something, at every instruction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .picture import PicturedArena, PicturedValue

# The planner aligns to this by default; offsets that happen to be rounder tell nothing.
_MAX_ALIGNMENT = 16


def arena_of_values(
    number: int, nbytes: int, limit: int | None, values: Sequence[PicturedValue], step_count: int
) -> PicturedArena:
    """Return one arena with its figures.

    Args:
        number: Number of the arena.
        nbytes: Its size.
        limit: Bytes that there are for it.
        values: The values in it.
        step_count: Number of instructions of the method, at least 1.
    """
    alignment = _alignment(value.offset for value in values)
    at, bound = _fullest(values, step_count, alignment)
    live = _covered((value for value in values if _is_live(value, at)), 1)
    return PicturedArena(
        number=number,
        nbytes=nbytes,
        limit=limit,
        live_nbytes=live,
        # The last value of an arena need not be rounded up to the alignment.
        lower_bound=min(bound, nbytes),
        at=at,
        alignment=alignment,
        total_nbytes=sum(value.nbytes for value in values),
    )


def live_bytes(values: Iterable[PicturedValue], step_count: int) -> list[int]:
    """Return the sum of the sizes of the values that are needed at each instruction, in bytes.

    Values that share bytes count once each, so that it is an upper bound of the bytes that hold something.
    """
    changes = [0] * (step_count + 1)
    for value in values:
        for first, last in value.spans:
            changes[first] += value.nbytes
            changes[last + 1] -= value.nbytes
    live, found = 0, []
    for change in changes[:-1]:
        live += change
        found.append(live)
    return found


def _fullest(values: Sequence[PicturedValue], step_count: int, alignment: int) -> tuple[int, int]:
    """Return the first instruction at which most bytes hold something, and how many, in units of the alignment."""
    rounded = [value.model_copy(update={"nbytes": value.nbytes + -value.nbytes % alignment}) for value in values]
    sums = live_bytes(rounded, step_count)
    best, at = 0, 0
    # The sums are upper bounds: once the best is as large as the next of them, nothing after it can be larger.
    for step in sorted(range(step_count), key=lambda step: (-sums[step], step)):
        if sums[step] < best or (sums[step] == best and step > at):
            break
        covered = _covered((value for value in values if _is_live(value, step)), alignment)
        if covered > best or (covered == best and step < at):
            best, at = covered, step
    return at, best


def _is_live(value: PicturedValue, step: int) -> bool:
    return any(first <= step <= last for first, last in value.spans)


def _covered(values: Iterable[PicturedValue], alignment: int) -> int:
    """Return how many bytes are in at least one of the values, their ends rounded up to the alignment."""
    covered = reached = 0
    for value in sorted(values, key=lambda value: value.offset):
        end = value.offset + value.nbytes
        end += -end % alignment
        covered += max(end - max(value.offset, reached), 0)
        reached = max(reached, end)
    return covered


def _alignment(offsets: Iterable[int]) -> int:
    """Return the largest power of two, at most 16, that all offsets are a multiple of."""
    bits = _MAX_ALIGNMENT
    for offset in offsets:
        bits |= offset
    return bits & -bits
