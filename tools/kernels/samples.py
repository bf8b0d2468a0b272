"""Calls with which drawing starts, where one sample of an operator does not lead everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.kernels.calls import Made


def f(*sizes: int) -> Made:
    return Made(sizes, "float32")


def i(*sizes: int) -> Made:
    return Made(sizes, "int64", 0)


def convolution(rank: int, **changes: Any) -> dict[str, Any]:
    ones, zeros = (1,) * rank, (0,) * rank
    call = {
        "input": f(1, 2, *(5,) * rank), "weight": f(4, 2, *(3,) * rank), "bias": f(4), "stride": ones, "padding": zeros,
        "dilation": ones, "transposed": False, "output_padding": zeros, "groups": 1,
    }  # fmt: skip
    return {**call, **changes}


SAMPLES: Mapping[str, tuple[dict[str, Any], ...]] = {
    "aten::convolution.out": (
        convolution(1), convolution(2), convolution(3), convolution(2, bias=None), convolution(2, padding=(1, 1)),
        convolution(2, groups=2, weight=f(4, 1, 3, 3)), convolution(2, stride=(2,), padding=(1,), dilation=(2,)),
        convolution(1, transposed=True, weight=f(2, 4, 3)), convolution(2, transposed=True, weight=f(2, 4, 3, 3)),
        convolution(3, transposed=True, weight=f(2, 4, 3, 3, 3)), convolution(2, input=f(2, 5, 5)),
        convolution(2, transposed=True, weight=f(2, 4, 3, 3), stride=(2, 2), output_padding=(1, 1)),
        convolution(2, transposed=True, weight=f(2, 4, 3, 3), dilation=(2, 2)),
        convolution(2, transposed=True, weight=f(2, 2, 3, 3), groups=2),
    ),
    "aten::constant_pad_nd.out": (
        {"self": f(1, 2, 4, 4), "pad": (1, 1, 2, 0), "value": 0.0}, {"self": f(2, 4), "pad": (-1, 0, 1, -1)},
    ),
    "aten::avg_pool2d.out": (
        {"self": f(1, 2, 6, 6), "kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1), "ceil_mode": True},
        {"self": f(2, 6, 6), "kernel_size": (2,), "stride": (), "count_include_pad": False, "divisor_override": 3},
    ),
    "aten::max_pool2d_with_indices.out": (
        {"self": f(1, 2, 6, 6), "kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1)},
        {"self": f(2, 6, 6), "kernel_size": (2,), "dilation": (2,), "ceil_mode": True},
    ),
    "aten::grid_sampler_2d.out": (
        {"input": f(1, 2, 4, 4), "grid": f(1, 3, 3, 2), "interpolation_mode": 0, "padding_mode": 0,
         "align_corners": False},
        {"input": f(2, 2, 4, 5), "grid": f(2, 3, 3, 2), "interpolation_mode": 1, "padding_mode": 1,
         "align_corners": True},
    ),
    "aten::narrow_copy.out": ({"self": f(3, 4), "dim": 1, "start": 1, "length": 2},),
    "aten::fill.Tensor_out": ({"self": f(2, 3), "value": f()},),
    "aten::index.Tensor_out": (
        {"self": f(2, 3, 4), "indices": (None, i(2))}, {"self": f(2, 3, 4), "indices": (i(2), i(2))},
        {"self": f(2, 3, 4), "indices": (i(2), None, i(2))}, {"self": f(2, 3), "indices": (Made((2, 3), "bool"),)},
        {"self": f(2, 3), "indices": (Made((2,), "bool"), i(1))}, {"self": f(2, 3, 4), "indices": (i(2, 1), i(1, 2))},
    ),
    "aten::index_put.out": (
        {"self": f(2, 3, 4), "indices": (None, i(2)), "values": f(2, 2, 4)},
        {"self": f(2, 3, 4), "indices": (i(2), i(2)), "values": f(2, 4), "accumulate": True},
        {"self": f(2, 3), "indices": (Made((2, 3), "bool"),), "values": f()},
        {"self": f(2, 3, 4), "indices": (i(2), None, i(2)), "values": f(2, 3)},
    ),
    "aten::native_layer_norm.out": (
        {"input": f(2, 3, 4), "normalized_shape": (3, 4), "weight": None, "bias": None, "eps": 1e-5},
        {"input": f(2, 3, 4), "normalized_shape": (4,), "weight": f(4), "bias": None, "eps": 1e-5},
    ),
    "aten::native_group_norm.out": (
        {"input": f(2, 4, 3, 3), "weight": f(4), "bias": None, "N": 2, "C": 4, "HxW": 9, "group": 2, "eps": 1e-5},
        {"input": f(2, 4), "weight": None, "bias": None, "N": 2, "C": 4, "HxW": 1, "group": 2, "eps": 1e-5},
    ),
    "aten::upsample_bilinear2d.vec_out": (
        {"input": f(1, 2, 4, 4), "output_size": None, "align_corners": True, "scale_factors": (2.0, 2.0)},
    ),
    "aten::upsample_nearest2d.vec_out": (
        {"input": f(1, 2, 4, 4), "output_size": None, "scale_factors": (2.0, 2.0)},
    ),
    "aten::div.out_mode": (
        {"self": f(2, 3), "other": f(2, 3), "rounding_mode": None},
        {"self": f(2, 3), "other": f(1, 3), "rounding_mode": "trunc"},
    ),
    "aten::gelu.out": ({"self": f(2, 3), "approximate": "tanh"},),
    "aten::sum.IntList_out": ({"self": f(2, 3, 4), "dim": None}, {"self": f(2, 3, 4), "dim": (), "keepdim": True}),
    "aten::mean.out": ({"self": f(2, 3, 4), "dim": None}, {"self": f(2, 3, 4), "dim": (-1, 0), "keepdim": True}),
    "aten::var.correction_out": ({"self": f(2, 3, 4), "dim": (1,), "correction": 0}, {"self": f(2, 3), "dim": None}),
    "aten::cat.out": ({"tensors": (f(2, 3), f(0), f(1, 3)), "dim": 0}, {"tensors": (f(2, 3, 4),) * 3, "dim": -1}),
    "aten::linear.out": ({"input": f(2, 5, 3), "weight": f(4, 3), "bias": None}, {"input": f(3), "weight": f(4, 3)}),
    "aten::addmm.out": ({"self": f(2, 4), "mat1": f(2, 3), "mat2": f(3, 4), "beta": 0.5, "alpha": 2},),
    "aten::where.self_out": ({"condition": Made((2, 1), "bool"), "self": f(3), "other": f(2, 3)},),
    "aten::expand_copy.out": ({"self": f(3), "size": (2, 4, 3)}, {"self": f(2, 1), "size": (-1, 4)}),
    "aten::repeat.out": ({"self": f(2, 3), "repeats": (2, 1, 2)},),
    "aten::slice_copy.Tensor_out": ({"self": f(5, 4), "dim": 0, "start": 1, "end": -1, "step": 2},),
    "aten::bmm.out": ({"self": f(2, 3, 4), "mat2": f(2, 4, 5)},),
    "aten::embedding.out": ({"weight": f(5, 3), "indices": i(2, 3), "padding_idx": 0},),
    "aten::pixel_shuffle.out": (
        {"self": f(2, 1, 4, 3, 3), "upscale_factor": 2}, {"self": f(4, 3, 3), "upscale_factor": 2},
    ),
    "aten::var.out": ({"self": f(2, 3, 4), "dim": (1,), "unbiased": False},),
}  # fmt: skip
"""More calls by kernel."""
