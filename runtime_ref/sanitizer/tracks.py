"""Tracks: where the memory of each tensor cell is at present, and whose it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from exirkit.runtime_ref.interpreter.cells import TensorCell

from .memory import GUARD_NBYTES, Holder, ShadowArena

_SMALL_NBYTES = 4096


class Track:
    """The memory of one cell.

    Attributes:
        cell: The cell.
        holder: Whose bytes it shows, or None if they are in no arena.
        shadow: The arena that they are in.
        start: First byte of what it shows at present.
        end: Byte after the last one.
        writer: The shadow of these bytes.
    """

    __slots__ = ("_bytes", "_seen", "cell", "end", "holder", "shadow", "start", "writer")

    def __init__(self, cell: TensorCell, holder: Holder | None, shadow: ShadowArena | None) -> None:
        self.cell = cell
        self._seen: torch.Tensor | None = None
        self.start = self.end = 0
        self.writer = np.zeros(0, dtype=np.int32)
        self._bytes = memoryview(b"")
        self.holder: Holder | None = None
        self.shadow: ShadowArena | None = None
        self.show(holder, shadow)

    def show(self, holder: Holder | None, shadow: ShadowArena | None) -> None:
        """Come to show the memory of a holder, or none that is in an arena."""
        self._seen = None
        self.holder, self.shadow = holder, shadow

    def locate(self) -> None:
        """Find out where the tensor is that the cell shows now."""
        current = self.cell.current
        if current is self._seen:
            return
        self._seen = current
        if self.shadow is None or current is None:
            return
        itemsize = current.element_size()
        self.start = int(current.storage_offset()) * itemsize
        self.end = self.start + current.numel() * itemsize
        self.writer = self.shadow.writer[self.start : self.end]
        # An empty array has no bytes to cast; what stands for them must take an empty write all the same.
        self._bytes = self.writer.data.cast("B") if len(self.writer) else memoryview(bytearray())

    def paint(self, holder: Holder, number: int) -> None:
        """Note that all bytes that the cell shows are from that write to their holder."""
        self.locate()
        holder.record = number
        if len(self.writer) <= _SMALL_NBYTES:
            # Bytes of Python are compared faster than arrays of NumPy as long as there are few of them.
            holder.pattern = number.to_bytes(4, sys.byteorder) * len(self.writer)
            self._bytes[:] = holder.pattern
        else:
            holder.pattern = None
            self.writer.fill(number)

    def is_intact(self) -> bool:
        """Return whether all bytes that the cell shows are from the last write to its tensor."""
        holder = self.holder
        if holder is None:
            return True
        if self.cell.current is not self._seen:
            self.locate()
        pattern = holder.pattern
        if pattern is not None and len(pattern) == len(self._bytes) and self._bytes.tobytes() == pattern:
            return True
        return holder.record > 0 and b"\x01" not in (self.writer != holder.record).tobytes()


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Bytes next to the places of what an instruction writes to, which it must leave as they are.

    Attributes:
        shadow: The arena, guards included.
        start: First byte, below 0 in the guard in front.
        content: The bytes.
    """

    shadow: ShadowArena
    start: int
    content: memoryview


def neighbours_of(tracks: Sequence[Track | None]) -> list[Neighbour]:
    """Return what lies up to `GUARD_NBYTES` around the places of the holders of these tracks, and is none of them."""
    written: dict[ShadowArena, set[tuple[int, int]]] = {}
    for track in tracks:
        if track is not None and track.holder is not None and track.shadow is not None:
            place = track.holder.place
            written.setdefault(track.shadow, set()).add((place.start, place.end))
    found: list[Neighbour] = []
    for shadow, unsorted_places in written.items():
        places = sorted(unsorted_places)
        gaps: list[tuple[int, int]] = []
        behind = places[0][0] - GUARD_NBYTES
        for start, end in [*places, (places[-1][1] + GUARD_NBYTES,) * 2]:
            # Far from both neighbours nothing is looked at.
            near = [(behind, behind + GUARD_NBYTES), (start - GUARD_NBYTES, start)]
            gaps += [(behind, start)] if start - behind <= 2 * GUARD_NBYTES else near
            behind = max(behind, end)
        for start, end in gaps:
            if start < end:
                content = shadow.raw.data[start + GUARD_NBYTES : end + GUARD_NBYTES]
                found.append(Neighbour(shadow, start, content))
    return found


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that hold something else than they should.

    Attributes:
        start: First such byte, in the arena.
        end: Byte after the last one of the same kind.
        record: Number of the write that they are from.
    """

    start: int
    end: int
    record: int


def find_damage(track: Track) -> Damage | None:
    """Return the first run of bytes of a tensor that are not from the last write to it."""
    track.locate()
    assert track.holder is not None
    wrong = np.flatnonzero(track.writer != track.holder.record) if track.holder.record else np.arange(len(track.writer))
    if len(wrong) == 0:
        return None
    first = int(wrong[0])
    record = int(track.writer[first])
    following = np.flatnonzero(track.writer[first:] != record)
    length = int(following[0]) if len(following) else len(track.writer) - first
    return Damage(track.start + first, track.start + first + length, record)


def track_of(tracks: Sequence[Track | None], entry: Any) -> Track | None:
    """Return the track of an entry of the value table, or None if it is nothing in an arena."""
    return tracks[entry.index] if isinstance(entry, TensorCell) else None


def overwritten(writer: Track, victim: Holder, start: int, end: int) -> tuple[int, int] | None:
    """Return which bytes from `start` to `end` hold what was last written to `victim`, if `writer` is another."""
    if victim is writer.holder or victim.record == 0 or start >= end:
        return None
    assert writer.shadow is not None
    hit = np.flatnonzero(writer.shadow.writer[start:end] == victim.record)
    return (start + int(hit[0]), start + int(hit[-1]) + 1) if len(hit) else None
