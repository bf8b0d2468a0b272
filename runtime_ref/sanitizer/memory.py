"""Memory under the sanitizer: which write put each byte, and where each tensor's pointer is now.

Every write to a tensor gets a number, and the shadow of an arena holds for each byte the number of the last write
to it. What number a tensor's bytes must have is known to its `Owner`; views of one tensor share a owner. Number 0
is not a write: poison.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch

from exirkit.runtime_ref.interpreter.values import ALIGNMENT_NBYTES, Arenas, TensorCell

from .allocations import Allocation

GUARD_NBYTES: Final = 1024
_GUARD_BYTE: Final = 0xA5
# Two of these are a NaN in every floating-point type, and far below zero in every signed integer.
_POISON: Final = 0xFFF5
# Records are kept for messages; past so many those of earlier runs are let go.
_MAX_RECORDS: Final = 1 << 18


@dataclass(slots=True, eq=False)
class Owner:
    """One tensor with memory, whatever views there are of it.

    Attributes:
        method: Name of its method.
        index: Its value in that method.
        place: The bytes that it may use.
        key: What makes it the same state in another method, or None.
        label: How it is called in messages.
        record: Number of the last write of the whole tensor; 0 before it is written.
        pattern: The shadow of what was written then, if it is short.
    """

    method: str
    index: int
    place: Allocation
    label: str
    key: Any = field(default=None, kw_only=True)
    record: int = field(default=0, init=False)
    pattern: bytes | None = field(default=None, init=False)


@dataclass(frozen=True, slots=True)
class Site:
    """What wrote: an instruction, the caller, or the loader.

    Attributes:
        method: Name of the method.
        text: `instruction 4, aten::add.out`, `input 0`, `its initial contents`.
    """

    method: str
    text: str


Record = tuple[Owner | None, Site | None, int]


class ShadowArena:
    """One arena between guards.

    Attributes:
        number: Number of the arena.
        nbytes: Its size.
        raw: All bytes, those of the guards included.
        inside: The bytes of the arena.
        writer: For each byte of the arena the number of the last write to it.
    """

    def __init__(self, number: int, memory: torch.Tensor, nbytes: int) -> None:
        self.number = number
        self.nbytes = nbytes
        self.raw: np.ndarray[Any, np.dtype[np.uint8]] = memory.numpy()
        self.writer = np.zeros(nbytes, dtype=np.int32)
        self.inside = self.raw[GUARD_NBYTES : GUARD_NBYTES + nbytes]
        end = GUARD_NBYTES + nbytes
        self._guards = (self.raw[:GUARD_NBYTES], self.raw[end:])
        for guard in self._guards:
            guard[:] = _GUARD_BYTE
        self._untouched = tuple(guard.tobytes() for guard in self._guards)

    def memory(self) -> torch.Tensor:
        """Return the bytes of the arena, rounded up so that they can be seen as elements of any dtype."""
        rounded = -(-self.nbytes // ALIGNMENT_NBYTES) * ALIGNMENT_NBYTES
        # Through NumPy, so that offsets in the storage of the tensor are offsets in the arena.
        return torch.from_numpy(self.raw[GUARD_NBYTES : GUARD_NBYTES + rounded])

    def guards_changed(self) -> tuple[int, int] | None:
        """Return between which bytes outside of the arena some were changed, or None; they are put right."""
        for guard, untouched, offset in zip(self._guards, self._untouched, (-GUARD_NBYTES, self.nbytes), strict=True):
            if guard.tobytes() != untouched:
                changed = np.flatnonzero(guard != _GUARD_BYTE)
                guard[:] = _GUARD_BYTE
                return int(changed[0]) + offset, int(changed[-1]) + offset + 1
        return None

    def poison(self, kept: Sequence[Allocation]) -> None:
        """Fill all but the `kept` places with what is wrong in every dtype."""
        at = 0
        for place in sorted(kept, key=lambda place: place.start):
            self._poison(at, place.start)
            at = max(at, place.end)
        self._poison(at, self.nbytes)

    def _poison(self, start: int, end: int) -> None:
        if start >= end:
            return
        first, last = -(-start // 2), end // 2
        self.inside[2 * first : 2 * last].view(np.uint16)[:] = _POISON
        self.inside[start : 2 * first] = _POISON >> 8
        self.inside[2 * last : end] = _POISON >> 8


class ShadowMemory:
    """The arenas of one method, or of several that share them, with what is known about every byte.

    Attributes:
        arenas: What the value table is made over.
        shadows: The arenas by their number; there is none for number 0.
        records: Of each write what was written, by what, and in which run; entry 0 is poison.
        states: The owners that keep their contents from run to run.
    """

    def __init__(self, sizes: Sequence[int], *, method: str) -> None:
        guarded = [nbytes + 2 * GUARD_NBYTES if number else 0 for number, nbytes in enumerate(sizes)]
        memory = Arenas.allocate(guarded, method=method).bytes_of
        self.shadows = {number: ShadowArena(number, memory[number], sizes[number]) for number in range(1, len(sizes))}
        self.arenas = Arenas([memory[0], *(shadow.memory() for shadow in self.shadows.values())])
        self.records: list[Record] = [(None, None, 0)]
        self.states: list[Owner] = []
        self.run = 0

    def state(self, owner: Owner) -> Owner:
        """Return the owner of that state, which another method may have brought along already."""
        name, *rest = owner.key
        for known in self.states:
            other, *same = known.key
            if same == rest and (name == other or name is None or other is None):
                return known
        self.states.append(owner)
        return owner

    def record(self, owner: Owner, site: Site) -> int:
        """Note a write of a whole tensor; return its number."""
        self.records.append((owner, site, self.run))
        return len(self.records) - 1

    def start_run(self, owners: Iterable[Owner]) -> None:
        """Forget the tensors of a method, and make garbage of all memory that is not state."""
        self.run += 1
        if len(self.records) > _MAX_RECORDS:
            self._forget_old_records()
        for owner in owners:
            if owner.key is None:
                owner.record = 0
                owner.pattern = None
        for number, shadow in self.shadows.items():
            shadow.poison([state.place for state in self.states if state.place.arena == number])

    def _forget_old_records(self) -> None:
        kept: list[Record] = [self.records[0]]
        masks = []
        for state in self.states:
            at = state.place
            masks.append(self.shadows[at.arena].writer[at.start : at.end] == state.record)
            kept.append(self.records[state.record])
        for shadow in self.shadows.values():
            shadow.writer[:] = 0
        for number, (state, mask) in enumerate(zip(self.states, masks, strict=True), start=1):
            at = state.place
            self.shadows[at.arena].writer[at.start : at.end][mask] = number
            state.record = number
            state.pattern = None
        self.records = kept


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
