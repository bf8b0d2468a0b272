"""The four dialects of a program, as data that verifiers, editors and printers share."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

DialectName = Literal["aten", "edge", "backend", "executorch"]


class Dialect(BaseModel):
    """What may stand in a graph of one dialect.

    Attributes:
        name: Name as users know it.
        targets: Kinds of call targets that are legal: torch overloads, edge handles, backend handles, out variants,
            and the memory operators `alloc`, `view` and `free`.
        is_functional: No operator writes to its arguments, apart from the out variants where they are legal.
        has_views: Operators that return a view of their argument are legal.
        takes_scalars_as_tensors: A Python number may stand where the schema wants a tensor.
    """

    model_config = ConfigDict(frozen=True)

    name: DialectName
    targets: frozenset[Literal["torch", "edge", "backend", "out", "memory"]]
    is_functional: bool = True
    has_views: bool = False
    takes_scalars_as_tensors: bool = False


ATEN = Dialect(name="aten", targets=frozenset({"torch"}), has_views=True, takes_scalars_as_tensors=True)
EDGE = Dialect(name="edge", targets=frozenset({"edge"}))
BACKEND = Dialect(name="backend", targets=frozenset({"edge", "backend"}))
EXECUTORCH = Dialect(name="executorch", targets=frozenset({"torch", "backend", "out", "memory"}), is_functional=False)
