"""Tables of the program schema, made without validation.

Validation costs more than all the rest of emission, and what the emitter puts into tables is of the right type by
construction; numbers that do not fit their width are refused when the program is encoded.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from exirkit.emit.flatbuffer.wire import Table

TableT = TypeVar("TableT", bound=Table)

_set = object.__setattr__


def make_table(kind: type[TableT], **fields: Any) -> TableT:
    """Return a table that is equal to `kind(**fields)`; fields without a value get their default."""
    made = kind.__new__(kind)
    _set(made, "__dict__", {**_defaults(kind), **fields})
    _set(made, "__pydantic_fields_set__", set(fields))
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made


@cache
def _defaults(kind: type[Table]) -> dict[str, Any]:
    """Return the defaults of the fields that have one that is shared: all but lists and tables."""
    fields = kind.model_fields.items()
    return {name: field.default for name, field in fields if not field.is_required() and field.default_factory is None}
