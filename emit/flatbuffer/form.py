"""The bytes of a table with a certain set of fields: its vtable, and how to pack it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from struct import Struct, pack
from typing import NamedTuple

from .layout import OFFSET_NBYTES, FieldLayout, Kind, TableLayout, slot_count


class Entry(NamedTuple):
    """One vtable entry: a scalar, an offset, or the tag of a union."""

    slot: int
    letter: str
    is_offset: bool
    field: FieldLayout

    @property
    def nbytes(self) -> int:
        """Width inside the table, in bytes."""
        return OFFSET_NBYTES if self.is_offset else Struct(f"<{self.letter}").size


@dataclass(frozen=True, eq=False)
class TableForm:
    """How a table is written in which some of the fields are present.

    Attributes:
        nbytes: Size of the table, a multiple of 4.
        has_wide: Whether it has fields of 8 bytes; they follow its first 4 bytes, so that the position of the table
            must be 4 modulo 8.
        pattern: Packs the table, starting with the offset of its vtable.
        order: What comes after that: the index of an entry, and its place in the table if it is an offset, else 0.
        vtable: The bytes of the vtable, padded to a multiple of 4.
    """

    nbytes: int
    has_wide: bool
    pattern: Struct
    order: tuple[tuple[int, int], ...]
    vtable: bytes


@cache
def entries_of(layout: TableLayout) -> tuple[Entry, ...]:
    """Return the vtable entries of a table; those of a union are its value, then its tag."""
    entries: list[Entry] = []
    for each in layout.fields:
        if each.kind is Kind.SCALAR:
            entries.append(Entry(each.slot, each.letter, False, each))
        elif each.kind is Kind.UNION:
            entries += [Entry(each.slot + 1, "I", True, each), Entry(each.slot, "B", False, each)]
        else:
            entries.append(Entry(each.slot, "I", True, each))
    return tuple(entries)


@cache
def form_of(layout: TableLayout, present: int) -> TableForm:
    """Return the form of the tables that have the entries whose bits are set in `present`."""
    entries = entries_of(layout)
    chosen = [(index, entry) for index, entry in enumerate(entries) if present >> index & 1]
    # Widest first leaves no gaps; the sort keeps the order of the slots among equals.
    chosen.sort(key=lambda item: -item[1].nbytes)
    pattern, order, offset = "<i", [], OFFSET_NBYTES
    places = [0] * slot_count(layout)
    for index, entry in chosen:
        places[entry.slot] = offset
        order.append((index, offset if entry.is_offset else 0))
        pattern += entry.letter
        offset += entry.nbytes
    padding = -offset % 4
    return TableForm(
        nbytes=offset + padding,
        has_wide=any(entry.nbytes == 8 for _, entry in chosen),
        pattern=Struct(f"{pattern}{padding}x"),
        order=tuple(order),
        vtable=_vtable(places, offset + padding),
    )


def _vtable(places: Sequence[int], table_nbytes: int) -> bytes:
    """Return a vtable, without the entries at its end that are absent."""
    used = max((slot + 1 for slot, place in enumerate(places) if place), default=0)
    nbytes = 4 + 2 * used
    return pack(f"<HH{used}H{-nbytes % 4}x", nbytes, table_nbytes, *places[:used])
