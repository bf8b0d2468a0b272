"""Which kernels of the runtime take which layouts.

Found by running every kernel on channels-last tensors: those not listed here refuse them or, worse, read them as
row-major.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload

from exirkit.ir import ops

_ATEN = torch.ops.aten

_UNARY = (
    "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh elu erf exp expm1 floor gelu hardtanh isinf isnan "
    "leaky_relu log log10 log1p log2 logical_not neg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt tan tanh "
    "trunc clamp"
)
_TENSOR_TENSOR = "add sub mul div eq ne lt le gt ge remainder fmod bitwise_and bitwise_or bitwise_xor"
_TENSORS_ONLY = "maximum minimum atan2 logical_and logical_or logical_xor floor_divide"


def _overloads(names: str, overload: str) -> set[Any]:
    return {getattr(getattr(_ATEN, name), overload) for name in names.split()}


ELEMENTWISE = frozenset(
    _overloads(_UNARY, "default")
    | _overloads(_TENSOR_TENSOR, "Tensor")
    | _overloads(_TENSOR_TENSOR, "Scalar")
    | _overloads(_TENSORS_ONLY, "default")
    | {
        _ATEN.div.Tensor_mode,
        _ATEN.div.Scalar_mode,
        _ATEN.pow.Tensor_Tensor,
        _ATEN.pow.Tensor_Scalar,
        _ATEN.pow.Scalar,
        _ATEN.rsub.Scalar,
        _ATEN.where.self,
        _ATEN.copy_.default,
    }
)
"""Kernels that take any layout, as long as all tensors have the same one and the same shape."""

SAME_ORDER = frozenset(
    {
        _ATEN.convolution.default,
        _ATEN.max_pool2d_with_indices.default,
        _ATEN.upsample_nearest2d.vec,
        _ATEN.upsample_bilinear2d.vec,
    }
)
"""Kernels whose first argument and results are both row-major or both channels-last; other arguments may be either."""

ANY_ORDER = frozenset(
    {
        ops.edge.dim_order_ops._to_dim_order_copy.default._op,
        ops.edge.dim_order_ops._clone_dim_order.default._op,
        ops.edge.dim_order_ops._empty_dim_order.default._op,
        _ATEN.sym_size.int,
        _ATEN.sym_numel.default,
    }
)
"""Operators whose arguments and results may have different layouts."""

WITH_NUMBER: dict[OpOverload, OpOverload] = {
    **{getattr(_ATEN, name).Tensor: getattr(_ATEN, name).Scalar for name in _TENSOR_TENSOR.split()},
    _ATEN.div.Tensor_mode: _ATEN.div.Scalar_mode,
    _ATEN.pow.Tensor_Tensor: _ATEN.pow.Tensor_Scalar,
}
"""For an operator on two tensors, the one that takes a number as its second operand."""

WITH_NUMBER_FIRST: dict[OpOverload, OpOverload] = {
    **{getattr(_ATEN, name).Tensor: getattr(_ATEN, name).Scalar for name in ["add", "mul", "eq", "ne"]},
    _ATEN.sub.Tensor: _ATEN.rsub.Scalar,
    _ATEN.lt.Tensor: _ATEN.gt.Scalar,
    _ATEN.gt.Tensor: _ATEN.lt.Scalar,
    _ATEN.le.Tensor: _ATEN.ge.Scalar,
    _ATEN.ge.Tensor: _ATEN.le.Scalar,
}
"""For an operator on two tensors, the one that takes the second tensor, and a number in the place of the first."""
