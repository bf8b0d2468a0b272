"""The flatbuffer codec: tables become bytes and bytes become tables, driven by the pydantic models of a schema."""

from .layout import Fault, FieldLayout, Kind, TableLayout, layout_of
from .reader import PREFIX_NBYTES, decode
from .types import (
    Blob,
    Flag,
    Float64,
    Int8,
    Int32,
    Int64,
    SmallBlob,
    Table,
    UInt8,
    UInt32,
    UInt64,
    UnionTable,
    member_name,
    read_blob,
)
from .writer import Chunk, EncodedTable, encode

__all__ = [
    "PREFIX_NBYTES",
    "Blob",
    "Chunk",
    "EncodedTable",
    "Fault",
    "FieldLayout",
    "Flag",
    "Float64",
    "Int8",
    "Int32",
    "Int64",
    "Kind",
    "SmallBlob",
    "Table",
    "TableLayout",
    "UInt8",
    "UInt32",
    "UInt64",
    "UnionTable",
    "decode",
    "encode",
    "layout_of",
    "member_name",
    "read_blob",
]
