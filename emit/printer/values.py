"""How the values of a plan are named and written in listings."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from math import prod
from typing import Final

from exirkit.emit.flatbuffer import Table
from exirkit.emit.scalar_type import ScalarType
from exirkit.emit.schema import (
    Bool,
    BoolList,
    Double,
    DoubleList,
    EValue,
    Int,
    IntList,
    OptionalTensorList,
    String,
    Tensor,
    TensorList,
)
from exirkit.ir import TensorShapeDynamism

# Longer lists and texts are cut short.
_SHOWN_ITEMS: Final = 16
_SHOWN_CHARACTERS: Final = 60
_LONGEST_NAME: Final = 200

_SHORT_DTYPES: Final = {
    ScalarType.BYTE: "u8",
    ScalarType.CHAR: "i8",
    ScalarType.SHORT: "i16",
    ScalarType.INT: "i32",
    ScalarType.LONG: "i64",
    ScalarType.HALF: "f16",
    ScalarType.FLOAT: "f32",
    ScalarType.DOUBLE: "f64",
    ScalarType.BFLOAT16: "bf16",
    ScalarType.FLOAT8E5M2: "f8e5m2",
    ScalarType.FLOAT8E4M3FN: "f8e4m3fn",
    ScalarType.FLOAT8E5M2FNUZ: "f8e5m2fnuz",
    ScalarType.FLOAT8E4M3FNUZ: "f8e4m3fnuz",
    ScalarType.UINT16: "u16",
    ScalarType.UINT32: "u32",
    ScalarType.UINT64: "u64",
}


class ValueNames:
    """Names and literals of the values of one plan; an index that leads nowhere is written `%7?`.

    Attributes:
        values: The values of the plan.
        variables: Values that may change while the program runs, so that their content says little.
    """

    def __init__(self, values: Sequence[EValue], variables: Collection[int] = ()) -> None:
        self.values = values
        self.variables = variables

    def value(self, index: int) -> Table | None:
        """Return a value, or `None` if there is none of that index."""
        return self.values[index].val if 0 <= index < len(self.values) else None

    def name(self, index: int) -> str:
        """Return the name of a value: `%7`."""
        return f"%{index}" if 0 <= index < len(self.values) else f"%{index}?"

    def names(self, indices: Sequence[int]) -> str:
        """Return the names of several values."""
        return ", ".join(self.name(index) for index in indices)

    def argument(self, index: int) -> str:
        """Return a value as an argument: a name if it is a tensor or may change, else what it is."""
        return self.name(index) if index in self.variables else self.literal(index)

    def arguments(self, indices: Sequence[int]) -> str:
        """Return several values as arguments."""
        return ", ".join(self.argument(index) for index in indices)

    def literal(self, index: int) -> str:
        """Return what a value is; a tensor is its name."""
        value = self.value(index)
        if value is None or isinstance(value, Tensor):
            return self.name(index)
        if isinstance(value, String):
            return quoted(value.string_val)
        if isinstance(value, Int):
            return str(value.int_val)
        if isinstance(value, Bool):
            return str(value.bool_val)
        if isinstance(value, Double):
            return repr(value.double_val)
        return self._list(value)

    def _list(self, value: Table) -> str:
        if isinstance(value, (DoubleList, BoolList)):
            return _listing([str(item) for item in value.items[:_SHOWN_ITEMS]], len(value.items))
        if isinstance(value, IntList):
            return _listing([self._boxed(item) for item in value.items[:_SHOWN_ITEMS]], len(value.items))
        if isinstance(value, (TensorList, OptionalTensorList)):
            shown = ["None" if item == -1 else self.name(item) for item in value.items[:_SHOWN_ITEMS]]
            return _listing(shown, len(value.items))
        return "None"

    def _boxed(self, index: int) -> str:
        # Not `argument`: in a file that was not checked a list may contain itself.
        value = self.value(index)
        known = isinstance(value, Int) and index not in self.variables
        return str(value.int_val) if known and isinstance(value, Int) else self.name(index)


def tensor_type(tensor: Tensor) -> str:
    """Return dtype and shape: `f32[2, 4]`, with the dim order unless contiguous, and what is not static."""
    scalar_type = tensor.scalar_type
    text = f"{_SHORT_DTYPES.get(scalar_type, scalar_type.name.lower())}{tensor.sizes}"
    if tensor.dim_order != list(range(len(tensor.sizes))):
        text += f" dim order {tuple(tensor.dim_order)}"
    if tensor.shape_dynamism is not TensorShapeDynamism.STATIC:
        text += f" {tensor.shape_dynamism.name.lower().replace('_', ' ')}"
    return text


def tensor_nbytes(tensor: Tensor) -> int:
    """Return the size of the data of a tensor (at most that, unless static) in bytes."""
    return prod(tensor.sizes) * tensor.scalar_type.itemsize


def quoted(text: str) -> str:
    """Return a text in quotes, on one line, cut short if it is long."""
    line = json.dumps(text[:_SHOWN_CHARACTERS])
    return line if len(line) <= _SHOWN_CHARACTERS else f'{line[: _SHOWN_CHARACTERS - 4]}..."'


def plain(name: str) -> str:
    """Return a name as it is, unless it is no name: very long, or with what a terminal would obey."""
    return name if len(name) <= _LONGEST_NAME and name.isprintable() else quoted(name)


def _listing(items: list[str], count: int) -> str:
    more = [f"... {count} in all"] if count > len(items) else []
    return f"[{', '.join(items + more)}]"
