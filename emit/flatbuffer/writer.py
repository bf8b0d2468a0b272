"""Write tables as a flatbuffer.

The buffer grows from its end to its start, so that whatever is written can refer to all that was written before.
Positions therefore count from the end: the position of a thing is the number of bytes from its first byte to the end
of the buffer. Equal vtables, strings, short vectors and tables of scalars are written once: a value table is mostly
small integers, and one entry serves them all.

The bytes depend on the tables alone. Blobs are not copied: the result is a sequence of chunks. (The Builder of the
flatbuffers runtime shares vtables and strings only, copies blobs, and takes twice as long.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from struct import Struct, calcsize, pack
from struct import error as StructError  # noqa: N812
from typing import Any, Final, NamedTuple

from exirkit.ir import ModelError

from .layout import (
    FLOAT_LETTERS,
    OFFSET_NBYTES,
    Fault,
    FieldLayout,
    Kind,
    StreamedBytes,
    Table,
    TableLayout,
    layouts_in,
    slot_count,
)
from .reader import PREFIX_NBYTES

Chunk = bytes | memoryview

# uoffset_t is 32 bits wide, and readers take it as signed in places.
MAXIMUM_NBYTES: Final = 2**31 - 1
# Longer vectors are hardly ever equal.
_SHARED_VECTOR_NBYTES: Final = 64
# Smaller chunks are joined, larger ones stay views of their owner's memory.
_JOINED_CHUNK_NBYTES: Final = 4096


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


@dataclass(frozen=True)
class EncodedTable:
    """A flatbuffer that still lacks its first bytes, which depend on the size of the header.

    Attributes:
        body: The bytes behind identifier and header, in order.
        body_nbytes: Their number.
        root: Position of the root table, in bytes from the end.
        alignment: Largest alignment in it; the size of a header must be a multiple of it.
        identifier: Four bytes that name the format.
    """

    body: tuple[Chunk, ...]
    body_nbytes: int
    root: int
    alignment: int
    identifier: bytes

    def nbytes(self, header_nbytes: int = 0) -> int:
        """Return the size of the whole flatbuffer with a header of `header_nbytes` bytes."""
        nbytes = PREFIX_NBYTES + header_nbytes + self.body_nbytes
        return nbytes + -nbytes % self.alignment

    def chunks(self, header: bytes = b"") -> tuple[Chunk, ...]:
        """Return all bytes in order."""
        nbytes = self.nbytes(len(header))
        start = pack("<I4s", nbytes - self.root, self.identifier) + header
        return (start + bytes(nbytes - self.body_nbytes - len(start)), *self.body)


def encode(root: Table, identifier: bytes, *, alignment: int, alignments: Mapping[type, int]) -> EncodedTable:
    """Return a table, as it stands, as a flatbuffer.

    Args:
        root: The root table.
        identifier: Four bytes that name the format.
        alignment: Alignment of the whole, and of blobs, in bytes, a power of two.
        alignments: Alignment of the blobs of some tables, by type.

    Raises:
        ModelError: EK520 for a value that its field cannot hold, EK525 for 2 GiB or more.
    """
    encoder = _Encoder(type(root), alignment, alignments)
    try:
        position = encoder.table(root)
        if encoder.used > MAXIMUM_NBYTES:
            raise _too_large(encoder.used)
    except Fault as fault:
        raise ModelError(fault.diagnostic()) from None
    largest = max((alignment, *alignments.values()))
    return EncodedTable(_join(encoder.chunks), encoder.used, position, largest, identifier)


def _join(backwards: list[Chunk]) -> tuple[Chunk, ...]:
    """Return the chunks in the order of the file, runs of small ones joined."""
    joined: list[Chunk] = []
    run: list[Chunk] = []
    for chunk in reversed(backwards):
        if len(chunk) < _JOINED_CHUNK_NBYTES:
            run.append(chunk)
            continue
        joined += (b"".join(run), chunk) if run else (chunk,)
        run = []
    return (*joined, b"".join(run))


class _Writer:
    """What the encoder needs to know about one kind of table, looked up once."""

    def __init__(self, layout: TableLayout) -> None:
        self.layout = layout
        self.values = layout.values
        self.is_flat = layout.is_flat
        self.has_float = any(each.kind is Kind.SCALAR and each.letter in FLOAT_LETTERS for each in layout.fields)
        entries = tuple(enumerate(entries_of(layout)))
        # What an absent field reads as need not be written, except that -0.0 equals 0.0 and is another number.
        self.scalars = tuple(
            (index, 1 << index, entry.field.default(), entry.letter in FLOAT_LETTERS, entry.field.choices)
            for index, entry in entries
            if entry.field.kind is Kind.SCALAR
        )
        self.references = tuple(
            (index, 1 << index, _PUT[entry.field.kind], entry.field)
            for index, entry in entries
            if entry.field.kind not in (Kind.SCALAR, Kind.UNION)
        )
        union = layout.fields[0] if layout.fields and layout.fields[0].kind is Kind.UNION else None
        self.tags = {table.model: tag for tag, table in enumerate(union.tables, 1)} if union else None


@cache
def _writers(root: type[Table]) -> dict[type, _Writer]:
    return {layout.model: _Writer(layout) for layout in layouts_in(root)}


class _Encoder:
    """Bytes written so far, the last first, and where in them the things are that can be shared."""

    def __init__(self, root: type[Table], alignment: int, alignments: Mapping[type, int]) -> None:
        self.alignment = alignment
        self.alignments = alignments
        self.writers = _writers(root)
        self.chunks: list[Chunk] = []
        self.used = 0
        self.shared: dict[Any, int] = {}

    def put(self, chunk: Chunk) -> int:
        """Write a chunk whose size is a multiple of 4 and return its position."""
        self.chunks.append(chunk)
        self.used += len(chunk)
        return self.used

    def put_once(self, chunk: bytes, key: Any) -> int:
        """Write a chunk unless there is one with the same key."""
        position = self.shared.get(key)
        if position is None:
            position = self.shared[key] = self.put(chunk)
        return position

    def align(self, nbytes: int, alignment: int) -> None:
        """Write zeros such that the position after another `nbytes` bytes is a multiple of `alignment`."""
        padding = -(self.used + nbytes) % alignment
        if padding:
            self.put(bytes(padding))

    def table(self, table: Any) -> int:
        """Write a table, or find an equal one that can serve, and return its position."""
        writer = self.writers.get(type(table))
        if writer is None:
            raise Fault("EK520", f"{_show(table)} is not a table of the schema")
        values = writer.values(table)
        if writer.tags is not None:
            return self.union(writer, writer.tags, values[0])
        if not writer.is_flat:
            return self.fields(writer, list(values))
        # The bits tell numbers apart that compare equal, and recognise a NaN.
        key = (writer, pack("<d", *values) if writer.has_float else values)
        position = self.shared.get(key)
        if position is None:
            position = self.shared[key] = self.fields(writer, list(values))
        return position

    def union(self, writer: _Writer, tags: Mapping[type, int], member: Any) -> int:
        """Write a table that holds one union."""
        tag = tags.get(type(member))
        if tag is None:
            raise Fault("EK520", f"{_show(member)} is not a member of the union")
        name = writer.layout.fields[0].name
        try:
            content = self.table(member)
        except Fault as fault:
            raise fault.inside(f".{name}") from None
        if not self.writers[type(member)].is_flat:
            return self.pack(writer, [content, tag], 3)
        key = (writer, content)
        position = self.shared.get(key)
        if position is None:
            position = self.shared[key] = self.pack(writer, [content, tag], 3)
        return position

    def fields(self, writer: _Writer, values: list[Any]) -> int:
        """Write what the fields refer to, then the table."""
        present = 0
        for index, bit, absent, is_float, choices in writer.scalars:
            value = values[index]
            if value != absent or is_float:
                present |= bit
            if choices is not None and value not in choices:
                raise _unfit(value, choices).inside(f".{writer.layout.fields[index].name}")
        for index, bit, put, each in writer.references:
            value = values[index]
            if value is None and each.optional:
                continue
            try:
                values[index] = put(self, each, value)
            except Fault as fault:
                raise fault.inside(f".{each.name}") from None
            except _UNFIT:
                raise _unfit(value, each.kind.value).inside(f".{each.name}") from None
            present |= bit
        return self.pack(writer, values, present)

    def pack(self, writer: _Writer, values: list[Any], present: int) -> int:
        """Write a table whose fields are numbers and positions."""
        form = form_of(writer.layout, present)
        vtable = self.put_once(form.vtable, form.vtable)
        if form.has_wide:
            self.align(form.nbytes + 4, 8)
        position = self.used + form.nbytes
        arguments = [vtable - position]
        for index, offset in form.order:
            value = values[index]
            arguments.append(position - offset - value if offset else value)
        try:
            return self.put(form.pattern.pack(*arguments))
        except _UNFIT:
            raise _unpackable(writer, values) from None


_UNFIT: Final = (StructError, TypeError, ValueError, OverflowError)


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}"


def _unfit(value: object, expected: object) -> Fault:
    if isinstance(expected, dict):
        expected = ", ".join(f"{number} ({getattr(known, 'name', known)})" for number, known in expected.items())
    return Fault("EK520", f"{_show(value)} does not fit the field", expected=str(expected))


def _unpackable(writer: _Writer, values: list[Any]) -> Fault:
    """Return the fault of the scalar that could not be packed."""
    for index, *_ in writer.scalars:
        each = writer.layout.fields[index]
        try:
            pack(f"<{each.letter}", values[index])
        except _UNFIT:
            return _unfit(values[index], _range_text(each.letter)).inside(f".{each.name}")
    return Fault("EK525", "an offset in the program does not fit 32 bits")


def _range_text(letter: str) -> str:
    if letter in FLOAT_LETTERS:
        return "a floating-point number"
    bits = 8 * calcsize(f"<{letter}")
    return f"-2**{bits - 1} to 2**{bits - 1} - 1" if letter.islower() else f"0 to 2**{bits} - 1"


def _too_large(nbytes: int) -> Fault:
    return Fault("EK525", f"the program has {nbytes} bytes", expected=f"at most {MAXIMUM_NBYTES}")


def _put_string(encoder: _Encoder, _field: FieldLayout, text: str) -> int:
    position = encoder.shared.get(text)
    if position is None:
        data = text.encode()
        nbytes = len(data)
        # At least one zero byte ends the string.
        chunk = pack(f"<I{nbytes}s{4 - nbytes % 4}x", nbytes, data)
        position = encoder.shared[text] = encoder.put(chunk)
    return position


def _put_bytes(encoder: _Encoder, _field: FieldLayout, data: bytes) -> int:
    nbytes = len(data)
    return encoder.put(pack(f"<I{nbytes}s{-nbytes % 4}x", nbytes, data))


def _put_blob(encoder: _Encoder, each: FieldLayout, data: Any) -> int:
    if isinstance(data, StreamedBytes):
        # Inside of a flatbuffer; in a segment behind it nothing is copied.
        data = bytes(data)
    if not isinstance(data, (bytes, memoryview)):
        raise _unfit(data, "bytes or a memoryview")
    nbytes = len(data)
    if encoder.used + nbytes > MAXIMUM_NBYTES:
        raise _too_large(encoder.used + nbytes)
    encoder.align(nbytes, encoder.alignments.get(each.owner, encoder.alignment))
    encoder.put(data)
    return encoder.put(pack("<I", nbytes))


def _put_scalars(encoder: _Encoder, each: FieldLayout, numbers: list[Any]) -> int:
    count, letter, choices = len(numbers), each.letter, each.choices
    if choices is not None and not all(number in choices for number in numbers):
        raise _unfit(numbers, choices)
    if letter == "B":
        chunk = pack(f"<I{count}B{-count % 4}x", count, *numbers)
    else:
        chunk = pack(f"<I{count}{letter}", count, *numbers)
    key = (letter, chunk) if len(chunk) <= _SHARED_VECTOR_NBYTES else None
    position = encoder.shared.get(key)
    if position is None:
        if letter in "qQd":
            encoder.align(len(chunk) + 4, 8)
        position = encoder.put(chunk)
        if key is not None:
            encoder.shared[key] = position
    return position


def _put_table(encoder: _Encoder, each: FieldLayout, table: Table) -> int:
    if type(table) is not each.tables[0].model:
        raise _unfit(table, each.tables[0].name)
    return encoder.table(table)


def _put_tables(encoder: _Encoder, each: FieldLayout, tables: list[Table]) -> int:
    count, model = len(tables), each.tables[0].model
    positions = [0] * count
    index = 0
    try:
        # The last one first, so that their order in the buffer is that of the program.
        for index in range(count - 1, -1, -1):
            if type(tables[index]) is not model:
                raise _unfit(tables[index], model.__name__)
            positions[index] = encoder.table(tables[index])
    except Fault as fault:
        raise fault.inside(f"[{index}]") from None
    first = encoder.used + 4 * count
    offsets = [first - 4 * index - position for index, position in enumerate(positions)]
    return encoder.put(pack(f"<I{count}I", count, *offsets))


_PUT: Final[dict[Kind, Callable[[_Encoder, FieldLayout, Any], int]]] = {
    Kind.STRING: _put_string,
    Kind.BYTES: _put_bytes,
    Kind.BLOB: _put_blob,
    Kind.SCALARS: _put_scalars,
    Kind.TABLE: _put_table,
    Kind.TABLES: _put_tables,
}
