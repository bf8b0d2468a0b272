"""Kernels that torch does not have: scalar primitives, memory primitives, dim-order copies, seeded random tensors.

Their meaning is written here a second time on purpose: exporter and interpreter share no operator definitions, or
one bug in them would agree with itself.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from exirkit.ir import parse_schema
from exirkit.runtime_ref.interpreter.values import StepFailure, TensorCell

from .kernel import Kernel, KernelKind, make_kernel

Number = int | float | bool

_INT64: Final = range(-(2**63), 2**63)


def own_kernels() -> Iterator[Kernel]:
    """Yield every kernel that this module defines."""
    for name, meaning in _BINARY.items():
        yield _kernel(f"executorch_prim::{name}(Scalar a, Scalar b) -> Scalar", _in_range(meaning))
    for name, unary in _UNARY.items():
        yield _kernel(f"executorch_prim::{name}(Scalar a) -> Scalar", _in_range(unary))
    yield _kernel("executorch_prim::sym_ite.Scalar(Scalar b, Scalar t, Scalar f) -> Scalar", _choose)
    yield _kernel(_ET_COPY_INDEX, _et_copy_index, kind=KernelKind.MEMORY)
    # Torch's parser rejects the overload name `default`, which is what the runtime calls this one.
    view = _kernel(_ET_VIEW, _et_view, kind=KernelKind.MEMORY)
    yield replace(view, name=f"{view.name}.default")
    for schema, call in (*_COPIES.items(), *_LISTS.items()):
        yield _kernel(schema, call)
    yield _kernel(_CONVOLUTION_BACKWARD, _convolution_backward)
    for schema, call in _RANDOM.items():
        yield _kernel(schema, call, random=True)


def _kernel(schema: str, call: Callable[..., Any], *, kind: KernelKind | None = None, random: bool = False) -> Kernel:
    kernel = make_kernel(parse_schema(schema), call, kind=kind, random=random)
    assert kernel is not None, f"schema {schema} has a type without a slot"
    return kernel


def write_result(result: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Copy `result` into `out`, which is resized if it is empty, whatever the layout of either."""
    if out.shape != result.shape:
        out.resize_(result.shape)
    return out.copy_(result)


def _in_range(meaning: Callable[..., Number]) -> Callable[..., Number]:
    def checked(*numbers: Number) -> Number:
        result = meaning(*numbers)
        if isinstance(result, int) and result not in _INT64:
            raise OverflowError(f"{result} does not fit 64 bits")
        return result

    return checked


def _choose(b: Number, t: Number, f: Number) -> Number:
    return t if b else f


_BINARY: Final[dict[str, Callable[[Any, Any], Number]]] = {
    "add.Scalar": operator.add,
    "sub.Scalar": operator.sub,
    "mul.Scalar": operator.mul,
    "floordiv.Scalar": operator.floordiv,
    "floordiv.int": operator.floordiv,
    "truediv.Scalar": operator.truediv,
    "mod.Scalar": operator.mod,
    "mod.int": operator.mod,
    "eq.Scalar": operator.eq,
    "ne.Scalar": operator.ne,
    "gt.Scalar": operator.gt,
    "ge.Scalar": operator.ge,
    "lt.Scalar": operator.lt,
    "le.Scalar": operator.le,
    "sym_max.Scalar": max,
    "sym_min.Scalar": min,
}

_UNARY: Final[dict[str, Callable[[Any], Number]]] = {
    "neg.Scalar": operator.neg,
    "sym_float.Scalar": float,
    "sym_int.Scalar": int,
    "sym_not.Scalar": operator.not_,
    "ceil.Scalar": math.ceil,
    "round.Scalar": round,
    "trunc.Scalar": math.trunc,
}


def _et_view(self: TensorCell, size: Sequence[int], out: TensorCell) -> None:
    """Make `out` show the memory of `self` with another shape; one entry of `size` may be -1."""
    source = self.tensor()
    shaped = source.view(list(size))
    if shaped.dtype != out.dtype:
        raise StepFailure("EK653", f"a view of {source.dtype} was declared as {out.dtype}", value=out.index)
    out.check_shape(shaped.shape)
    out.current = shaped


def _et_copy_index(copy_to: TensorCell, copy_from: TensorCell, index: int) -> None:
    """Write `copy_from` to row `index` of `copy_to`; a tensor with dynamic shape then ends with that row."""
    row = copy_from.tensor()
    if copy_to.is_static:
        rows = copy_to.tensor()
        if index not in range(rows.shape[0] if rows.dim() else 0):
            message = f"row {index} is outside a tensor with shape {list(rows.shape)}"
            raise StepFailure("EK651", message, value=copy_to.index)
    else:
        if index < 0:
            raise StepFailure("EK651", f"row {index} is negative", value=copy_to.index)
        rows = copy_to.resize((index + 1, *row.shape))
    target = rows[index]
    if target.shape != row.shape or target.dtype != row.dtype:
        raise StepFailure(
            "EK651",
            f"a row of shape {list(row.shape)}, {row.dtype} does not fit into rows of shape {list(target.shape)},"
            f" {target.dtype}",
            value=copy_to.index,
        )
    target.copy_(row)


# A view writes to no memory: `out` is not an out argument but a cell that will show the memory of `self`.
_ET_VIEW: Final = "executorch_prim::et_view(Tensor self, int[] size, Tensor out) -> ()"
_ET_COPY_INDEX: Final = "executorch_prim::et_copy_index.tensor(Tensor(a!) copy_to, Tensor copy_from, int index) -> ()"


def _copy_out(
    self: torch.Tensor,
    *,
    out: torch.Tensor,
    non_blocking: bool = False,
    dim_order: Sequence[int] | None = None,
) -> torch.Tensor:
    # The layout of the result is that of `out`; a dim order that says otherwise is a bug of the exporter.
    if dim_order is not None and sorted(dim_order) != list(range(self.dim())):
        raise ValueError(f"dim order {list(dim_order)} is not a permutation of the {self.dim()} dimensions")
    return write_result(self, out)


def _empty_out(size: Sequence[int], *, out: torch.Tensor, dim_order: Sequence[int] | None = None) -> torch.Tensor:
    # Zero instead of garbage keeps runs reproducible.
    return (out if list(out.shape) == list(size) else out.resize_(list(size))).zero_()


def _as_strided_copy(
    self: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    # Torch counts from the start of the storage, which here is a whole arena with other tensors in it.
    return write_result(self.clone().as_strided(size, stride, storage_offset or 0), out)


def _as_strided_scatter(
    self: torch.Tensor,
    src: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    result = self.clone()
    result.as_strided(size, stride, storage_offset or 0).copy_(src)
    return write_result(result, out)


_STRIDED = "SymInt[] size, SymInt[] stride, SymInt? storage_offset=None, *, Tensor(a!) out) -> Tensor(a!)"
_TO_COPY = "(Tensor self, *, bool non_blocking=False, int[]? dim_order=None, Tensor(a!) out) -> Tensor(a!)"
_COPIES: Final[dict[str, Callable[..., torch.Tensor]]] = {
    f"dim_order_ops::_to_dim_order_copy.out{_TO_COPY}": _copy_out,
    f"dim_order_ops::_clone_dim_order.out{_TO_COPY}": _copy_out,
    "dim_order_ops::_empty_dim_order.out(int[] size, *, int[]? dim_order=None, Tensor(a!) out)"
    " -> Tensor(a!)": _empty_out,
    "aten::empty.out(int[] size, *, MemoryFormat? memory_format=None, Tensor(a!) out) -> Tensor(a!)": (
        lambda size, *, memory_format=None, out: _empty_out(size, out=out)
    ),
    f"aten::as_strided_copy.out(Tensor self, {_STRIDED}": _as_strided_copy,
    f"aten::as_strided_scatter.out(Tensor self, Tensor src, {_STRIDED}": _as_strided_scatter,
    "et_copy::_h2d_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)": _copy_out,
    "et_copy::_d2h_copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)": _copy_out,
}


def _split(self: torch.Tensor, sizes: int | Sequence[int], dim: int = 0, *, out: Sequence[torch.Tensor]) -> None:
    if isinstance(sizes, int):
        _write_all(torch.ops.aten.split.Tensor(self, sizes, dim), out)
    else:
        _write_all(torch.ops.aten.split_with_sizes.default(self, sizes, dim), out)


def _unbind(self: torch.Tensor, dim: int = 0, *, out: Sequence[torch.Tensor]) -> None:
    _write_all(self.unbind(dim), out)


def _write_all(results: Sequence[torch.Tensor], outs: Sequence[torch.Tensor]) -> None:
    if len(results) != len(outs):
        raise ValueError(f"there are {len(results)} results and {len(outs)} out tensors")
    for result, out in zip(results, outs, strict=True):
        write_result(result, out)


# Some of torch's own do not size empty out tensors.
_LISTS: Final[dict[str, Callable[..., None]]] = {
    "aten::split_copy.Tensor_out(Tensor self, int split_size, int dim=0, *, Tensor(a!)[] out) -> ()": _split,
    "aten::split_with_sizes_copy.out(Tensor self, int[] split_sizes, int dim=0, *, Tensor(a!)[] out) -> ()": _split,
    "aten::unbind_copy.int_out(Tensor self, int dim=0, *, Tensor(a!)[] out) -> ()": _unbind,
}


_CONVOLUTION_BACKWARD = (
    "aten::convolution_backward.out(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes,"
    " SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups,"
    " bool[3] output_mask, *, Tensor(a!) out0, Tensor(b!) out1, Tensor(c!) out2)"
    " -> (Tensor(a!), Tensor(b!), Tensor(c!))"
)


def _convolution_backward(*args: Any, out0: torch.Tensor, out1: torch.Tensor, out2: torch.Tensor) -> None:
    """Write the gradients that the mask asks for; torch's own out variant fails if it asks for less than all."""
    results = torch.ops.aten.convolution_backward.default(*args)
    for result, out in zip(results, (out0, out1, out2), strict=True):
        if result is not None and result.numel():
            write_result(result, out)


def _sized(out: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    return out if list(out.shape) == list(size) else out.resize_(list(size))


def _rand(size: Sequence[int], *, out: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _sized(out, size).uniform_(generator=generator)


def _randn(size: Sequence[int], *, out: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _sized(out, size).normal_(generator=generator)


def _native_dropout(
    input: torch.Tensor,
    p: float,
    train: bool | None,
    *,
    out0: torch.Tensor,
    out1: torch.Tensor,
    generator: torch.Generator,
) -> None:
    keep = _sized(out1, input.shape)
    if train is False or p == 0.0:
        keep.fill_(True)
        write_result(input, out0)
    else:
        keep.bernoulli_(1.0 - p, generator=generator)
        write_result(input * keep * (0.0 if p == 1.0 else 1.0 / (1.0 - p)), out0)


_RANDOM: Final[dict[str, Callable[..., Any]]] = {
    "aten::rand.out(int[] size, *, Tensor(a!) out) -> Tensor(a!)": _rand,
    "aten::randn.out(int[] size, *, Tensor(a!) out) -> Tensor(a!)": _randn,
    "aten::native_dropout.out(Tensor input, float p, bool? train, *, Tensor(a!) out0, Tensor(b!) out1)"
    " -> (Tensor(a!), Tensor(b!))": _native_dropout,
}
