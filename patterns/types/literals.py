"""Dtypes and values in the strings of types: classes, literals, other variables, sets and intervals."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

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


# Values that types of variables name: literals, other variables, sets and intervals


PLAIN_VALUES: dict[str, Any] = {
    "inf": math.inf,
    "nan": math.nan,
    "contiguous_format": torch.contiguous_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
    "preserve_format": torch.preserve_format,
    "strided": torch.strided,
    "cpu": torch.device("cpu"),
}
"""Names that are values in types and in programs."""

NAMED_VALUES: dict[str, Any] = {
    "True": True, "False": False, "None": None, "true": True, "false": False, "none": None, **PLAIN_VALUES,
}  # fmt: skip
"""Names that stand for values wherever a literal may stand; dtypes are added by the parser."""


@dataclass(frozen=True)
class Literal:
    """A value by its text, so that 1, 1.0 and True differ, and nan equals itself.

    Attributes:
        text: Canonical text.
        kind: Name of the type.
        held: The value.
    """

    text: str
    kind: str
    held: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and (self.text, self.kind) == (other.text, other.kind)

    def __hash__(self) -> int:
        return hash((self.text, self.kind))

    @property
    def value(self) -> Any:
        """The value; a list is a new one each time."""
        value = self.held[0]
        return list(value) if isinstance(value, tuple) else value

    def __str__(self) -> str:
        return self.text

    def admits(self, value: object) -> bool:
        """Whether a value is this one, in type and value; a float may have been rounded to float32."""
        own = self.held[0]
        if isinstance(own, tuple):
            if not isinstance(value, list | tuple) or len(value) != len(own):
                return False
            return all(literal(one).admits(each) for one, each in zip(own, value, strict=True))
        if type(value) is not type(own):
            return False
        if isinstance(own, float) and isinstance(value, float):
            return same_float(own, value)
        return bool(value == own)


@dataclass(frozen=True)
class Reference:
    """The value of another variable."""

    name: str

    def __str__(self) -> str:
        return self.name


Choice = Literal | Reference


def literal(value: Any, text: str | None = None) -> Literal:
    """Return a value as a literal."""
    if isinstance(value, list | tuple):
        inner = ", ".join(literal(one).text for one in value)
        return Literal(f"[{inner}]", "list", (tuple(value),))
    return Literal(text or repr(value), type(value).__name__, (value,))


def rounded(value: float) -> float:
    """Return the nearest float32."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return value


def same_float(wanted: float, value: float) -> bool:
    """Whether a float is a wanted one, or that rounded to float32; signs of zero count, and nan is nan."""
    if math.isnan(wanted):
        return math.isnan(value)
    is_near = value in (wanted, rounded(wanted))
    return is_near and math.copysign(1.0, wanted) == math.copysign(1.0, value)


@dataclass(frozen=True)
class Interval:
    """Numbers between bounds that belong to them; a bound that is None is none."""

    low: float | None
    high: float | None

    def __str__(self) -> str:
        if self.high is None:
            return f">= {self.low}"
        return f"<= {self.high}" if self.low is None else f"in [{self.low}, {self.high}]"

    def limits(self, dtype: torch.dtype) -> tuple[float | None, float | None]:
        """Return the bounds as a dtype has them: rounded to a float, exact for an integer."""
        if not dtype.is_floating_point:
            return self.low, self.high
        low, high = (None if end is None else torch.tensor(end).to(dtype).item() for end in (self.low, self.high))
        return low, high

    def holds_for(self, tensor: torch.Tensor) -> bool:
        """Whether every element of a real tensor is between the bounds, rounded to its dtype; nan never is."""
        if tensor.dtype.is_complex:
            return False
        low, high = self.limits(tensor.dtype)
        values = tensor.to(torch.uint8) if tensor.dtype == torch.bool else tensor
        is_inside = low is None or bool((values >= low).all())
        return is_inside and (high is None or bool((values <= high).all()))


@dataclass(frozen=True)
class ValueSet:
    """Some numbers."""

    values: tuple[Literal, ...]

    def __str__(self) -> str:
        return "{" + ", ".join(map(str, self.values)) + "}"

    @cached_property
    def numbers(self) -> tuple[float, ...]:
        """The numbers."""
        return tuple(one.value for one in self.values)

    def holds_for(self, tensor: torch.Tensor) -> bool:
        """Whether every element of a real tensor is one of them, rounded to its dtype."""
        if not tensor.numel():
            return True
        numbers = _rounded(self.numbers, tensor.dtype)
        # Mostly the first element is another number already.
        first = tensor[(0,) * tensor.dim()].item()
        if not any(first == one or (first != first and one != one) for one in numbers):
            return False
        found = torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
        for number in numbers:
            found |= (tensor == number) if number == number else (tensor != tensor)
        return bool(found.all())


@lru_cache(maxsize=256)
def _rounded(numbers: tuple[float, ...], dtype: torch.dtype) -> tuple[Any, ...]:
    """Return the numbers that a dtype has, rounded to it."""
    return tuple(torch.tensor(one).to(dtype).item() for one in numbers if fits(one, dtype))


def fits(number: float, dtype: torch.dtype) -> bool:
    """Whether a dtype has a number, or for floats something near it."""
    if dtype.is_floating_point or dtype.is_complex:
        return True
    if not math.isfinite(number) or number != int(number):
        return False
    if dtype == torch.bool:
        return number in (0, 1)
    limits = torch.iinfo(dtype)
    return limits.min <= number <= limits.max
