"""What operators of `quantized_decomposed` that no runtime has a kernel for are in terms of ATen operators.

They compute what torch computes, bit for bit. The operators stay whole in Edge programs, where passes and partitioners
look for them, and are decomposed by `decompose-library-operators`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor


def dequantize_groups(
    q: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int = 128,
    output_dtype: torch.dtype = torch.float32,
) -> Any:
    """`dequantize_per_channel_group`: the numbers of integers with a scale for each group of columns of a row.

    Args:
        q: Integers, `[rows, columns]`.
        scales: `[rows, groups]`.
        zero_points: The same; zeros if absent.
        quant_min: Not used.
        quant_max: Not used.
        dtype: Of `q`.
        group_size: Columns of a group.
        output_dtype: Of the result.
    """
    del quant_min, quant_max, dtype
    width = _group_width(q, scales, group_size)
    if width is None:
        return NotImplemented
    grouped = q.reshape(-1, width)
    if zero_points is not None:
        grouped = grouped.sub(zero_points.reshape(-1, 1))
    return grouped.mul(scales.reshape(-1, 1)).reshape(q.shape).to(output_dtype)


def quantize_groups(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int = 128,
) -> Any:
    """`quantize_per_channel_group`: integers with a scale for each group of columns of a row."""
    width = _group_width(x, scales, group_size)
    if width is None:
        return NotImplemented
    scaled = x.reshape(-1, width).mul(1.0 / scales.reshape(-1, 1)).add(zero_points.reshape(-1, 1))
    return scaled.round().clamp(quant_min, quant_max).to(dtype).reshape(x.shape)


def _group_width(x: Tensor, scales: Tensor, group_size: int) -> int | None:
    """Return how many columns a group has; None where torch rejects the call."""
    columns = x.shape[-1]
    if group_size > columns and scales.shape[-1] == 1:
        group_size = columns
    return group_size if x.dim() == 2 and group_size > 1 and columns % group_size == 0 else None


def symmetric_parameters(
    x: Tensor, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """`choose_qparams_symmetric.tensor`: the scale of a tensor whose range lies evenly around zero."""
    least, greatest = x.amin(), x.amax()
    zero = torch.zeros_like(least)
    reach = torch.maximum(-torch.minimum(least, zero), torch.maximum(greatest, zero))
    # As torch has it, `eps` is float32, and a narrower input does not narrow it.
    limit = torch.full_like(reach, eps, dtype=torch.float32)
    scale = torch.maximum((reach / ((quant_max - quant_min) / 2)).to(torch.float32), limit)
    zero_point = 128 if dtype is torch.uint8 else 0
    made = scale.reshape(1).to(torch.float64)
    return made, torch.full_like(made, zero_point, dtype=torch.int64)


def parameters_by_token(x: Tensor, dtype: torch.dtype) -> Any:
    """`choose_qparams_per_token`: a scale for each row, without zero points.

    The dtypes are those that programs are traced with; torch's function itself returns float32.
    """
    if dtype is not torch.int8:
        return NotImplemented
    scales = x.abs().amax(dim=-1, keepdim=True)
    if scales.dtype is torch.float16:
        scales = scales.float()
    scales = scales.clamp(min=1e-5).div(127).to(torch.float64)
    return scales, torch.zeros_like(scales, dtype=torch.int64)


def quantize_within(
    x: Tensor, scale: Tensor, zero_point: Tensor, quant_min: Tensor, quant_max: Tensor, dtype: torch.dtype
) -> Tensor:
    """`quantize_per_tensor.tensor2`: with limits that are tensors."""
    inverse = (1.0 / scale.to(torch.float64)).to(torch.float32).reshape(())
    rounded = torch.round(x.to(torch.float32) * inverse) + zero_point.reshape(())
    limited = torch.minimum(torch.maximum(rounded, quant_min.reshape(())), quant_max.reshape(()))
    return limited.to(dtype)


def dequantize_within(
    q: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    quant_min: Tensor,
    quant_max: Tensor,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """`dequantize_per_tensor.tensor2`: with limits that are tensors, and not used."""
    del quant_min, quant_max, dtype
    wanted = out_dtype or torch.float32
    return (q.to(wanted) - zero_point.reshape(()).to(wanted)) * scale.reshape(()).to(wanted)


def fake_quantize_by_channel(
    x: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int
) -> Tensor:
    """`fake_quant_per_channel`: quantized and dequantized, in floats."""
    sizes = [1] * x.dim()
    sizes[axis] = -1
    scale, zero = (one.reshape(sizes).to(torch.float32) for one in (scales, zero_points.to(torch.int32)))
    rounded = torch.round(x * (1.0 / scale)) + zero
    return (torch.clamp(rounded, quant_min, quant_max) - zero) * scale


QUANTIZED_DECOMPOSITIONS: Mapping[str, Callable[..., Any]] = {
    "quantized_decomposed::choose_qparams_per_token": parameters_by_token,
    "quantized_decomposed::choose_qparams_symmetric.tensor": symmetric_parameters,
    "quantized_decomposed::dequantize_per_channel_group": dequantize_groups,
    "quantized_decomposed::dequantize_per_tensor.tensor2": dequantize_within,
    "quantized_decomposed::fake_quant_per_channel": fake_quantize_by_channel,
    "quantized_decomposed::quantize_per_channel_group": quantize_groups,
    "quantized_decomposed::quantize_per_tensor.tensor2": quantize_within,
}
"""Decompositions by the names of operators."""
