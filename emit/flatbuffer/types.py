"""Scalars, blobs and the base models of which schemas are made.

The number types of the flatbuffers runtime give widths, ranges and formats.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, get_args

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
from pydantic_core import core_schema


@dataclass(frozen=True)
class Wire:
    """How a scalar is written: its number type in the flatbuffers runtime."""

    number: Any

    @property
    def letter(self) -> str:
        """Its `struct` format without the byte order."""
        letter: str = self.number.packer_type.format[-1]
        return letter


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
Flag = Annotated[bool, Field(strict=True), Wire(number_types.BoolFlags)]


def read_blob(value: object) -> bytes | memoryview:
    """Return the bytes without copying them; text is base64, as written to JSON."""
    if isinstance(value, bytes):
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
        lambda value: base64.b64encode(value).decode(), return_schema=text, when_used="json"
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

    model_config = ConfigDict(extra="forbid", revalidate_instances="never", ser_json_inf_nan="strings")


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
