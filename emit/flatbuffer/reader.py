"""Read tables from a flatbuffer that cannot be trusted.

Every offset, length, tag, number and string is checked before it is used. A schema has no cycles, so the depth of the
reading is fixed; how much may be read is bounded too, since parts of a flatbuffer may be shared and a small file could
otherwise stand for an enormous program.

The accessors of the flatbuffers runtime (`flatbuffers.table.Table`) check nothing and look every field up again, which
takes as long as reading all fields of a table at once by a plan for its vtable.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from struct import Struct, calcsize, unpack_from
from typing import Any, Final, NamedTuple, TypeVar

from flatbuffers import encode, packer
from pydantic import BaseModel

from .layout import OFFSET_NBYTES, Fault, FieldLayout, Kind, Table, TableLayout, layout_of, slot_count

TableT = TypeVar("TableT", bound=Table)

# Root offset and identifier.
PREFIX_NBYTES: Final[int] = OFFSET_NBYTES + encode.FILE_IDENTIFIER_LENGTH
# Sharing lets a program be larger than its file: an entry of 4 bytes may name a value of 24 that others name too.
BUDGET_FACTOR: Final = 8
BUDGET_SLACK_NBYTES: Final = 1 << 16
# What a vtable costs: a malformed file may have one for each table.
VTABLE_COST_NBYTES: Final = 256

_UNPACK_U32: Final = packer.uoffset.unpack_from
_UNPACK_I32: Final = packer.soffset.unpack_from
_NEW: Final = object.__new__
# Descriptors of a model's slots: half the time of object.__setattr__.
_PUT_FIELDS: Final = BaseModel.__dict__["__dict__"].__set__
_PUT_NAMES: Final = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_PUT_EXTRA: Final = BaseModel.__dict__["__pydantic_extra__"].__set__
_PUT_PRIVATE: Final = BaseModel.__dict__["__pydantic_private__"].__set__
_VTABLE_HEAD: Final = Struct("<HH")

# Reads the value at a byte: (decoder, argument, position) -> value.
Reader = Callable[[Any, Any, int], Any]


class Reference(NamedTuple):
    """An offset field: its place inside the table, what reads it, and what that needs to know."""

    name: str
    offset: int
    read: Reader
    argument: Any


class TablePlan(NamedTuple):
    """How to read the tables that share one vtable.

    Attributes:
        nbytes: Size of a table, with its vtable offset.
        alignment: 8 with fields of 8 bytes, else 4.
        phase: What the position of a table must be modulo `alignment`.
        template: All fields of the model in order; what is absent has its value already, unless mutable.
        fresh: Names and makers of absent fields whose value is mutable.
        scalar_names: Scalars that are present, in the order of their places.
        unpack: Unpacks them, given the data and the position of the table.
        choices: Those of them that take few values only.
        references: Offset fields that are present.
    """

    nbytes: int
    alignment: int
    phase: int
    template: dict[str, Any]
    fresh: tuple[tuple[str, Callable[[], Any]], ...]
    scalar_names: tuple[str, ...]
    unpack: Callable[[Any, int], tuple[Any, ...]]
    choices: tuple[tuple[str, dict[int, Any]], ...]
    references: tuple[Reference, ...]


class _Span(NamedTuple):
    """Bytes of a table that a field takes; `letter` unpacks them, if they are a scalar."""

    offset: int
    nbytes: int
    field: FieldLayout
    letter: str = ""


def plan_table(layout: TableLayout, nbytes: int, offsets: Sequence[int], readers: Mapping[Kind, Reader]) -> TablePlan:
    """Return the plan for tables of `nbytes` bytes whose field in slot i is at `offsets[i]` (0 if absent).

    Raises:
        Fault: EK507 for fields outside the table or on top of each other, EK508 for fields off their alignment,
            EK510 for a required field that is absent.
    """
    spans: list[_Span] = []
    references: list[Reference] = []
    template: dict[str, Any] = {}
    fresh: list[tuple[str, Callable[[], Any]]] = []
    slots = [*offsets, *([0] * (slot_count(layout) - len(offsets)))]
    for each in layout.fields:
        template[each.name] = None
        if slots[each.slot]:
            found, reference = _present(each, slots, readers)
            spans += found
            references += reference
        elif each.required:
            fault = Fault("EK510", f"{layout.name} lacks {each.name}", expected=f"a {each.kind.value}")
            raise fault.inside(f".{each.name}")
        elif each.kind in (Kind.TABLE, Kind.SCALARS, Kind.TABLES):
            fresh.append((each.name, each.default))
        else:
            template[each.name] = each.default()
    spans.sort(key=lambda span: span.offset)
    _check_places(layout, spans, nbytes)
    alignment, phase = _alignment(layout, spans)
    scalars = [span for span in spans if span.letter]
    return TablePlan(
        nbytes=nbytes,
        alignment=alignment,
        phase=phase,
        template=template,
        fresh=tuple(fresh),
        scalar_names=tuple(span.field.name for span in scalars),
        unpack=_struct_of(scalars).unpack_from,
        choices=tuple((each.name, each.choices) for *_, each, _ in scalars if each.choices is not None),
        references=tuple(references),
    )


def _present(
    each: FieldLayout, slots: Sequence[int], readers: Mapping[Kind, Reader]
) -> tuple[list[_Span], list[Reference]]:
    """Return the bytes that a field takes, and how to follow it if it is an offset."""
    offset = slots[each.slot]
    if each.kind is Kind.SCALAR:
        return [_Span(offset, each.nbytes, each, each.letter)], []
    if each.kind is not Kind.UNION:
        return [_Span(offset, OFFSET_NBYTES, each)], [Reference(each.name, offset, readers[each.kind], each)]
    value = slots[each.slot + 1]
    spans = [_Span(offset, 1, each), *([_Span(value, OFFSET_NBYTES, each)] if value else [])]
    # A tag without a value is a fault of the single table, found when that is read: its tag may say which.
    argument = (each, value - offset if value else None)
    return spans, [Reference(each.name, offset, readers[Kind.UNION], argument)]


def _check_places(layout: TableLayout, spans: list[_Span], nbytes: int) -> None:
    """Reject fields that leave the table or overlap; `spans` are in the order of their offsets."""
    free = OFFSET_NBYTES
    for span in spans:
        if span.offset < free or span.offset + span.nbytes > nbytes:
            message = f"{span.field.name} is at byte {span.offset} of a {layout.name} of {nbytes} bytes"
            expected = f"{free} to {nbytes - span.nbytes}"
            raise Fault("EK507", message, expected=expected).inside(f".{span.field.name}")
        free = span.offset + span.nbytes


def _alignment(layout: TableLayout, spans: list[_Span]) -> tuple[int, int]:
    """Return the alignment of the table and its phase, from those of its fields."""
    phases = {-span.offset % span.nbytes for span in spans if span.nbytes == 8}
    if len(phases) > 1 or any(span.offset % min(span.nbytes, 4) for span in spans):
        raise Fault("EK508", f"fields of {layout.name} are off their alignment")
    return (8, phases.pop()) if phases else (4, 0)


def _struct_of(scalars: list[_Span]) -> Struct:
    """Return what unpacks the scalars from the start of their table."""
    pattern, position = "<", 0
    for span in scalars:
        pattern += f"{span.offset - position}x{span.letter}"
        position = span.offset + span.nbytes
    return Struct(pattern)


def decode(model: type[TableT], data: memoryview, root: int | None = None, *, what: str = "program") -> TableT:
    """Return the table of type `model` at byte `root` of `data`, a contiguous view of bytes.

    Blobs stay views of `data`; everything else is copied out of it.

    Args:
        model: Type of the root table.
        data: The flatbuffer.
        root: Where the root table is; by default where the first offset leads.
        what: What the flatbuffer holds, for messages.

    Raises:
        Fault: EK506 to EK515, with the byte offset and the path of the field that is wrong.
    """
    position: int = encode.Get(packer.uoffset, data, 0) if root is None else root
    if position < PREFIX_NBYTES:
        raise Fault("EK506", f"the root table cannot be at byte {position}", 0, f"at least {PREFIX_NBYTES}")
    with _without_collection():
        table = _Decoder(data, what).table(layout_of(model), position)
    assert isinstance(table, model)
    return table


@contextmanager
def _without_collection() -> Iterator[None]:
    """Pause the collection of cycles: tables have none, and looking for them takes as long as reading."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Decoder:
    def __init__(self, data: memoryview, what: str) -> None:
        self.data = data
        self.what = what
        self.end = len(data)
        self.budget = BUDGET_FACTOR * self.end + BUDGET_SLACK_NBYTES
        self.plans: dict[tuple[TableLayout, int], TablePlan] = {}
        self.strings: dict[int, str] = {}

    def spend(self, nbytes: int, position: int) -> None:
        """Charge the reading of `nbytes` to the budget."""
        self.budget -= nbytes
        if self.budget < 0:
            raise self.spent(position)

    def spent(self, position: int) -> Fault:
        """Return the fault of a file for which the budget is not enough, noticed at `position`."""
        return Fault(
            "EK515",
            f"the parts of the {self.what} are shared so much that it is far larger than its file",
            position,
            f"at most {BUDGET_FACTOR} times the {self.end} bytes of the {self.what}",
        )

    def table(self, layout: TableLayout, position: int) -> Table:
        """Read the table at `position`."""
        data, end = self.data, self.end
        if position & 3 or position + 4 > end:
            raise self.bad_position(layout.name, position)
        vtable = position - _UNPACK_I32(data, position)[0]
        plan = self.plans.get((layout, vtable)) or self.plan(layout, vtable, position)
        if position % plan.alignment != plan.phase:
            raise Fault("EK508", f"{layout.name} has a field of 8 bytes off its alignment", position)
        if position + plan.nbytes > end:
            raise self.past_end(layout.name, position, plan.nbytes)
        self.budget -= plan.nbytes
        if self.budget < 0:
            raise self.spent(position)
        content = plan.template.copy()
        if plan.scalar_names:
            content.update(zip(plan.scalar_names, plan.unpack(data, position), strict=False))
        if plan.choices:
            _choose(plan, content, position)
        for name, make in plan.fresh:
            content[name] = make()
        name = ""
        try:
            for name, offset, read, argument in plan.references:
                content[name] = read(self, argument, position + offset)
        except Fault as fault:
            raise fault.inside(f".{name}") from None
        # The decoder has checked what the model would validate again.
        table: Table = _NEW(layout.model)
        _PUT_FIELDS(table, content)
        _PUT_NAMES(table, layout.names)
        _PUT_EXTRA(table, None)
        _PUT_PRIVATE(table, None)
        return table

    def plan(self, layout: TableLayout, vtable: int, position: int) -> TablePlan:
        """Check the vtable at byte `vtable`, which the table at `position` uses, and plan the reading of it."""
        if vtable < 0 or vtable & 1 or vtable + 4 > self.end:
            raise self.bad_position(f"vtable of {layout.name}", vtable, position)
        vtable_nbytes, table_nbytes = _VTABLE_HEAD.unpack_from(self.data, vtable)
        if vtable_nbytes < 4 or vtable_nbytes & 1 or vtable + vtable_nbytes > self.end or table_nbytes < 4:
            raise Fault(
                "EK507",
                f"vtable of {layout.name} gives itself {vtable_nbytes} bytes and the table {table_nbytes}",
                vtable,
                f"even and at least 4, both inside the {self.what}",
            )
        self.spend(VTABLE_COST_NBYTES, vtable)
        known_nbytes = min(vtable_nbytes, 4 + 2 * layout.slots)
        try:
            plan = _plan_of(layout, bytes(self.data[vtable : vtable + known_nbytes]))
        except Fault as fault:
            fault.offset = vtable
            raise
        self.plans[layout, vtable] = plan
        return plan

    def target(self, at: int) -> int:
        """Follow the offset at byte `at` to something of at least 4 bytes."""
        offset: int = _UNPACK_U32(self.data, at)[0]
        if offset == 0 or at + offset + 4 > self.end:
            where = "nowhere" if offset == 0 else f"outside the {self.end} bytes of the {self.what}"
            raise Fault("EK506", f"offset {offset} leads {where}", at, f"1 to {self.end - 4 - at}")
        return at + offset

    def vector(self, at: int, width: int) -> tuple[int, int]:
        """Follow the offset at byte `at` to a vector; return where its elements start, and how many there are."""
        position = self.target(at)
        if position & 3:
            raise self.bad_position("vector", position)
        count: int = _UNPACK_U32(self.data, position)[0]
        start = position + 4
        if count * width > self.end - start:
            raise self.past_end(f"vector of {count} elements", position, 4 + count * width)
        if count and start % width:
            raise Fault("EK508", f"vector elements of {width} bytes are off their alignment", start)
        return start, count

    def bad_position(self, what: str, position: int, at: int | None = None) -> Fault:
        """Return the fault of something that cannot be at `position`, which the offset at byte `at` gives."""
        inside = 0 <= position <= self.end - 4
        fault = "is not aligned" if inside else f"is outside the {self.end} bytes of the {self.what}"
        code = "EK508" if inside else "EK506"
        return Fault(code, f"{what} at byte {position} {fault}", position if at is None else at)

    def past_end(self, what: str, position: int, nbytes: int) -> Fault:
        """Return the fault of something that is too long."""
        message = f"{what} takes {nbytes} bytes, past the end of the {self.what} at byte {self.end}"
        return Fault("EK509", message, position)


def _choose(plan: TablePlan, content: dict[str, Any], position: int) -> None:
    """Replace numbers that have few legal values by the values."""
    for name, choices in plan.choices:
        number = content[name]
        if number not in choices:
            raise _bad_choice(name, number, choices, position).inside(f".{name}")
        content[name] = choices[number]


def _bad_choice(name: str, number: int, choices: dict[int, Any], position: int) -> Fault:
    known = ", ".join(f"{known} ({getattr(value, 'name', value)})" for known, value in choices.items())
    return Fault("EK512", f"{number} is not a value of {name}", position, known)


def _read_string(decoder: _Decoder, _field: FieldLayout, at: int) -> str:
    position = decoder.target(at)
    known = decoder.strings.get(position)
    if known is not None:
        return known
    start, nbytes = decoder.vector(at, 1)
    stop = start + nbytes
    decoder.spend(nbytes, position)
    if stop >= decoder.end or decoder.data[stop] != 0:
        raise Fault("EK514", "string does not end with a zero byte", min(stop, decoder.end))
    try:
        string = str(decoder.data[start:stop], "utf-8")
    except UnicodeDecodeError as error:
        raise Fault("EK514", f"string is not UTF-8: {error.reason}", start + error.start) from None
    decoder.strings[position] = string
    return string


def _read_bytes(decoder: _Decoder, _field: FieldLayout, at: int) -> bytes:
    start, nbytes = decoder.vector(at, 1)
    decoder.spend(nbytes, start)
    return bytes(decoder.data[start : start + nbytes])


def _read_blob(decoder: _Decoder, _field: FieldLayout, at: int) -> memoryview:
    start, nbytes = decoder.vector(at, 1)
    return decoder.data[start : start + nbytes]


def _read_scalars(decoder: _Decoder, each: FieldLayout, at: int) -> list[Any]:
    width = calcsize(f"<{each.letter}")
    start, count = decoder.vector(at, width)
    decoder.spend(4 + count * width, start)
    numbers = list(unpack_from(f"<{count}{each.letter}", decoder.data, start))
    if each.choices is None:
        return numbers
    for index, number in enumerate(numbers):
        if number not in each.choices:
            raise _bad_choice("a vector element", number, each.choices, start + index * width).inside(f"[{index}]")
    return [each.choices[number] for number in numbers]


def _read_table(decoder: _Decoder, each: FieldLayout, at: int) -> Table:
    return decoder.table(each.tables[0], decoder.target(at))


def _read_tables(decoder: _Decoder, each: FieldLayout, at: int) -> list[Table]:
    start, count = decoder.vector(at, 4)
    decoder.spend(4 + count * 4, start)
    layout = each.tables[0]
    tables: list[Table] = []
    try:
        for place, offset in enumerate(unpack_from(f"<{count}I", decoder.data, start)):
            if offset == 0:
                decoder.target(start + 4 * place)
            tables.append(decoder.table(layout, start + 4 * place + offset))
    except Fault as fault:
        raise fault.inside(f"[{len(tables)}]") from None
    return tables


def _read_union(decoder: _Decoder, argument: tuple[FieldLayout, int | None], at: int) -> Table:
    each, distance = argument
    tag = decoder.data[at]
    if not 1 <= tag <= len(each.tables):
        known = ", ".join(f"{number} ({table.name})" for number, table in enumerate(each.tables, 1))
        raise Fault("EK511", f"{tag} is not a tag of the union {each.name}", at, known)
    if distance is None:
        raise Fault("EK510", f"a {each.tables[tag - 1].name} is announced but absent", at)
    return decoder.table(each.tables[tag - 1], decoder.target(at + distance))


_READERS: Final[dict[Kind, Reader]] = {
    Kind.STRING: _read_string,
    Kind.BYTES: _read_bytes,
    Kind.BLOB: _read_blob,
    Kind.SCALARS: _read_scalars,
    Kind.TABLE: _read_table,
    Kind.TABLES: _read_tables,
    Kind.UNION: _read_union,
}


@lru_cache(maxsize=1024)
def _plan_of(layout: TableLayout, vtable: bytes) -> TablePlan:
    # The same few vtables are in all files of an exporter.
    _, table_nbytes, *offsets = unpack_from(f"<{len(vtable) // 2}H", vtable)
    return plan_table(layout, table_nbytes, offsets, _READERS)
