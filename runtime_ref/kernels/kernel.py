"""Kernels by operator name: what they run, what their arguments take from the value table, how results come back.

A program stores dtypes, layouts and memory formats as integers and an integer where a float is meant as it was
written; the slot knows what the kernel wants to see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Final

import torch

from exirkit.emit import (
    Bool,
    BoolList,
    Double,
    DoubleList,
    Int,
    IntList,
    Null,
    OptionalTensorList,
    ScalarType,
    String,
    Tensor,
    TensorList,
)

ValueKinds = tuple[type, ...]

SCALAR_KINDS: Final[ValueKinds] = (Int, Double, Bool)
# What a caller can hand in; nothing else may be an input of a method.
INPUT_KINDS: Final[ValueKinds] = (Tensor, Int, Double, Bool, String, Null)
_MEMORY_FORMATS: Final = {
    0: torch.contiguous_format,
    1: torch.preserve_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
}


@dataclass(frozen=True, slots=True)
class Slot:
    """One argument of a kernel.

    Attributes:
        name: Name of the argument in the schema.
        accepts: Kinds of values that may stand here.
        decode: Turns the stored value (never None) into what torch takes; None if it is that already.
        keyword: Whether torch takes it by name.
        is_out: Whether it is a tensor, or list of tensors, that receives a result.
        is_written: Whether the kernel writes to it (out arguments and those changed in place).
        wants_generator: Whether it takes the random generator of the method when the program stores None.
    """

    name: str
    accepts: ValueKinds
    decode: Callable[[Any], Any] | None
    keyword: bool
    is_out: bool
    is_written: bool
    wants_generator: bool

    @property
    def takes_scalar(self) -> bool:
        """Whether a number or bool may stand here."""
        return any(kind in SCALAR_KINDS for kind in self.accepts)


def slots_of(schema: torch.FunctionSchema) -> tuple[Slot, ...] | None:
    """Return the slots of a schema in order, or None if an argument has a type that no program can express."""
    slots = [_slot(argument) for argument in schema.arguments]
    return tuple(slot for slot in slots if slot is not None) if None not in slots else None


def out_slot(name: str) -> Slot:
    """Return the slot of one out tensor that no schema declares."""
    return Slot(
        name=name,
        accepts=(Tensor,),
        decode=None,
        keyword=True,
        is_out=True,
        is_written=True,
        wants_generator=False,
    )


def _slot(argument: torch.Argument) -> Slot | None:
    # `real_type` keeps ScalarType, Layout and MemoryFormat apart, where `type` says `int` for all.
    text = str(argument.real_type)
    optional = text.startswith("Optional[")
    if optional:
        text = text.removeprefix("Optional[").removesuffix("]")
    found = _TYPES.get(text)
    if found is None:
        return None
    accepts, decode = found
    return Slot(
        name=argument.name,
        accepts=(*accepts, Null) if optional else accepts,
        decode=decode,
        keyword=argument.kwarg_only,
        is_out=argument.is_out,
        is_written=argument.alias_info is not None and argument.alias_info.is_write,
        wants_generator=text == "Generator",
    )


def _decode_dtype(number: int) -> torch.dtype:
    return ScalarType(number).dtype


def _decode_layout(number: int) -> torch.layout:
    if number != 0:
        raise ValueError(f"layout {number} is not strided")
    return torch.strided


def _decode_memory_format(number: int) -> torch.memory_format:
    if number not in _MEMORY_FORMATS:
        raise ValueError(f"{number} is not a memory format")
    return _MEMORY_FORMATS[number]


def _decode_device(number: int) -> torch.device:
    if number != 0:
        raise ValueError(f"device {number} is not the CPU")
    return torch.device("cpu")


_TYPES: Final[dict[str, tuple[ValueKinds, Callable[[Any], Any] | None]]] = {
    "Tensor": ((Tensor,), None),
    "int": ((Int,), None),
    "SymInt": ((Int,), None),
    # The emitter stores the number as the author wrote it, so `1` may stand where 1.0 is meant.
    "float": ((Double, Int), float),
    "bool": ((Bool,), None),
    "number": (SCALAR_KINDS, None),
    "Scalar": (SCALAR_KINDS, None),
    "str": ((String,), None),
    "ScalarType": ((Int,), _decode_dtype),
    "Layout": ((Int,), _decode_layout),
    "MemoryFormat": ((Int,), _decode_memory_format),
    "Device": ((Int,), _decode_device),
    "Generator": ((), None),
    "List[int]": ((IntList,), None),
    "List[SymInt]": ((IntList,), None),
    "List[float]": ((DoubleList,), None),
    "List[bool]": ((BoolList,), None),
    "List[Tensor]": ((TensorList,), None),
    "List[Optional[Tensor]]": ((OptionalTensorList,), None),
}


class KernelKind(Enum):
    """How a kernel hands over its results."""

    OUT = "writes into the tensors it is given"
    VALUE = "returns numbers or new tensors"
    IN_PLACE = "changes its first argument and returns it"
    MEMORY = "rearranges the tensors of the value table"


@dataclass(frozen=True)
class Kernel:
    """One runnable operator.

    Attributes:
        name: Qualified name with overload, `aten::add.out`.
        kind: How results are handed over.
        slots: Its arguments in schema order, as a call lists them.
        call: The function. An OUT kernel takes its out tensors by name and resizes those that are empty; a MEMORY
            kernel takes cells instead of tensors.
        returns: Number of results that the schema declares.
        returns_tensor: Whether the first result is a tensor.
        random: Whether `call` takes the keyword `generator`, which no program stores.
        is_faster_on_ones: Whether small results have a shape that is told faster by computing with ones than without
            data, because torch has the latter in Python only. No element decides the shape.
    """

    name: str
    kind: KernelKind
    slots: tuple[Slot, ...]
    call: Callable[..., Any]
    returns: int
    returns_tensor: bool
    random: bool = False
    is_faster_on_ones: bool = False

    @cached_property
    def outs(self) -> tuple[int, ...]:
        """AllocationMap of the out arguments."""
        return tuple(place for place, slot in enumerate(self.slots) if slot.is_out)

    @property
    def tail(self) -> int:
        """Least number of return values that a call repeats or names behind the arguments."""
        return 0 if self.kind is KernelKind.MEMORY else 1


def make_kernel(
    schema: torch.FunctionSchema,
    call: Callable[..., Any],
    *,
    kind: KernelKind | None = None,
    random: bool = False,
    is_faster_on_ones: bool = False,
) -> Kernel | None:
    """Return the kernel of that schema, or None if an argument has a type that no program can express.

    Args:
        schema: Parsed schema; out arguments, or an argument changed in place, decide the kind.
        call: What runs, see `Kernel.call`.
        kind: The kind, where the schema does not tell.
        random: Whether `call` takes the keyword `generator` without having it in its schema.
        is_faster_on_ones: See `Kernel`.
    """
    slots = slots_of(schema)
    if slots is None:
        return None
    name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    returns_tensor = bool(schema.returns) and "Tensor" in str(schema.returns[0].type)
    return Kernel(
        name=name,
        kind=kind or _kind(slots),
        slots=slots,
        call=call,
        returns=len(schema.returns),
        returns_tensor=returns_tensor,
        random=random,
        is_faster_on_ones=is_faster_on_ones,
    )


def _kind(slots: tuple[Slot, ...]) -> KernelKind:
    if any(slot.is_out for slot in slots):
        return KernelKind.OUT
    if any(slot.is_written for slot in slots):
        return KernelKind.IN_PLACE
    return KernelKind.VALUE
