"""Words of the printed form of programs."""

from __future__ import annotations

import keyword
import math
from dataclasses import dataclass
from typing import Literal

import torch


@dataclass(frozen=True)
class HigherOrder:
    """How a higher-order operator is called.

    Attributes:
        args: How many arguments it has beside its bodies.
        bodies: How many bodies it has.
        leading: How many of the arguments are printed before the bodies.
    """

    args: int
    bodies: int
    leading: int = 0


HIGHER_ORDER = {
    "cond": HigherOrder(2, 2, 1),
    "map": HigherOrder(2, 1),
    "scan": HigherOrder(3, 1),
    "while_loop": HigherOrder(2, 2),
}
"""Operators that call bodies, by name."""

TORCH_OBJECTS: dict[str, torch.dtype | torch.memory_format | torch.layout] = {
    str(one).removeprefix("torch."): one
    for one in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
        *(torch.complex64, torch.complex128, torch.bool),
        *(torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d),
        torch.strided,
    )
}
"""Objects of torch that are arguments, by the names that they have in torch."""

FLOATS = {"inf": math.inf, "nan": math.nan}
"""Floats that have names."""

CONTENTS = ("dyadic", "zeros", "numbers", "special")
LAYOUTS = ("dense", "channels_last", "transposed", "strided", "expanded")
STORED: dict[str, Literal["parameter", "buffer", "constant"]] = {
    "parameter": "parameter",
    "buffer": "buffer",
    "constant": "constant",
}
"""Kinds of what is stored, by the words that declare it."""

# The last line is what the code that torch prints for a graph takes for granted.
_WORDS = frozenset(
    {"program", "symbol", "update", "run", "inexact", "undecided", "torch", "_", "self"}
    | {"operator", "math", "device", "fx_pytree", "pytree", "NoneType"}
    | {*HIGHER_ORDER, *FLOATS, *CONTENTS, *STORED}
)


def is_name(text: str) -> bool:
    """Return whether something may have this name: an ASCII one of Python that is not a word of the language."""
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text) and text not in _WORDS


def is_operator_name(text: str) -> bool:
    """Return whether this can be printed as an operator: `cond` and its like, or namespace, name and overload."""
    parts = text.split(".")
    return text in HIGHER_ORDER or (
        len(parts) == 3
        and all(part.isascii() and part.isidentifier() and not keyword.iskeyword(part) for part in parts)
    )
