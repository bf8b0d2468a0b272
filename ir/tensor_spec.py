"""What the exporter knows about one tensor of a program: its type, its layout, and where it will live.

Specs are compared by identity: two nodes that carry the same spec object mean the same memory. They are plain
objects, because every pass touches every spec.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .dim_order import Dim, contiguous_stride, dim_order_from_stride, stride_from_dim_order

ALIGNMENT = 16
"""Default alignment of tensors in an arena, in bytes."""


class TensorShapeDynamism(IntEnum):
    """How much of a shape is known before the program runs; the numbers are those of the file format."""

    STATIC = 0
    DYNAMIC_BOUND = 1
    DYNAMIC_UNBOUND = 2


def determine_shape_dynamism(shape: Sequence[Dim]) -> TensorShapeDynamism:
    """Return STATIC for integers, BOUND if every symbolic size has a finite upper bound, else UNBOUND."""
    symbolic = [dim for dim in shape if isinstance(dim, torch.SymInt) and dim.node.maybe_as_int() is None]
    if not symbolic:
        return TensorShapeDynamism.STATIC
    for dim in symbolic:
        upper = dim.node.shape_env.bound_sympy(dim.node.expr).upper
        if not upper.is_Integer:
            return TensorShapeDynamism.DYNAMIC_UNBOUND
    return TensorShapeDynamism.DYNAMIC_BOUND


class TensorSpec:
    """One tensor: type, layout, and the place that memory planning gives it.

    Attributes:
        dtype: Element type; also readable as `scalar_type`.
        shape: Sizes; integers, or `SymInt`s until the upper bounds are evaluated.
        layout: `torch.strided`, or a sparse layout that no kernel takes.
        is_sparse: Whether the tensor is sparse.
        const: Whether the value is stored in the file: a parameter, an unmutated buffer or a constant.
        requires_grad: Copied from the tensor.
        extra_tensor_info: Facts for the emitter, such as the name of an external constant.
        stride: Elements between neighbours along each dimension of the dense tensor with this `dim_order`.
        dim_order: Dimensions from outermost to innermost in memory.
        storage: The bytes of a constant; None for all others and for constants known only as fake tensors.
        shape_dynamism: Whether the shape is static, bounded or unbounded.
        lifetime: First and last step that need the value, both inclusive; None before lifetimes are computed.
        mem_id: Arena, counted from 1. Set before planning, it is a wish that planning fulfils.
        mem_obj_id: Number, within the arena, of the group of tensors that share memory by turns.
        mem_offset: First byte in the arena.
        alignment: The offset is, and `allocated_memory` is rounded up to, a multiple of this many bytes.
        storage_base: The spec in whose memory this one lies (a view or an in-place result), or None.
        storage_offset_bytes: First byte within `storage_base`.
    """

    __slots__ = (
        "__weakref__",
        "alignment",
        "const",
        "dim_order",
        "dtype",
        "extra_tensor_info",
        "is_sparse",
        "layout",
        "lifetime",
        "mem_id",
        "mem_obj_id",
        "mem_offset",
        "requires_grad",
        "shape",
        "shape_dynamism",
        "storage",
        "storage_base",
        "storage_offset_bytes",
        "stride",
    )

    def __init__(
        self,
        dtype: torch.dtype,
        shape: Sequence[Dim],
        layout: torch.layout = torch.strided,
        is_sparse: bool = False,
        const: bool = False,
        requires_grad: bool = False,
        extra_tensor_info: Any = None,
    ) -> None:
        self.dtype = dtype
        self.shape: list[Dim] = [_as_int(dim) for dim in shape]
        self.layout = layout
        self.is_sparse = is_sparse
        self.const = const
        self.requires_grad = requires_grad
        self.extra_tensor_info = extra_tensor_info
        self.stride: list[Dim] = contiguous_stride(self.shape)
        self.dim_order: list[int] = list(range(len(self.shape)))
        self.storage: torch.UntypedStorage | None = None
        self.shape_dynamism = determine_shape_dynamism(self.shape)
        self.alignment = ALIGNMENT
        self.lifetime: list[int | None] = [None, None]
        self.mem_id: int | None = None
        self.mem_obj_id: int | None = None
        self.mem_offset: int | None = None
        self.storage_base: TensorSpec | None = None
        self.storage_offset_bytes = 0

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor, const: bool = False) -> TensorSpec:
        """Return the spec of a real or fake tensor.

        The memory of a program is dense, so strides with gaps or of expanded dimensions become those of the
        dense tensor in the same dim order. A constant is stored row-major, and copied if it is not or is a
        view of more.
        """
        if const and not isinstance(tensor, FakeTensor):
            tensor = tensor.detach().contiguous()
            if tensor.nbytes != tensor.untyped_storage().nbytes():
                tensor = tensor.clone()
        spec = cls(
            dtype=tensor.dtype,
            shape=tensor.shape,
            layout=tensor.layout,
            is_sparse=tensor.is_sparse,
            const=const,
            requires_grad=tensor.requires_grad,
        )
        if tensor.layout == torch.strided and not const:
            spec.dim_order = dim_order_from_stride(tensor.stride(), tensor.shape)
            spec.stride = stride_from_dim_order(spec.shape, spec.dim_order)
        if const and not isinstance(tensor, FakeTensor):
            spec.storage = tensor.untyped_storage()
        return spec

    def __copy__(self) -> TensorSpec:
        """Copy the spec with lists of its own, so that bounding or planning the copy leaves the original alone."""
        copied = type(self).__new__(type(self))
        for name in TensorSpec.__slots__:
            if name != "__weakref__":
                value = getattr(self, name)
                setattr(copied, name, list(value) if isinstance(value, list) else value)
        return copied

    @property
    def scalar_type(self) -> torch.dtype:
        """Element type, under the name that ExecuTorch passes use."""
        return self.dtype

    @property
    def inplace_base(self) -> TensorSpec | None:
        """The spec that this one overwrites: its `storage_base`, if it begins at byte 0 of it."""
        return self.storage_base if self.storage_offset_bytes == 0 else None

    @inplace_base.setter
    def inplace_base(self, base: TensorSpec | None) -> None:
        self.storage_base = base
        self.storage_offset_bytes = 0

    @property
    def is_dynamic_unbound_tensor(self) -> bool:
        """Whether the runtime must allocate this tensor, because no upper bound of its size is known."""
        return self.shape_dynamism == TensorShapeDynamism.DYNAMIC_UNBOUND

    @property
    def is_static_shape_tensor(self) -> bool:
        """Whether every size is fixed."""
        return self.shape_dynamism == TensorShapeDynamism.STATIC

    @property
    def is_upper_bound_tensor(self) -> bool:
        """Whether `shape` holds, or will hold, upper bounds."""
        return self.shape_dynamism == TensorShapeDynamism.DYNAMIC_BOUND

    def numel(self) -> int:
        """Return the number of elements; symbolic (a `SymInt`) if the shape is."""
        sizes: list[Any] = self.shape
        return math.prod(sizes)

    def nbytes(self) -> int:
        """Return the size in bytes, without padding; symbolic (a `SymInt`) if the shape is."""
        return self.numel() * self.dtype.itemsize

    @property
    def allocated_memory(self) -> int:
        """Size in bytes, rounded up to the alignment."""
        return -(-self.nbytes() // self.alignment) * self.alignment

    def realign(self, alignment: int) -> int:
        """Set the alignment in bytes and return the new `allocated_memory`."""
        self.alignment = alignment
        return self.allocated_memory

    def __repr__(self) -> str:
        shape = ", ".join(str(dim) for dim in self.shape)
        parts = [f"{str(self.dtype).removeprefix('torch.')}[{shape}]"]
        if self.dim_order != list(range(len(self.shape))):
            parts.append(f"dim_order={self.dim_order}")
        if self.const:
            parts.append("const")
        if self.shape_dynamism != TensorShapeDynamism.STATIC:
            parts.append(self.shape_dynamism.name.lower())
        if self.mem_offset is not None:
            parts.append(f"arena {self.mem_id} bytes {self.mem_offset}..{self.mem_offset + self.nbytes()}")
        if self.lifetime[0] is not None:
            parts.append(f"steps {self.lifetime[0]}..{self.lifetime[1]}")
        if self.storage_base is not None:
            parts.append(f"view at byte {self.storage_offset_bytes}")
        return f"TensorSpec({', '.join(parts)})"


def _as_int(dim: Dim) -> Dim:
    if isinstance(dim, torch.SymInt):
        known = dim.node.maybe_as_int()
        return dim if known is None else known
    return dim


def has_form_of(argument: TensorSpec, result: TensorSpec) -> bool:
    """Return whether an argument is laid out like a result in every run: element by element at the same place.

    Sizes must be known: dynamic ones with equal bounds may differ when the program runs.
    """
    return (
        argument.dtype == result.dtype
        and argument.is_static_shape_tensor
        and result.is_static_shape_tensor
        and list(argument.shape) == list(result.shape)
        and list(argument.dim_order) == list(result.dim_order)
    )
