"""Scalars, blobs and the base model of which the program schema is made."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, get_args

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
    """How a scalar is written: its `struct` format letter (little-endian)."""

    letter: str


def _read_number(value: object) -> object:
    """Read the texts that stand in JSON for numbers that JSON does not have."""
    return float(value) if isinstance(value, str) and value in ("Infinity", "-Infinity", "NaN") else value


Int8 = Annotated[int, Field(strict=True, ge=-(2**7), lt=2**7), Wire("b")]
UInt8 = Annotated[int, Field(strict=True, ge=0, lt=2**8), Wire("B")]
Int32 = Annotated[int, Field(strict=True, ge=-(2**31), lt=2**31), Wire("i")]
UInt32 = Annotated[int, Field(strict=True, ge=0, lt=2**32), Wire("I")]
Int64 = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63), Wire("q")]
UInt64 = Annotated[int, Field(strict=True, ge=0, lt=2**64), Wire("Q")]
Float64 = Annotated[float, Field(strict=True), BeforeValidator(_read_number), Wire("d")]
Flag = Annotated[bool, Field(strict=True), Wire("?")]


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
    """Base of all tables: unknown fields are refused, integers must fit their width."""

    model_config = ConfigDict(extra="forbid", revalidate_instances="never", ser_json_inf_nan="strings")


def member_name(value: object) -> str:
    """Return the name under which a value stands in a union: that of its class."""
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
