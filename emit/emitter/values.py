"""The value table of one plan: every number, list and tensor that instructions refer to by index."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

import torch
from torch.utils._pytree import TreeSpec

from exirkit.emit.flatbuffer import Table
from exirkit.emit.scalar_type import ScalarType
from exirkit.emit.schema import (
    AllocationDetails,
    Bool,
    BoolList,
    Double,
    DoubleList,
    EValue,
    ExtraTensorInfo,
    Int,
    IntList,
    Null,
    OptionalTensorList,
    String,
    Tensor,
    TensorList,
)
from exirkit.ir import Diagnostic, ModelError, TensorSpec

TableT = TypeVar("TableT", bound=Table)

_set = object.__setattr__
_MEMORY_FORMATS = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}


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


class ValueTable:
    """Values in the order in which they were added.

    Constants (numbers, texts, `None`, and lists of them) are stored once each, since no instruction changes them.
    Values that are inputs, or that instructions write, have entries of their own.

    Attributes:
        values: The table.
    """

    def __init__(self) -> None:
        self.values: list[EValue] = []
        self._constants: dict[Any, int] = {}
        self._empty_tensor: int | None = None

    def new(self, member: Any) -> int:
        """Add a value that nothing else shares and return its index."""
        self.values.append(make_table(EValue, val=member))
        return len(self.values) - 1

    def constant(self, value: Any) -> int | None:
        """Return the index of a constant: a number, a text, None, a dtype, a layout or a memory format.

        Returns:
            The index, or None if the format has no such value.
        """
        key = (type(value), value.hex() if isinstance(value, float) else value)
        known = self._constants.get(key)
        if known is None:
            member = constant_member(value)
            if member is None:
                return None
            if type(member) is Int and type(value) is not int:
                known = self.constant(member.int_val)
            else:
                known = self.new(member)
            assert known is not None
            self._constants[key] = known
        return known

    def integers(self, items: Sequence[int]) -> int:
        """Return the index of the list of the `Int` values with these indices."""
        return self._list(IntList, items)

    def floats(self, items: Sequence[float]) -> int:
        """Return the index of a list of floats."""
        return self._list(DoubleList, items, [item.hex() for item in items])

    def flags(self, items: Sequence[bool]) -> int:
        """Return the index of a list of bools."""
        return self._list(BoolList, items)

    def tensors(self, items: Sequence[int]) -> int:
        """Return the index of the list of the `Tensor` values with these indices."""
        return self._list(TensorList, items)

    def optional_tensors(self, items: Sequence[int]) -> int:
        """Return the index of the list of the `Tensor` values with these indices, -1 for none."""
        return self._list(OptionalTensorList, items)

    def empty_tensor(self) -> int:
        """Return the index of the tensor that stands for None where an operator wants a tensor."""
        if self._empty_tensor is None:
            self._empty_tensor = self.new(Tensor(scalar_type=ScalarType.BYTE, sizes=[0], dim_order=[0]))
        return self._empty_tensor

    def _list(self, kind: Any, items: Sequence[Any], identity: Sequence[Any] | None = None) -> int:
        key = (kind, tuple(items if identity is None else identity))
        known = self._constants.get(key)
        if known is None:
            known = self._constants[key] = self.new(kind(items=list(items)))
        return known


def constant_member(value: Any) -> Any:
    """Return the schema's form of a constant, or None if it has none."""
    match value:
        case None:
            return Null()
        case bool():
            return Bool(bool_val=value)
        case int():
            return Int(int_val=value) if -(2**63) <= value < 2**63 else None
        case float():
            return Double(double_val=value)
        case str():
            return String(string_val=value)
        case torch.dtype():
            return Int(int_val=ScalarType.from_dtype(value))
        case torch.layout():
            return Int(int_val=0) if value is torch.strided else None
        case torch.memory_format():
            return Int(int_val=_MEMORY_FORMATS[value])
        case torch.device():
            return Int(int_val=0) if value.type == "cpu" else None
    return None


def tensor_value(
    spec: TensorSpec, *, data_buffer_idx: int = 0, is_planned: bool = True, extra: ExtraTensorInfo | None = None
) -> Tensor:
    """Return the schema's form of a tensor.

    Args:
        spec: Type, layout and place.
        data_buffer_idx: Index of its (initial) contents, 0 for none.
        is_planned: Whether the place counts; constants have none.
        extra: What only few tensors need.

    Raises:
        ModelError: EK501, no such element type; EK557, not a dense tensor.
    """
    if spec.layout is not torch.strided:
        raise ModelError(
            Diagnostic(
                code="EK557",
                message=f"a tensor of layout {spec.layout} cannot be stored",
                expected="torch.strided",
                hint="convert it with to_dense() in the model",
            )
        )
    place = None
    if is_planned and spec.mem_id is not None and spec.mem_offset is not None:
        low, high = spec.mem_offset & 0xFFFFFFFF, spec.mem_offset >> 32
        place = make_table(AllocationDetails, memory_id=spec.mem_id, memory_offset_low=low, memory_offset_high=high)
    return make_table(
        Tensor,
        scalar_type=ScalarType.from_dtype(spec.dtype),
        sizes=[int(size) for size in spec.shape],
        dim_order=list(spec.dim_order),
        requires_grad=bool(spec.requires_grad),
        data_buffer_idx=data_buffer_idx,
        allocation_info=place,
        shape_dynamism=spec.shape_dynamism,
        extra_tensor_info=extra,
    )


_PROTOCOL = 1


def container_text(spec: TreeSpec | None) -> str:
    """Return a pytree spec as JSON: `[1, {"type": ..., "context": ..., "children_spec": [...]}]`.

    Source: the text that `torch.utils._pytree.treespec_dumps` writes; a container type that is not registered for
        that is
    written under its own name.
    """
    return "" if spec is None else json.dumps([_PROTOCOL, _tree(spec)])


def _tree(spec: TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    return {
        "type": f"{spec.type.__module__}.{spec.type.__qualname__}",
        "context": json.dumps(_context(spec.context)),
        "children_spec": [_tree(child) for child in spec.children()],
    }


def _context(context: Any) -> Any:
    """Return what of a context can be written: keys of mappings, or null."""
    if context is None or isinstance(context, bool | int | float | str):
        return context
    if isinstance(context, list | tuple):
        return [_context(item) for item in context]
    return None
