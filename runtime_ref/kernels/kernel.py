"""Kernels: what the operator name of a call runs, and how the results come back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import torch

from .slots import Slot, slots_of


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
