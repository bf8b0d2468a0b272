"""Pointers: where the memory of each tensor cell is at present, and whose it is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from exirkit.runtime_ref.interpreter.cells import TensorCell

from .memory import GUARD_NBYTES, Owner, ShadowArena

_SMALL_NBYTES = 4096


class Pointer:
    """The memory of one cell.

    Attributes:
        cell: The cell.
        owner: Whose bytes it shows, or None if they are in no arena.
        shadow: The arena that they are in.
        start: First byte of what it shows at present.
        end: Byte after the last one.
        writer: The shadow of these bytes.
    """

    __slots__ = ("_bytes", "_seen", "cell", "end", "owner", "shadow", "start", "writer")

    def __init__(self, cell: TensorCell, owner: Owner | None, shadow: ShadowArena | None) -> None:
        self.cell = cell
        self._seen: torch.Tensor | None = None
        self.start = self.end = 0
        self.writer = np.zeros(0, dtype=np.int32)
        self._bytes = memoryview(b"")
        self.owner: Owner | None = None
        self.shadow: ShadowArena | None = None
        self.show(owner, shadow)

    def show(self, owner: Owner | None, shadow: ShadowArena | None) -> None:
        """Show the memory of a owner, or none that is in an arena."""
        self._seen = None
        self.owner, self.shadow = owner, shadow

    def locate(self) -> None:
        """Determine where the tensor is that the cell shows now."""
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

    def mark(self, owner: Owner, number: int) -> None:
        """Note that all bytes that the cell shows are from that write to their owner."""
        self.locate()
        owner.record = number
        if len(self.writer) <= _SMALL_NBYTES:
            # Bytes of Python are compared faster than arrays of NumPy as long as there are few of them.
            owner.pattern = number.to_bytes(4, sys.byteorder) * len(self.writer)
            self._bytes[:] = owner.pattern
        else:
            owner.pattern = None
            self.writer.fill(number)

    def is_intact(self) -> bool:
        """Return whether all bytes that the cell shows are from the last write to its tensor."""
        owner = self.owner
        if owner is None:
            return True
        if self.cell.current is not self._seen:
            self.locate()
        pattern = owner.pattern
        if pattern is not None and len(pattern) == len(self._bytes) and self._bytes.tobytes() == pattern:
            return True
        return owner.record > 0 and b"\x01" not in (self.writer != owner.record).tobytes()


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


def neighbours_of(pointers: Sequence[Pointer | None]) -> list[Neighbour]:
    """Return what lies up to `GUARD_NBYTES` around the places of the owners of these pointers, and is none of them."""
    written: dict[ShadowArena, set[tuple[int, int]]] = {}
    for pointer in pointers:
        if pointer is not None and pointer.owner is not None and pointer.shadow is not None:
            place = pointer.owner.place
            written.setdefault(pointer.shadow, set()).add((place.start, place.end))
    found: list[Neighbour] = []
    for shadow, unsorted_places in written.items():
        places = sorted(unsorted_places)
        gaps: list[tuple[int, int]] = []
        behind = places[0][0] - GUARD_NBYTES
        for start, end in [*places, (places[-1][1] + GUARD_NBYTES,) * 2]:
            # Far from both neighbours nothing is checked.
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


def find_damage(pointer: Pointer) -> Damage | None:
    """Return the first run of bytes of a tensor that are not from the last write to it."""
    pointer.locate()
    assert pointer.owner is not None
    wrong = (
        np.flatnonzero(pointer.writer != pointer.owner.record)
        if pointer.owner.record
        else np.arange(len(pointer.writer))
    )
    if len(wrong) == 0:
        return None
    first = int(wrong[0])
    record = int(pointer.writer[first])
    following = np.flatnonzero(pointer.writer[first:] != record)
    length = int(following[0]) if len(following) else len(pointer.writer) - first
    return Damage(pointer.start + first, pointer.start + first + length, record)


def pointer_of(pointers: Sequence[Pointer | None], entry: Any) -> Pointer | None:
    """Return the pointer of an entry of the value table, or None if it is nothing in an arena."""
    return pointers[entry.index] if isinstance(entry, TensorCell) else None


def overwritten(writer: Pointer, victim: Owner, start: int, end: int) -> tuple[int, int] | None:
    """Return which bytes from `start` to `end` hold what was last written to `victim`, if `writer` is another."""
    if victim is writer.owner or victim.record == 0 or start >= end:
        return None
    assert writer.shadow is not None
    hit = np.flatnonzero(writer.shadow.writer[start:end] == victim.record)
    return (start + int(hit[0]), start + int(hit[-1]) + 1) if len(hit) else None
