"""Types of which schemas are made, and how each table lies in a flatbuffer, derived from its pydantic model once.

The number types of the flatbuffers runtime give widths, ranges and formats.

A model is a table; its fields take the slots of the vtable in the order of their declaration, a union two of them
(tag, then value). Reader and writer know no schema: they interpret these layouts.
"""

from __future__ import annotations

import base64
import operator
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import cache
from struct import calcsize
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Union, get_args, get_origin

from flatbuffers import number_types
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetPydanticSchema,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from exirkit.ir import Diagnostic, Location


@dataclass(frozen=True)
class Wire:
    """How a scalar is written: its number type in the flatbuffers runtime."""

    number: Any

    @property
    def letter(self) -> str:
        """Its `struct` format without the byte order."""
        letter: str = self.number.packer_type.format[-1]
        return letter


@dataclass(frozen=True)
class Absent:
    """What a scalar reads as where a file leaves it out, if that is not zero."""

    value: int


def _read_number(value: object) -> object:
    """Read the strings that replace numbers that JSON does not have."""
    return float(value) if isinstance(value, str) and value in ("Infinity", "-Infinity", "NaN") else value


_INT8 = number_types.Int8Flags
_UINT8 = number_types.Uint8Flags
_INT32 = number_types.Int32Flags
_UINT32 = number_types.Uint32Flags
_INT64 = number_types.Int64Flags
_UINT64 = number_types.Uint64Flags

Int8 = Annotated[int, Field(strict=True, ge=_INT8.min_val, lt=_INT8.max_val + 1), Wire(_INT8)]
UInt8 = Annotated[int, Field(strict=True, ge=_UINT8.min_val, lt=_UINT8.max_val + 1), Wire(_UINT8)]
Int32 = Annotated[int, Field(strict=True, ge=_INT32.min_val, lt=_INT32.max_val + 1), Wire(_INT32)]
UInt32 = Annotated[int, Field(strict=True, ge=_UINT32.min_val, lt=_UINT32.max_val + 1), Wire(_UINT32)]
Int64 = Annotated[int, Field(strict=True, ge=_INT64.min_val, lt=_INT64.max_val + 1), Wire(_INT64)]
UInt64 = Annotated[int, Field(strict=True, ge=_UINT64.min_val, lt=_UINT64.max_val + 1), Wire(_UINT64)]
Float64 = Annotated[float, Field(strict=True), BeforeValidator(_read_number), Wire(number_types.Float64Flags)]
Float32 = Annotated[float, Field(strict=True), BeforeValidator(_read_number), Wire(number_types.Float32Flags)]
Flag = Annotated[bool, Field(strict=True), Wire(number_types.BoolFlags)]


class StreamedBytes(Sequence[int]):
    """Bytes that are made block by block, each time they are read, so that they are never in memory together."""

    @abstractmethod
    def blocks(self) -> Iterator[memoryview]:
        """Yield all bytes in order."""

    def __bytes__(self) -> bytes:
        """Return all of them in memory."""
        return b"".join(self.blocks())

    def __eq__(self, other: object) -> bool:
        """Whether something else has the same bytes; compared block by block."""
        if not isinstance(other, bytes | bytearray | memoryview | StreamedBytes):
            return NotImplemented
        if self is other or len(self) != len(other):
            return self is other
        at = 0
        for block in self.blocks():
            if bytes(other[at : at + len(block)]) != block:
                return False
            at += len(block)
        return True

    __hash__ = None  # type: ignore[assignment]


Content = bytes | memoryview | StreamedBytes
"""What blobs of a model hold."""


def read_blob(value: object) -> Content:
    """Return the bytes without copying them; text is base64, as written to JSON."""
    if isinstance(value, bytes | StreamedBytes):
        return value
    if isinstance(value, (memoryview, bytearray)):
        view = memoryview(value)
        if not view.c_contiguous:
            raise ValueError("a memoryview of program data must be contiguous")
        return view.cast("B")
    if isinstance(value, str):
        return base64.b64decode(value, validate=True)
    raise ValueError(f"program data must be bytes, bytearray or memoryview, got {type(value).__name__}")


def _bytes_schema(read: Callable[[object], object]) -> GetPydanticSchema:
    text = core_schema.str_schema()
    write = core_schema.plain_serializer_function_ser_schema(
        lambda value: base64.b64encode(bytes(value)).decode(), return_schema=text, when_used="json"
    )
    return GetPydanticSchema(
        lambda _source, _handler: core_schema.no_info_plain_validator_function(
            read, json_schema_input_schema=text, serialization=write
        )
    )


# Large data, kept as a view of the memory of its owner; small data, read into bytes of their own.
Blob = Annotated[bytes | memoryview, _bytes_schema(read_blob)]
SmallBlob = Annotated[bytes, _bytes_schema(lambda value: bytes(read_blob(value)))]


class Table(BaseModel):
    """Base of all tables: unknown fields are rejected, integers must fit their width."""

    model_config = ConfigDict(
        extra="forbid", revalidate_instances="never", ser_json_inf_nan="strings", defer_build=True
    )


def member_name(value: object) -> str:
    """Return the name of a member of a union: that of its class."""
    return type(value).__name__


class UnionTable(Table):
    """Base of the tables that hold one union, `union_field`.

    Their JSON form names the member, since several members have the same fields:
    `{"val_type": "Int", "val": {...}}`.
    """

    union_field: ClassVar[str]

    @classmethod
    @cache
    def members(cls) -> tuple[type[Table], ...]:
        """The members of the union; the tag of a member on the wire is its position, from 1."""
        union = cls.model_fields[cls.union_field].annotation
        return tuple(get_args(member)[0] for member in get_args(union))

    @model_validator(mode="before")
    @classmethod
    def _read_tagged(cls, data: Any) -> Any:
        tag = f"{cls.union_field}_type"
        if not (isinstance(data, dict) and tag in data):
            return data
        for member in cls.members():
            if member.__name__ == data[tag] and set(data) == {tag, cls.union_field}:
                return {cls.union_field: member.model_validate(data[cls.union_field])}
        raise ValueError(f"{cls.__name__} takes {tag}, the name of a member, and {cls.union_field}")

    @model_serializer(mode="wrap")
    def _write_tagged(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {f"{self.union_field}_type": member_name(getattr(self, self.union_field)), **write(self)}


FLOAT_LETTERS: Final = "fd"
OFFSET_NBYTES: Final[int] = number_types.UOffsetTFlags.bytewidth


class Fault(Exception):  # noqa: N818 - never leaves the codec, which turns it into a diagnostic
    """What is wrong, at which byte, and the path of fields that leads there: each level of the codec adds its part."""

    def __init__(self, code: str, message: str, offset: int | None = None, expected: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.offset = offset
        self.expected = expected
        self.path: list[str] = []

    def inside(self, part: str) -> Fault:
        """Add the part of the path that encloses what is there so far: `.name` or `[index]`."""
        self.path.append(part)
        return self

    def diagnostic(self, root: str = "program") -> Diagnostic:
        """Return the diagnostic for a user; `root` is what the whole is called."""
        path = "".join(reversed(self.path)).removeprefix(".") or root
        where = Location(node=path, offset_bytes=self.offset)
        return Diagnostic(code=self.code, message=self.message, location=where, expected=self.expected)


class Kind(Enum):
    """What a field holds; all but `SCALAR` are written as an offset to something else."""

    SCALAR = "scalar"
    STRING = "string"
    BYTES = "vector of bytes"
    BLOB = "blob"
    SCALARS = "vector of numbers"
    TABLE = "table"
    TABLES = "vector of tables"
    UNION = "union"


@dataclass(frozen=True)
class FieldLayout:
    """One field of a table.

    Attributes:
        owner: Model of the table.
        name: Name of the field in the model.
        slot: Its entry in the vtable; a union has its tag there and its value in the next one.
        kind: What it holds.
        letter: `struct` letter of the scalar or of the elements of `SCALARS`.
        choices: For enums and bools, the value for each legal number.
        tables: The tables that may be here: one, or the members of a union in the order of their tags.
        optional: Whether it may be `None`.
        required: Whether a file without it is malformed (never for scalars, which read as zero).
        default: What an absent field reads as, unless required; lists are copied.
    """

    owner: type[Table]
    name: str
    slot: int
    kind: Kind
    letter: str = ""
    choices: dict[int, Any] | None = None
    tables: tuple[TableLayout, ...] = ()
    optional: bool = False
    required: bool = False
    default: Callable[[], Any] = NoneType

    @property
    def nbytes(self) -> int:
        """Width of the field inside its table, in bytes; of the value slot for a union."""
        return calcsize(f"<{self.letter}") if self.kind is Kind.SCALAR else OFFSET_NBYTES


@dataclass(frozen=True, eq=False)
class TableLayout:
    """One table: its model and its fields in the order of their slots.

    Attributes:
        is_flat: Whether all its fields are scalars, so that equal tables can share their bytes.
        names: Names of the fields; the "fields set" of every instance that is read, shared by all of them, since
            pydantic only ever adds names of fields to it.
        slots: How many vtable entries it has.
        values: Returns the field values of an instance as a tuple.
    """

    model: type[Table]
    fields: tuple[FieldLayout, ...]
    is_flat: bool = field(init=False)
    names: set[str] = field(init=False)
    slots: int = field(init=False)
    values: Callable[[Any], tuple[Any, ...]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_flat", all(each.kind is Kind.SCALAR for each in self.fields))
        object.__setattr__(self, "names", {each.name for each in self.fields})
        object.__setattr__(self, "slots", slot_count(self))
        object.__setattr__(self, "values", _getter([each.name for each in self.fields]))

    @property
    def name(self) -> str:
        """Name of the table in the schema."""
        return self.model.__name__


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda _table: ()
    if len(names) == 1:
        get = operator.attrgetter(names[0])
        return lambda table: (get(table),)
    return operator.attrgetter(*names)


@cache
def layout_of(model: type[Table]) -> TableLayout:
    """Return the layout of a table of the schema."""
    fields: list[FieldLayout] = []
    slot = 0
    for name, info in model.model_fields.items():
        fields.append(_field(model, name, slot, info))
        slot += 2 if fields[-1].kind is Kind.UNION else 1
    return TableLayout(model, tuple(fields))


def _field(model: type[Table], name: str, slot: int, info: FieldInfo) -> FieldLayout:
    if issubclass(model, UnionTable) and name == model.union_field:
        members = tuple(layout_of(member) for member in model.members())
        return FieldLayout(model, name, slot, Kind.UNION, tables=members, required=True)
    members_of_type, optional = _without_none(info.annotation)
    content = _content(members_of_type, info.metadata)
    absent = _absent_value(content, info, optional)
    required = content["kind"] is not Kind.SCALAR and not optional and info.is_required()
    return FieldLayout(model, name, slot, optional=optional, required=required, default=absent, **content)


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """Split `X | None` into X and whether None was there; `bytes | memoryview` is the type of a blob."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation, False
    members = [member for member in get_args(annotation) if member is not NoneType]
    optional = len(members) < len(get_args(annotation))
    return (members[0] if len(members) == 1 else annotation), optional


def _content(annotation: Any, metadata: list[Any]) -> dict[str, Any]:
    """Return kind, letter, choices and tables for a type of the schema."""
    letter = next((item.letter for item in metadata if isinstance(item, Wire)), "")
    if letter:
        return _scalar(Kind.SCALAR, letter)
    if get_origin(annotation) is list:
        return _elements(get_args(annotation)[0])
    if annotation == bytes | memoryview:
        return {"kind": Kind.BLOB}
    if isinstance(annotation, type) and issubclass(annotation, IntEnum):
        return {"kind": Kind.SCALAR, "letter": "b", "choices": {int(member): member for member in annotation}}
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return {"kind": Kind.TABLE, "tables": (layout_of(annotation),)}
    simple = {str: Kind.STRING, bytes: Kind.BYTES}
    return {"kind": simple[annotation]}


def _elements(element: Any) -> dict[str, Any]:
    if isinstance(element, type) and issubclass(element, Table):
        return {"kind": Kind.TABLES, "tables": (layout_of(element),)}
    letter = next(item.letter for item in get_args(element) if isinstance(item, Wire))
    return _scalar(Kind.SCALARS, letter)


def _scalar(kind: Kind, letter: str) -> dict[str, Any]:
    if letter == "?":
        return {"kind": kind, "letter": "B", "choices": {0: False, 1: True}}
    return {"kind": kind, "letter": letter}


def _absent_value(content: dict[str, Any], info: FieldInfo, optional: bool) -> Callable[[], Any]:
    """Return what makes the value of an absent field: zero, empty or None, or an empty table of its model."""
    if optional:
        return NoneType
    kind, choices = content["kind"], content.get("choices")
    if kind is Kind.SCALAR:
        given = next((item.value for item in info.metadata if isinstance(item, Absent)), None)
        zero: Any = choices[0] if choices else 0.0 if content["letter"] in FLOAT_LETTERS else given or 0
        return lambda: zero
    if kind is Kind.TABLE:
        return lambda: info.get_default(call_default_factory=True)
    return _EMPTY[kind]


_EMPTY: dict[Kind, Callable[[], Any]] = {
    Kind.STRING: str,
    Kind.BYTES: bytes,
    Kind.BLOB: bytes,
    Kind.SCALARS: list,
    Kind.TABLES: list,
}


def slot_count(layout: TableLayout) -> int:
    """Return how many vtable entries a table of the schema has."""
    if not layout.fields:
        return 0
    last = layout.fields[-1]
    return last.slot + (2 if last.kind is Kind.UNION else 1)


@cache
def layouts_in(root: type[Table]) -> tuple[TableLayout, ...]:
    """Return the layout of every table that a root table can hold, each once, the root first."""
    seen: dict[type[Table], TableLayout] = {}
    waiting = [layout_of(root)]
    while waiting:
        layout = waiting.pop()
        if layout.model not in seen:
            seen[layout.model] = layout
            waiting.extend(table for each in layout.fields for table in each.tables)
    return tuple(seen.values())
