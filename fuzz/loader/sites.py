"""Where the fields of a file are: every number, offset, length, tag and text of header and flatbuffer, with its role.

The walk believes nothing: the files are damaged. What leads outside is left out, what was seen is not entered again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from struct import Struct
from typing import Final, NamedTuple

from exirkit.emit import FieldLayout, Kind, Program, TableLayout, layout_of

# More are not needed to damage a file, and a damaged file may pretend to have any number of them.
MAX_SITES: Final = 4000

_U16: Final = Struct("<H").unpack_from
_I32: Final = Struct("<i").unpack_from
_U32: Final = Struct("<I").unpack_from
_MAGIC: Final = b"eh00"
_HEADER_FIELDS: Final = ((12, "I"), (16, "Q"), (24, "Q"), (32, "Q"))
_UNPACK: Final = {letter: Struct(f"<{letter}").unpack_from for letter in "bBhHiIqQd"}
_NBYTES: Final = {letter: Struct(f"<{letter}").size for letter in "bBhHiIqQd"}


class Role(Enum):
    """What stands at a site."""

    HEADER = "field of the extended header"
    OFFSET = "offset to something"
    VTABLE = "offset of a table to its vtable"
    SLOT = "entry of a vtable"
    LENGTH = "length of a vector"
    NUMBER = "number"
    CHOICE = "number of an enum, or bool"
    TAG = "tag of a union"
    BYTES = "text, or bytes"


class Site(NamedTuple):
    """One field.

    Attributes:
        at: Its first byte.
        letter: `struct` letter of what stands there.
        role: What that is.
        name: The field's name in the schema; equal names mean equal things.
        nbytes: How many bytes there are, of texts and bytes; of a tag, how many members the union has.
    """

    at: int
    letter: str
    role: Role
    name: str = ""
    nbytes: int = 1


@dataclass
class Sites:
    """The fields of one file.

    Attributes:
        by_role: The sites of each role.
        places: Where offsets lead, by what is there: the place of another thing is a likely wrong offset.
        numbers: Numbers and lengths that the file has; the same numbers are likely wrong indices.
    """

    by_role: dict[Role, list[Site]] = field(default_factory=lambda: {role: [] for role in Role})
    places: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    count: int = 0

    def add(self, site: Site) -> None:
        """Add a site."""
        self.by_role[site.role].append(site)
        self.count += 1


def find_sites(data: bytes) -> Sites:
    """Return the fields of a file, as far as they can be found."""
    sites = Sites()
    if len(data) < 12:
        return sites
    sites.add(Site(0, "I", Role.OFFSET, "root"))
    sites.add(Site(4, "B", Role.BYTES, "identifier", 4))
    if data[8:12] == _MAGIC:
        for at, letter in _HEADER_FIELDS:
            if at + _NBYTES[letter] <= len(data):
                sites.add(Site(at, letter, Role.HEADER))
    _Walk(data, sites).table(layout_of(Program), _U32(data, 0)[0])
    return sites


class _Walk:
    """One walk over a file; its depth is that of the schema, which has no cycles."""

    def __init__(self, data: bytes, sites: Sites) -> None:
        self._data = data
        self._end = len(data)
        self._sites = sites
        self._seen: set[int] = set()

    def table(self, layout: TableLayout, position: int) -> None:
        """Visit the table at `position`."""
        if not 8 <= position <= self._end - 4 or position in self._seen or self._sites.count > MAX_SITES:
            return
        self._seen.add(position)
        self._sites.places.append(position)
        self._sites.add(Site(position, "i", Role.VTABLE))
        vtable = position - _I32(self._data, position)[0]
        entries = self._vtable(vtable)
        for each in layout.fields:
            if each.slot < len(entries) and entries[each.slot]:
                at = position + entries[each.slot]
                if each.kind is Kind.UNION:
                    value = entries[each.slot + 1] if each.slot + 1 < len(entries) else 0
                    self._union(each, at, position + value)
                else:
                    self._field(each, at)

    def _vtable(self, vtable: int) -> list[int]:
        if not 0 <= vtable <= self._end - 4:
            return []
        nbytes = min(_U16(self._data, vtable)[0], self._end - vtable, 64)
        places = range(vtable + 4, vtable + nbytes - 1, 2)
        if vtable not in self._seen:
            self._seen.add(vtable)
            for at in (vtable, vtable + 2, *places):
                self._sites.add(Site(at, "H", Role.SLOT))
        return [_U16(self._data, at)[0] for at in places]

    def _field(self, each: FieldLayout, at: int) -> None:
        if each.kind is Kind.SCALAR:
            self._number(each, at)
            return
        position = self._target(each, at)
        if position is None:
            return
        if each.kind is Kind.TABLE:
            self.table(each.tables[0], position)
        elif each.kind is Kind.TABLES:
            for place in self._elements(position, 4):
                target = self._target(each, place)
                if target is not None:
                    self.table(each.tables[0], target)
        elif each.kind is Kind.SCALARS:
            for place in self._elements(position, _NBYTES[each.letter]):
                self._number(each, place)
        else:
            content = self._elements(position, 1)
            if content:
                self._sites.add(Site(content.start, "B", Role.BYTES, each.name, len(content)))

    def _union(self, each: FieldLayout, tag: int, at: int) -> None:
        if tag >= self._end:
            return
        self._sites.add(Site(tag, "B", Role.TAG, each.name, len(each.tables)))
        position = self._target(each, at)
        member = self._data[tag]
        if position is not None and 1 <= member <= len(each.tables):
            self.table(each.tables[member - 1], position)

    def _number(self, each: FieldLayout, at: int) -> None:
        if at + _NBYTES[each.letter] > self._end or self._sites.count > MAX_SITES:
            return
        role = Role.NUMBER if each.choices is None else Role.CHOICE
        self._sites.add(Site(at, each.letter, role, each.name))
        if each.letter != "d":
            self._sites.numbers.append(_UNPACK[each.letter](self._data, at)[0])

    def _target(self, each: FieldLayout, at: int) -> int | None:
        """Follow the offset at byte `at`."""
        if at + 4 > self._end or self._sites.count > MAX_SITES:
            return None
        self._sites.add(Site(at, "I", Role.OFFSET, each.name))
        position = at + int(_U32(self._data, at)[0])
        return position if position <= self._end - 4 else None

    def _elements(self, position: int, nbytes: int) -> range:
        """Return the places of the elements of the vector at `position`."""
        if position not in self._seen:
            self._seen.add(position)
            self._sites.places.append(position)
            self._sites.add(Site(position, "I", Role.LENGTH))
        count = int(_U32(self._data, position)[0])
        self._sites.numbers.append(count)
        start = position + 4
        return range(start, start + nbytes * min(count, (self._end - start) // nbytes, 256), nbytes)
