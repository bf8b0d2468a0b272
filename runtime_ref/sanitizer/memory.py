"""Arenas that know, for every byte, which write put it there.

Every write to a tensor gets a number, and the shadow of an arena holds for each byte the number of the last write
to it. What number a tensor's bytes must have is known to its `Owner`; views of one tensor share a owner. Number 0
is no write: poison.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from exirkit.runtime_ref.interpreter.value_table import ALIGNMENT_NBYTES, Arenas

from .allocations import Allocation

GUARD_NBYTES: Final = 1024
_GUARD_BYTE: Final = 0xA5
# Two of these are a NaN in every floating-point type, and far below zero in every signed integer.
_POISON: Final = 0xFFF5
# Records are kept for messages; past so many those of earlier runs are let go.
_MAX_RECORDS: Final = 1 << 18


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

    __slots__ = ("index", "key", "label", "method", "pattern", "place", "record")

    def __init__(self, method: str, index: int, place: Allocation, label: str, *, key: Any = None) -> None:
        self.method = method
        self.index = index
        self.place = place
        self.key = key
        self.label = label
        self.record = 0
        self.pattern: bytes | None = None


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
