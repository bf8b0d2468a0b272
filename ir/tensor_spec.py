"""What the exporter knows about one tensor of a program: its type, its layout (dim order), and where it will live.

A `.pte` file stores sizes and a dim order, never strides. Functions here answer what `torch.Tensor.dim_order` answers,
from numbers alone, and add no guard to a shape environment.

Specs are compared by identity: two nodes that carry the same spec object mean the same memory. They are plain
objects, because every pass touches every spec.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, TypeAlias

import sympy
import torch

from .diagnostics import Diagnostic, UsageError
from .torch_internals import FakeTensor, disable_torch_dispatch

Dim: TypeAlias = "int | torch.SymInt"

_CHANNELS_LAST_ORDERS: dict[int, list[int]] = {4: [0, 2, 3, 1], 5: [0, 2, 3, 4, 1]}
# Stands for an unbacked size of which nothing is known: large, so as not to be taken for a degenerate
# dimension.
_UNBACKED_SAMPLE = 4099


def dim_order_from_stride(strides: Sequence[Dim], sizes: Sequence[Dim] | None = None) -> list[int]:
    """Return the dim order of a tensor, equal to what `torch.Tensor.dim_order` returns for it, if it has elements.

    Strides alone leave ties open when a dimension has size 1 or is expanded (stride 0); the sizes decide
    them. A dimension with stride 0 keeps its place among its neighbours, so the answer is a permutation
    always. A tensor without elements that is both row-major and channels-last is row-major, as kernels make it.
    Without sizes, strides that only a channels-last tensor has are read as channels last; other ties keep their order.

    Args:
        strides: Elements between neighbours along each dimension.
        sizes: Elements along each dimension, the same number of entries.

    Returns:
        A permutation of `range(len(strides))`, outermost dimension first.
    """
    ndim = len(strides)
    if ndim < 2:
        return list(range(ndim))
    if sizes is None:
        steps = sample_ints(strides)
        lengths = [2] * ndim
        if _only_channels_last(steps):
            return list(_CHANNELS_LAST_ORDERS[ndim])
    else:
        samples = sample_ints([*strides, *sizes])
        steps, lengths = samples[:ndim], samples[ndim:]
        contiguous = _fills(lengths, steps, list(range(ndim)))
        channels_last = ndim == 4 and _fills(lengths, steps, _CHANNELS_LAST_ORDERS[4])
        # Without elements a size of 1 is longer than the one beside it, and torch would put it first.
        if contiguous != channels_last or (contiguous and 0 in lengths):
            return list(range(ndim)) if contiguous else list(_CHANNELS_LAST_ORDERS[4])
    return _order_by_stride(steps, lengths)


def stride_from_dim_order(sizes: Sequence[Dim], dim_order: Sequence[int]) -> list[Dim]:
    """Return the strides, in elements, of a dense tensor with these sizes laid out in this dim order.

    A dimension of size 0 counts as 1, as in torch, so that strides stay positive.

    Raises:
        UsageError: EK191, if `dim_order` is not a permutation of the dimensions.
    """
    _check_permutation(sizes, dim_order)
    strides: list[Dim] = [1] * len(sizes)
    step: Dim = 1
    # Products of symbolic sizes are expensive, and the size of the outermost dimension is in no stride.
    for place in range(len(sizes) - 1, 0, -1):
        size = sizes[dim_order[place]]
        if not isinstance(size, int):
            step = size if isinstance(step, int) and step == 1 else step * size
        elif size:
            step = step * size
        strides[dim_order[place - 1]] = step
    return strides


def contiguous_stride(sizes: Sequence[Dim]) -> list[Dim]:
    """Return the strides, in elements, of a row-major tensor with these sizes."""
    strides: list[Dim] = [1] * len(sizes)
    for place in range(len(sizes) - 1, 0, -1):
        size, step = sizes[place], strides[place]
        if type(size) is not int or type(step) is not int:
            return stride_from_dim_order(sizes, range(len(sizes)))
        strides[place - 1] = step * size if size else step
    return strides


def dim_order_from_memory_format(memory_format: torch.memory_format, ndim: int) -> list[int]:
    """Return the dim order that a memory format means for tensors of rank `ndim`.

    Raises:
        UsageError: EK192, if the format fixes no order for this rank, as `torch.preserve_format` never does.
    """
    if memory_format == torch.contiguous_format:
        return list(range(ndim))
    ranks = {torch.channels_last: 4, torch.channels_last_3d: 5}
    if ranks.get(memory_format) == ndim:
        return list(_CHANNELS_LAST_ORDERS[ndim])
    raise UsageError(Diagnostic.of("EK192", f"{memory_format} fixes no dim order for a tensor of rank {ndim}"))


def sample_ints(values: Iterable[Dim]) -> list[int]:
    """Return the values at one consistent assignment of their symbols, without adding guards.

    A backed symbol stands for its traced hint, an unbacked one for a large number inside its range.
    """
    listed: list[Any] = list(values)
    if {int}.issuperset(map(type, listed)):
        # Most sizes do not vary, and this is asked very often.
        return listed
    symbols = sorted(
        {symbol for value in listed if isinstance(value, torch.SymInt) for symbol in value.node.expr.free_symbols},
        key=lambda symbol: str(symbol.name),
    )
    if not symbols:
        return [int(value.node.expr) if isinstance(value, torch.SymInt) else value for value in listed]
    shape_env = next(v.node.shape_env for v in listed if isinstance(v, torch.SymInt) and v.node.expr.free_symbols)
    assignment = {symbol: _sample(shape_env, symbol, place) for place, symbol in enumerate(symbols)}
    return [_evaluate(value.node.expr, assignment) if isinstance(value, torch.SymInt) else value for value in listed]


def _sample(shape_env: object, symbol: sympy.Symbol, place: int) -> sympy.Integer:
    hint = getattr(shape_env, "backed_var_to_val", {}).get(symbol)
    if hint is not None:
        return sympy.Integer(int(hint))
    bounds = getattr(shape_env, "var_to_range", {}).get(symbol)
    value = _UNBACKED_SAMPLE + 2 * place
    if bounds is not None and isinstance(bounds.upper, (int, sympy.Integer)):
        value = min(value, int(bounds.upper))
    return sympy.Integer(value)


def _evaluate(expression: sympy.Expr, assignment: dict[sympy.Symbol, sympy.Integer]) -> int:
    value = expression.xreplace(assignment)
    return int(value) if value.is_Integer else _UNBACKED_SAMPLE


def _check_permutation(sizes: Sequence[Dim], dim_order: Sequence[int]) -> None:
    if sorted(dim_order) != list(range(len(sizes))):
        raise UsageError(
            Diagnostic.of(
                "EK191",
                f"dim order {list(dim_order)} is not a permutation of the {len(sizes)} dimensions",
                expected=f"each of {list(range(len(sizes)))} once",
            )
        )


def _fills(lengths: Sequence[int], steps: Sequence[int], dim_order: Sequence[int]) -> bool:
    """Return whether the tensor is dense in this order; strides of dimensions of size 1 do not matter."""
    if 0 in lengths and dim_order == list(range(len(lengths))):
        return True
    expected = 1
    for dim in reversed(dim_order):
        if lengths[dim] == 1:
            continue
        if steps[dim] != expected:
            return False
        expected *= lengths[dim]
    return True


def _only_channels_last(steps: Sequence[int]) -> bool:
    """Return whether strides grow from channels to batch, and a spatial one exceeds that of the channels."""
    order = _CHANNELS_LAST_ORDERS.get(len(steps))
    if order is None:
        return False
    inner_to_outer = [steps[dim] for dim in reversed(order)]
    return 0 not in steps and inner_to_outer == sorted(inner_to_outer) and inner_to_outer[-2] > steps[1]


def _order_by_stride(steps: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """Sort dimensions by stride; one with stride 0 has no place of its own and ties with all.

    That relation is not transitive, so the result depends on the way of sorting: each dimension moves inwards
    past larger strides and past the undecided ones between them, which is how torch resolves it.
    """
    inner_first: list[int] = []
    for dim in reversed(range(len(steps))):
        inner_first.append(dim)
        place = len(inner_first) - 1
        for candidate in range(place - 1, -1, -1):
            verdict = _compare(inner_first[candidate], dim, steps, lengths)
            if verdict < 0:
                break
            if verdict > 0:
                inner_first[candidate], inner_first[place] = dim, inner_first[candidate]
                place = candidate
    return inner_first[::-1]


def _compare(inner: int, outer: int, steps: Sequence[int], lengths: Sequence[int]) -> int:
    """Return -1 if the two stand rightly, 1 if they must change places, 0 if their strides do not tell."""
    if steps[inner] == 0 or steps[outer] == 0:
        return 0
    if steps[inner] == steps[outer]:
        return 0 if lengths[outer] >= lengths[inner] else 1
    return -1 if steps[outer] > steps[inner] else 1


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
        # Backends note things of their own on specs.
        "__dict__",
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
            if type(tensor) is not torch.Tensor or tensor.nbytes != tensor.untyped_storage().nbytes():
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
        copied.__dict__.update(self.__dict__)
        for name in TensorSpec.__slots__:
            if name not in ("__dict__", "__weakref__"):
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


def empty_meta_tensor(dtype: torch.dtype, sizes: Any, strides: Any, offset: Any = 0) -> torch.Tensor:
    """Return a tensor without memory; sizes, strides and offset may be symbolic.

    Takes a tenth of the time of an operator that makes it under a fake tensor mode.
    """
    with disable_torch_dispatch():
        empty = torch.empty_strided(tuple(sizes), tuple(strides), dtype=dtype, device="meta")
        # To ask whether a symbolic offset is 0 would add a guard.
        return empty if type(offset) is int and not offset else empty.as_strided(tuple(sizes), tuple(strides), offset)
