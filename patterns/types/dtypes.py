"""Classes of dtypes: `f32`, `f16|f32`, `f*`, `num`, `any`, `=x`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

DTYPE_NAMES: dict[str, torch.dtype] = {
    "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64,
    "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8,
    "bool": torch.bool, "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64,
    "c64": torch.complex64, "c128": torch.complex128,
}  # fmt: skip

_FLOATS = ("f32", "f16", "bf16", "f64")
_INTEGERS = ("i64", "i32", "i16", "i8", "u8")

DTYPE_CLASSES: dict[str, tuple[str, ...]] = {
    "f*": _FLOATS,
    "i*": _INTEGERS,
    "u*": ("u8",),
    "c*": ("c64", "c128"),
    "num": (*_FLOATS, *_INTEGERS),
    "any": (*_FLOATS, *_INTEGERS, "bool"),
}
"""Members of each class, the most usual first. Complex numbers and wide unsigned integers are meant only by name."""

SPELLINGS: dict[str, str] = {
    "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64", "half": "f16", "double": "f64",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "uint16": "u16", "uint32": "u32",
    "uint64": "u64", "complex64": "c64", "complex128": "c128", "tensor": "any", "Tensor": "any", "number": "num",
}  # fmt: skip
"""Other ways to write a dtype, with or without `torch.` before it."""


@dataclass(frozen=True)
class DtypeClass:
    """Dtypes that are allowed.

    Attributes:
        names: Dtypes and classes, as written.
        same_as: Variable whose dtype is meant instead.
    """

    names: tuple[str, ...] = ()
    same_as: str | None = None

    @cached_property
    def members(self) -> tuple[torch.dtype, ...]:
        """The dtypes, each once, the most usual first; none if another variable says which."""
        found: dict[torch.dtype, None] = {}
        for name in self.names:
            for each in DTYPE_CLASSES.get(name, (name,)):
                found[DTYPE_NAMES[each]] = None
        return tuple(found)

    @cached_property
    def member_set(self) -> frozenset[torch.dtype]:
        """The dtypes, for membership."""
        return frozenset(self.members)

    def __str__(self) -> str:
        return "|".join(self.names) if self.same_as is None else f"={self.same_as}"
