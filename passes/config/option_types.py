"""Types of options that several passes have, with how they are written in YAML."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator
from torch._ops import OpOverload

from exirkit.ir import ops, underlying


def _overload(given: Any) -> Any:
    """Turn the name of an overload, `aten.silu.default`, into the overload."""
    if not isinstance(given, str):
        return given
    found: Any = ops.edge
    parts = given.split(".")
    if len(parts) != 3 or not all(part.isidentifier() for part in parts):
        raise ValueError(f"{given!r} is not an overload; write library.name.overload")
    for part in parts:
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ValueError(f"there is no operator {given}") from None
    return underlying(found)


Overload = Annotated[OpOverload, BeforeValidator(_overload)]
