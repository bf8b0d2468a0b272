"""Read a program from a flatbuffer that nobody has to trust.

Every offset, length, tag, number and text is checked before it is used. The schema has no cycles, so the depth of
the reading is fixed; how much may be read is bounded too, since parts of a flatbuffer may be shared and a small file
could otherwise stand for an enormous program.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, unpack_from
from typing import Any, Final

from pydantic import BaseModel

from exirkit.emit.container.header import PREFIX_NBYTES
from exirkit.emit.errors import ProgramFormatError
from exirkit.emit.schema import Program

from .fault import Fault
from .layout import FieldLayout, Kind, TableLayout, layout_of
from .read_plan import Reader, TablePlan, plan_table
from .wire import Table

# Sharing lets a program be larger than its file: an entry of 4 bytes may name a value of 24 that others name too.
BUDGET_FACTOR: Final = 8
BUDGET_SLACK_NBYTES: Final = 1 << 16
# What a vtable costs: a hostile file may have one for each table.
VTABLE_COST_NBYTES: Final = 256

_UNPACK_U32: Final = Struct("<I").unpack_from
_UNPACK_I32: Final = Struct("<i").unpack_from
_NEW: Final = object.__new__
# Descriptors of a model's slots: half the time of object.__setattr__.
_PUT_FIELDS: Final = BaseModel.__dict__["__dict__"].__set__
_PUT_NAMES: Final = BaseModel.__dict__["__pydantic_fields_set__"].__set__
_PUT_EXTRA: Final = BaseModel.__dict__["__pydantic_extra__"].__set__
_PUT_PRIVATE: Final = BaseModel.__dict__["__pydantic_private__"].__set__
_VTABLE_HEAD: Final = Struct("<HH")
_WIDTHS: Final = {"b": 1, "B": 1, "i": 4, "I": 4, "q": 8, "Q": 8, "d": 8}


def decode_program(data: memoryview, root: int) -> Program:
    """Return the program whose root table is at byte `root` of `data`, a contiguous view of bytes.

    Blobs stay views of `data`; everything else is copied out of it.

    Raises:
        ProgramFormatError: EK506 to EK515, with the byte offset and the path of the field that is wrong.
    """
    try:
        program = _Decoder(data).root(root)
    except Fault as fault:
        raise ProgramFormatError(fault.diagnostic()) from None
    assert isinstance(program, Program)
    return program


class _Decoder:
    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.end = len(data)
        self.budget = BUDGET_FACTOR * self.end + BUDGET_SLACK_NBYTES
        self.plans: dict[tuple[TableLayout, int], TablePlan] = {}
        self.texts: dict[int, str] = {}

    def root(self, position: int) -> Table:
        """Read the program at `position`."""
        if position < PREFIX_NBYTES:
            raise Fault("EK506", f"the root table cannot be at byte {position}", 0, f"at least {PREFIX_NBYTES}")
        return self.table(layout_of(Program), position)

    def spend(self, nbytes: int, position: int) -> None:
        """Charge the reading of `nbytes` to the budget."""
        self.budget -= nbytes
        if self.budget < 0:
            raise self.spent(position)

    def spent(self, position: int) -> Fault:
        """Return the fault of a program for which the budget is not enough, noticed at `position`."""
        return Fault(
            "EK515",
            "the parts of the program are shared so much that it is far larger than its file",
            position,
            f"at most {BUDGET_FACTOR} times the {self.end} bytes of the program",
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
                "even and at least 4, both inside the program",
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
            where = "nowhere" if offset == 0 else f"outside the {self.end} bytes of the program"
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
        """Return the fault of something that cannot be at `position`, which is named at byte `at`."""
        inside = 0 <= position <= self.end - 4
        fault = "is not aligned" if inside else f"is outside the {self.end} bytes of the program"
        code = "EK508" if inside else "EK506"
        return Fault(code, f"{what} at byte {position} {fault}", position if at is None else at)

    def past_end(self, what: str, position: int, nbytes: int) -> Fault:
        """Return the fault of something too long for its place."""
        message = f"{what} takes {nbytes} bytes, past the end of the program at byte {self.end}"
        return Fault("EK509", message, position)


def _choose(plan: TablePlan, content: dict[str, Any], position: int) -> None:
    """Put what they stand for in the place of numbers that have few legal values."""
    for name, choices in plan.choices:
        number = content[name]
        if number not in choices:
            raise _bad_choice(name, number, choices, position).inside(f".{name}")
        content[name] = choices[number]


def _bad_choice(name: str, number: int, choices: dict[int, Any], position: int) -> Fault:
    known = ", ".join(f"{known} ({getattr(value, 'name', value)})" for known, value in choices.items())
    return Fault("EK512", f"{number} is not a value of {name}", position, known)


def _read_text(decoder: _Decoder, _field: FieldLayout, at: int) -> str:
    position = decoder.target(at)
    known = decoder.texts.get(position)
    if known is not None:
        return known
    start, nbytes = decoder.vector(at, 1)
    stop = start + nbytes
    decoder.spend(nbytes, position)
    if stop >= decoder.end or decoder.data[stop] != 0:
        raise Fault("EK514", "text does not end with a zero byte", min(stop, decoder.end))
    try:
        text = str(decoder.data[start:stop], "utf-8")
    except UnicodeDecodeError as error:
        raise Fault("EK514", f"text is not UTF-8: {error.reason}", start + error.start) from None
    decoder.texts[position] = text
    return text


def _read_bytes(decoder: _Decoder, _field: FieldLayout, at: int) -> bytes:
    start, nbytes = decoder.vector(at, 1)
    decoder.spend(nbytes, start)
    return bytes(decoder.data[start : start + nbytes])


def _read_blob(decoder: _Decoder, _field: FieldLayout, at: int) -> memoryview:
    start, nbytes = decoder.vector(at, 1)
    return decoder.data[start : start + nbytes]


def _read_scalars(decoder: _Decoder, each: FieldLayout, at: int) -> list[Any]:
    width = _WIDTHS[each.letter]
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
    Kind.STRING: _read_text,
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
