"""One or more calls for every operator of `aten` that the official runtime knows: positional and named arguments.

Tensors are distinct in every dimension where the operator allows it, so that a swapped axis shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Samples = dict[str, list[Arguments]]


def make_samples() -> Samples:
    """Return the samples by name, `aten::add.out`; the same tensors at every call."""
    torch.manual_seed(0)
    samples: Samples = {}
    for group in (_unary, _binary, _bitwise, _compare, _reductions, _shapes, _indexing, _layers, _padding, _creation):
        for name, *calls in group():
            samples[f"aten::{name}"] = [_split(call) for call in calls]
    return samples


def _split(call: tuple[Any, ...]) -> Arguments:
    if call and isinstance(call[-1], dict):
        return call[:-1], call[-1]
    return call, {}


def _f(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def _positive(*shape: int) -> torch.Tensor:
    return torch.rand(shape) + 0.5


def _i(*shape: int, low: int = -9, high: int = 9) -> torch.Tensor:
    return torch.randint(low, high, shape)


def _b(*shape: int) -> torch.Tensor:
    return torch.rand(shape) > 0.5


Row = tuple[Any, ...]


def _unary() -> Iterator[Row]:
    smooth = "abs asinh atan ceil cos cosh erf exp expm1 floor neg relu round sigmoid sign sin sinh tan tanh trunc"
    for name in smooth.split():
        yield f"{name}.out", (_f(2, 3),), (_f(4, 1),)
    for name in ["acosh", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sqrt"]:
        yield f"{name}.out", (_positive(2, 3) + 1,)
    for name in ["acos", "asin", "atanh"]:
        yield f"{name}.out", (torch.rand(2, 3) * 1.8 - 0.9,)
    special = torch.tensor([1.0, float("inf"), float("nan"), -float("inf")])
    yield "isinf.out", (special,)
    yield "isnan.out", (special,)
    yield "logical_not.out", (_b(5),), (_f(5),)
    yield "bitwise_not.out", (_i(5),), (_b(5),)
    yield "_conj_physical.out", (_f(3),)
    yield "logit.out", (torch.rand(2, 3), 1e-6), (torch.rand(3) * 0.8 + 0.1, None)
    yield "gelu.out", (_f(2, 3),), (_f(2, 3), {"approximate": "tanh"})
    yield "elu.out", (_f(2, 3), 1.5, 1, 1.0)
    yield "glu.out", (_f(2, 6), 1)
    yield "hardtanh.out", (_f(2, 3), -1, 1.0)
    yield "leaky_relu.out", (_f(2, 3), 0.2)
    yield "clamp.out", (_f(2, 3), -0.5, None), (_i(6), 0, 3)
    yield "clamp.Tensor_out", (_f(2, 3), _f(2, 3) - 1, _f(2, 3) + 1)
    yield "_softmax.out", (_f(2, 3), 1, False)
    yield "_log_softmax.out", (_f(2, 3), 0, False)
    yield "cumsum.out", (_f(2, 3), 1), (_i(2, 3), 0, {"dtype": torch.int64})
    yield "native_dropout.out", (_f(2, 3), 0.5, False)


def _binary() -> Iterator[Row]:
    # Powers of two: other multiples are rounded before the sum, unlike in torch (tests/official/test_arithmetic.py).
    yield "add.out", (_f(2, 3), _f(3), {"alpha": 2}), (_i(2, 3), _i(2, 1)), (_f(2), _i(2), {"alpha": 0.5})
    yield "sub.out", (_f(2, 3), _f(2, 1), {"alpha": 4})
    yield "mul.out", (_f(2, 3), _f(3))
    yield "div.out", (_f(2, 3), _positive(3)), (_i(4), _i(4, low=1))
    yield "div.out_mode", (_f(2, 3), _positive(3), {"rounding_mode": "floor"})
    yield "add.Scalar_out", (_f(2, 3), 2, 1.5)
    yield "sub.Scalar_out", (_f(2, 3), 2.5, 1)
    yield "rsub.Scalar_out", (_f(2, 3), 2, 1)
    yield "mul.Scalar_out", (_f(2, 3), 2.5), (_i(3), 3)
    yield "div.Scalar_out", (_f(2, 3), 2)
    yield "div.Scalar_mode_out", (_f(2, 3), 2, {"rounding_mode": "trunc"})
    yield "floor_divide.out", (_f(2, 3), _positive(3)), (_i(4), _i(4, low=1))
    for name in ("fmod", "remainder"):
        yield f"{name}.Tensor_out", (_f(2, 3), _positive(3))
        yield f"{name}.Scalar_out", (_f(2, 3), 0.7), (_i(5), 3)
    yield "pow.Tensor_Tensor_out", (_positive(2, 3), _f(3))
    yield "pow.Tensor_Scalar_out", (_f(2, 3), 2)
    yield "pow.Scalar_out", (2.0, _f(2, 3))
    yield "atan2.out", (_f(2, 3), _f(2, 3))
    yield "maximum.out", (_f(2, 3), _f(3))
    yield "minimum.out", (_f(2, 3), _f(3))
    yield "where.self_out", (_b(2, 3), _f(2, 3), _f(3))
    yield "masked_fill.Scalar_out", (_f(2, 3), _b(2, 3), -1.0)
    yield "masked_scatter.out", (_f(2, 3), _b(2, 3), _f(6))
    yield "copy.out", (_f(2, 3), _f(3))
    yield "fill.Scalar_out", (_f(2, 3), 4)
    yield "fill.Tensor_out", (_f(2, 3), torch.tensor(2.5))


def _bitwise() -> Iterator[Row]:
    for name in ("and", "or", "xor"):
        yield f"bitwise_{name}.Tensor_out", (_i(2, 3), _i(3)), (_b(4), _b(4))
        yield f"bitwise_{name}.Scalar_out", (_i(2, 3), 6)
        yield f"logical_{name}.out", (_b(2, 3), _b(3)), (_i(3), _f(3))
    for name in ("left", "right"):
        yield f"bitwise_{name}_shift.Tensor_out", (_i(4), _i(4, low=0, high=3))
        yield f"bitwise_{name}_shift.Tensor_Scalar_out", (_i(4), 2)


def _compare() -> Iterator[Row]:
    for name in ("eq", "ne", "ge", "gt", "le", "lt"):
        yield f"{name}.Tensor_out", (_i(2, 3, low=0, high=2), _i(3, low=0, high=2))
        yield f"{name}.Scalar_out", (_i(2, 3, low=0, high=2), 1)


def _reductions() -> Iterator[Row]:
    yield "sum.IntList_out", (_f(2, 3), [1], True), (_f(2, 3), None), (_i(3), [0], {"dtype": torch.float32})
    yield "mean.out", (_f(2, 3, 4), [0, 2])
    yield "mean.dtype_out", (_f(2, 3),), (_i(3), {"dtype": torch.float32})
    yield "prod.out", (_f(2, 3),)
    yield "prod.int_out", (_f(2, 3), 1, True)
    yield "amax.out", (_f(2, 3), [1])
    yield "amin.out", (_f(2, 3), [0], True)
    yield "argmax.out", (_f(2, 3), 1), (_f(2, 3), None)
    yield "argmin.out", (_f(2, 3), 0, True)
    yield "any.out", (_b(2, 3), 1)
    yield "any.all_out", (_b(2, 3),)
    yield "any.dims_out", (_b(2, 3, 2), [0, 2])
    yield "max.dim_max", (_f(2, 3), 1)
    yield "min.dim_min", (_f(2, 3), 0, True)
    yield "max.unary_out", (_f(2, 3),)
    yield "min.unary_out", (_f(2, 3),)
    yield "var.out", (_f(2, 3), [1], True, False)
    yield "var.correction_out", (_f(2, 3), [1], {"correction": 2, "keepdim": True})
    yield "var_mean.correction_out", (_f(2, 5), [1], {"correction": 1})
    yield "topk.values", (_f(2, 5), 3), (_f(5, 2), 2, 0, False, True)


def _shapes() -> Iterator[Row]:
    yield "alias_copy.out", (_f(2, 3),)
    yield "clone.out", (_f(2, 3),), (_f(2, 3), {"memory_format": torch.contiguous_format})
    yield "detach_copy.out", (_f(2, 3),)
    yield "lift_fresh_copy.out", (_f(2, 3),)
    yield "_to_copy.out", (_f(2, 3),)
    yield "as_strided_copy.out", (_f(2, 3), [3, 2], [1, 3], 0)
    yield "cat.out", ([_f(2, 3), _f(1, 3)], 0), ([_f(2, 3), _f(2, 1), _f(2, 2)], -1)
    yield "stack.out", ([_f(2, 3), _f(2, 3)], 1)
    yield "diagonal_copy.out", (_f(3, 4), 1)
    yield "expand_copy.out", (_f(2, 1), [3, 2, 4])
    yield "flip.out", (_f(2, 3), [1])
    yield "narrow_copy.out", (_f(2, 5), 1, 1, 3)
    yield "permute_copy.out", (_f(2, 3, 4), [2, 0, 1])
    yield "pixel_shuffle.out", (_f(1, 8, 2, 3), 2)
    yield "pixel_unshuffle.out", (_f(1, 2, 4, 6), 2)
    yield "repeat.out", (_f(2, 3), [2, 1, 2])
    yield "roll.out", (_f(2, 3), [1, 2], [0, 1])
    yield "select_copy.int_out", (_f(2, 3), 1, 2)
    yield "slice_copy.Tensor_out", (_f(5, 3), 0, 1, 2**63 - 1, 2)
    yield "split_copy.Tensor_out", (_f(5, 2), 2)
    yield "split_with_sizes_copy.out", (_f(5, 2), [1, 4], 0)
    yield "squeeze_copy.dim_out", (_f(2, 1, 3), 1)
    yield "squeeze_copy.dims_out", (_f(1, 2, 1), [0, 2])
    yield "t_copy.out", (_f(2, 3),)
    yield "transpose_copy.int_out", (_f(2, 3, 4), 0, 2)
    yield "tril.out", (_f(3, 4), 1)
    yield "unbind_copy.int_out", (_f(3, 2), 1)
    yield "unfold_copy.out", (_f(2, 7), 1, 3, 2)
    yield "unsqueeze_copy.out", (_f(2, 3), 1)
    yield "view_copy.out", (_f(2, 6), [3, -1])


def _indexing() -> Iterator[Row]:
    yield "embedding.out", (_f(7, 3), torch.tensor([[1, 6], [0, 2]])), (_f(5, 2), torch.tensor([4]), 0, False, False)
    yield "gather.out", (_f(3, 4), 1, torch.tensor([[0, 3], [1, 1], [2, 0]]))
    yield "index.Tensor_out", (_f(3, 4), [None, torch.tensor([0, 3, 3])]), (_f(5), [torch.tensor([4, 0])])
    yield "index_put.out", (_f(3, 4), [torch.tensor([0, 2])], _f(4), True)
    yield "index_select.out", (_f(3, 4), 1, torch.tensor([3, 0]))
    yield "masked_select.out", (_f(3, 4), torch.ones(3, 4, dtype=torch.bool).tril())
    yield "nonzero.out", (torch.eye(3),)
    yield "repeat_interleave.Tensor_out", (torch.tensor([2, 0, 1]), {"output_size": 3}), (torch.tensor([2, 0, 1]),)
    yield "scatter.src_out", (_f(3, 4), 1, torch.tensor([[0, 3]]), _f(1, 2))
    yield "scatter.value_out", (_f(3, 4), 0, torch.tensor([[0, 2]]), 7)
    yield "scatter_add.out", (_f(3, 4), 0, torch.tensor([[0, 2], [0, 1]]), _f(2, 2))
    yield "select_scatter.out", (_f(3, 4), _f(3), 1, 2)
    yield "slice_scatter.out", (_f(5, 3), _f(2, 3), 0, 1, 5, 2)


def _layers() -> Iterator[Row]:
    yield "addmm.out", (_f(4), _f(2, 3), _f(3, 4), {"beta": 0.5, "alpha": 2})
    yield "mm.out", (_f(2, 3), _f(3, 4))
    yield "bmm.out", (_f(2, 3, 4), _f(2, 4, 5))
    yield "linear.out", (_f(2, 3), _f(4, 3), _f(4)), (_f(2, 3), _f(4, 3), None)
    conv: tuple[Any, ...] = (_f(1, 2, 5, 6), _f(4, 1, 3, 3), None, [1, 1], [1, 0], [1, 1], False, [0, 0], 2)
    yield "convolution.out", conv, (_f(1, 2, 7), _f(3, 2, 3), _f(3), [2], [1], [1], False, [0], 1)
    backward = (_f(1, 3, 5), _f(1, 2, 7), _f(3, 2, 3), [3], [1], [0], [1], False, [0], 1, [True, True, True])
    yield "convolution_backward.out", backward
    yield "avg_pool2d.out", (_f(1, 2, 6, 7), [2, 3], [2, 2], [1, 1], True, False, None)
    yield "_adaptive_avg_pool2d.out", (_f(1, 2, 6, 7), [2, 3])
    yield "max_pool2d_with_indices.out", (_f(1, 2, 6, 7), [2, 3], [2, 2], [0, 1])
    pooled, where = torch.ops.aten.max_pool2d_with_indices.default(_POOL, [2, 2])
    grad = (_f(*pooled.shape), _POOL, [2, 2], [2, 2], [0, 0], [1, 1], False, where)
    yield "max_pool2d_with_indices_backward.grad_input", grad
    yield "native_layer_norm.out", (_f(2, 3, 4), [3, 4], _f(3, 4), None, 1e-5)
    yield "native_group_norm.out", (_f(2, 6, 5), _f(6), _f(6), 2, 6, 5, 3, 1e-5)
    stats = (_f(2, 3, 4), _f(3), _f(3), _f(3), _positive(3))
    yield "_native_batch_norm_legit_no_training.out", (*stats, 0.1, 1e-5)
    yield "_native_batch_norm_legit.out", (*stats, False, 0.1, 1e-5)
    yield "_native_batch_norm_legit.no_stats_out", (_f(2, 3, 4), _f(3), None, True, 0.1, 1e-5)
    yield "_cdist_forward.out", (_f(2, 3), _f(4, 3), 2.0, None)
    yield "_pdist_forward.out", (_f(4, 3), 1.0)
    yield "grid_sampler_2d.out", (_f(1, 2, 4, 5), torch.rand(1, 3, 2, 2) * 2 - 1, 0, 0, False)
    yield "upsample_bilinear2d.vec_out", (_f(1, 2, 3, 4), [6, 5], True, None), (_f(1, 2, 3, 4), None, False, [2.0, 1.5])
    yield "upsample_nearest2d.vec_out", (_f(1, 2, 3, 4), [6, 5], None), (_f(1, 2, 3, 4), None, [2.0, 1.5])
    yield "_upsample_bilinear2d_aa.out", (_f(1, 2, 6, 8), [3, 5], False, None, None)


_POOL = torch.linspace(-1, 1, 48).sin().view(1, 2, 4, 6)


def _padding() -> Iterator[Row]:
    yield "constant_pad_nd.out", (_f(2, 3), [1, 0, 2, 1], 0.5)
    for kind in ("reflection", "replication"):
        yield f"{kind}_pad1d.out", (_f(2, 5), [2, 1])
        yield f"{kind}_pad2d.out", (_f(1, 2, 4, 5), [2, 1, 1, 0])
        yield f"{kind}_pad3d.out", (_f(1, 2, 3, 4, 5), [2, 1, 1, 0, 1, 1])


def _creation() -> Iterator[Row]:
    yield "arange.out", (5,)
    yield "arange.start_out", (1, 7, 2), (0.0, 1.0, 0.25)
    yield "full.out", ([2, 3], 1.5), ([], 7)
    yield "full_like.out", (_f(2, 3), 2)
    yield "ones.out", ([2, 3],)
    yield "zeros.out", ([3],)
    yield "scalar_tensor.out", (3,), (2.5,)
