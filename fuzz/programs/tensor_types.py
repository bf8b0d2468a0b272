"""Types of tensors as text: `f32[s0, 5]`."""

from __future__ import annotations

import re

import torch

from .model import Dim, TensorType
from .sizes import size_text, size_tree

HIGHEST_RANK = 16

DTYPES: dict[str, torch.dtype] = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
    "c64": torch.complex64,
    "c128": torch.complex128,
    "bool": torch.bool,
}
"""Dtypes of values, by the names that they have in types."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_FORM = re.compile(r"([a-z]+[0-9]*)\[(.*)\]", re.DOTALL)


def type_text(type_: TensorType) -> str:
    """Return the printed form of a type."""
    return f"{_NAMES[type_.dtype]}[{', '.join(map(size_text, type_.sizes))}]"


def parse_type(text: str) -> TensorType:
    """Read a type.

    Raises:
        ValueError: It is not one; the message says why.
    """
    match = _FORM.fullmatch(text)
    if match is None or match[1] not in DTYPES:
        raise ValueError(f"a type is one of {', '.join(DTYPES)} and sizes, such as `f32[s0, 5]`")
    parts = match[2].split(",") if match[2].strip() else []
    if len(parts) > HIGHEST_RANK:
        raise ValueError(f"a tensor has at most {HIGHEST_RANK} dims")
    return TensorType(DTYPES[match[1]], tuple(_dim(part.strip()) for part in parts))


def _dim(text: str) -> Dim:
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    size_tree(text)
    return size_text(text)
