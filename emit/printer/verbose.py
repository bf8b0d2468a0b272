"""The long listing of a program: every field of every table, one to one with the schema."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from exirkit.emit.flatbuffer import Table

_INDENT = "  "


def verbose_lines(table: Table, depth: int = 0) -> Iterator[str]:
    """Yield the fields of a table, one per line; blobs are told by their size."""
    pad = _INDENT * depth
    for name in type(table).model_fields:
        value = getattr(table, name)
        if isinstance(value, Table):
            yield f"{pad}{name}: {type(value).__name__}"
            yield from verbose_lines(value, depth + 1)
        elif isinstance(value, list) and any(isinstance(item, Table) for item in value):
            yield f"{pad}{name}:"
            yield from _list_lines(value, depth + 1)
        else:
            yield f"{pad}{name}: {_inline(value)}"


def _list_lines(tables: list[Table], depth: int) -> Iterator[str]:
    for index, table in enumerate(tables):
        yield f"{_INDENT * depth}[{index}] {type(table).__name__}"
        yield from verbose_lines(table, depth + 1)


def _inline(value: object) -> str:
    if isinstance(value, IntEnum):
        return f"{value.name} ({int(value)})"
    if isinstance(value, (bytes, memoryview)):
        return f"{len(value)} bytes"
    return repr(value)
