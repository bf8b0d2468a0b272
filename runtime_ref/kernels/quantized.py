"""Kernels of quantized programs, bit for bit as the official runtime computes them.

torch's operators of the same names differ: in the reciprocal of the scale, at infinities and NaN, in the limits of
chosen parameters. Where the official kernel ends its process, the step fails with EK657.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

import torch

from exirkit.ir import parse_schema
from exirkit.runtime_ref.interpreter.values import StepFailure

from .kernel import Kernel, make_kernel
from .own import write_result

_REAL: Final = (torch.float32, torch.float16, torch.float64)
_ZERO_POINTS: Final = (torch.int32, torch.int64)
_NUMBERS: Final = (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32)
_LEAST_INT64: Final = -(2**63)
# As float32; larger numbers have no int64.
_END_OF_INT64: Final = 2.0**63
# 6.1e-5 as float32.
_SMALL_SCALE: Final = 6.09999988228082657e-05


def quantized_kernels() -> Iterator[Kernel]:
    """Yield the kernels of `quantized_decomposed` that the official runtime has."""
    for schema, call in _KERNELS.items():
        kernel = make_kernel(parse_schema(f"quantized_decomposed::{schema}"), call)
        assert kernel is not None, f"schema {schema} has a type without a slot"
        yield kernel


def _require(holds: bool, what: str, expected: str) -> None:
    if not holds:
        raise StepFailure(
            "EK657", f"the kernel of the official runtime ends its process here: {what}", expected=expected
        )


def _require_dtype(tensor: torch.Tensor, allowed: tuple[torch.dtype, ...], name: str) -> None:
    expected = " or ".join(str(one).removeprefix("torch.") for one in allowed)
    _require(tensor.dtype in allowed, f"{name} is {str(tensor.dtype).removeprefix('torch.')}", expected)


def _check_result(out: torch.Tensor, dtype: torch.dtype | None) -> None:
    if dtype is not None and out.dtype != dtype:
        raise StepFailure("EK653", f"the kernel gives {dtype}, its out argument is {out.dtype}")


# Quantize


def _quantize(
    values: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, low: int, high: int, out: torch.Tensor
) -> torch.Tensor:
    """Quantize; scale and zero point broadcast against the values.

    The reciprocal, the product and the sum are rounded to float32; ties go to even numbers. What has no int64 becomes
    the least one, NaN included.
    """
    _require_dtype(values, _REAL, "the input")
    _require_dtype(out, _NUMBERS, "the result")
    limits = torch.iinfo(out.dtype)
    _require(
        limits.min <= low and high <= limits.max,
        f"{low} to {high} are not numbers of {str(out.dtype).removeprefix('torch.')}",
        f"{limits.min} to {limits.max} or less",
    )
    inverse = torch.ones((), dtype=torch.float32) / scale.to(torch.float32)
    rounded = torch.round(inverse * values.to(torch.float32)) + zero_point.to(torch.float32)
    fits = (rounded >= -_END_OF_INT64) & (rounded < _END_OF_INT64)
    whole = torch.where(fits, rounded, 0.0).to(torch.int64)
    return write_result(torch.where(fits, whole, _LEAST_INT64).clamp(low, high).to(out.dtype), out)


def _one(number: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(number, dtype=dtype)


def _quantize_per_tensor(
    values: torch.Tensor, scale: float, zero_point: int, low: int, high: int, dtype: torch.dtype, *, out: torch.Tensor
) -> torch.Tensor:
    _check_result(out, dtype)
    return _quantize(values, _one(scale, torch.float64), _one(zero_point, torch.int64), low, high, out)


def _quantize_with_tensors(
    values: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    _check_result(out, dtype)
    if scale.dtype != torch.float64:
        raise StepFailure("EK650", f"the scale is {scale.dtype}", expected="float64")
    _require_dtype(zero_point, (torch.int64,), "the zero point")
    _require_one(scale, zero_point)
    return _quantize(values, scale.reshape(()), zero_point.reshape(()), low, high, out)


def _require_one(scale: torch.Tensor, zero_point: torch.Tensor) -> None:
    for name, tensor in (("scale", scale), ("zero point", zero_point)):
        _require(tensor.numel() == 1, f"the {name} has {tensor.numel()} elements", "one")


def _along(parameters: torch.Tensor, values: torch.Tensor, axis: int) -> torch.Tensor:
    """Return parameters of the channels of an axis so that they broadcast."""
    sizes = [1] * values.dim()
    sizes[axis] = values.shape[axis]
    return parameters.reshape(sizes)


def _check_channels(values: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor | None, axis: int) -> None:
    _require(-values.dim() <= axis < values.dim(), f"there is no axis {axis}", f"less than {values.dim()}")
    channels = values.shape[axis]
    for name, tensor in (("scales", scales), ("zero points", zero_points)):
        if tensor is not None:
            _require(tensor.numel() == channels, f"there are {tensor.numel()} {name}", f"{channels}, one a channel")


def _quantize_per_channel(
    values: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    _check_result(out, dtype)
    _require_dtype(scales, (torch.float64,), "the tensor of scales")
    _require_dtype(zero_points, (torch.int64,), "the tensor of zero points")
    _check_channels(values, scales, zero_points, axis)
    return _quantize(values, _along(scales, values, axis), _along(zero_points, values, axis), low, high, out)


def _check_tokens(values: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor) -> tuple[int, ...]:
    tokens = math.prod(values.shape[:-1])
    for name, tensor in (("scales", scales), ("zero points", zero_points)):
        _require(tensor.numel() == tokens, f"there are {tensor.numel()} {name}", f"{tokens}, one a row")
    return (*values.shape[:-1], 1)


def _quantize_per_token(
    values: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    _check_result(out, dtype)
    _require_dtype(scales, (torch.float64,), "the tensor of scales")
    _require_dtype(zero_points, (torch.int64,), "the tensor of zero points")
    rows = _check_tokens(values, scales, zero_points)
    return _quantize(values, scales.reshape(rows), zero_points.reshape(rows), low, high, out)


# Dequantize


def _dequantize(
    numbers: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, out: torch.Tensor
) -> torch.Tensor:
    """Dequantize: the difference wraps around in int32, the product is rounded to float32."""
    _require_dtype(numbers, _NUMBERS, "the input")
    _require_dtype(out, _REAL, "the result")
    difference = numbers.to(torch.int32) - zero_point.to(torch.int32)
    return write_result((difference.to(torch.float32) * scale.to(torch.float32)).to(out.dtype), out)


def _dequantize_per_tensor(
    numbers: torch.Tensor,
    scale: float,
    zero_point: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
    out: torch.Tensor,
) -> torch.Tensor:
    _check_result(out, out_dtype)
    return _dequantize(numbers, _one(scale, torch.float64), _one(zero_point, torch.int64), out)


def _dequantize_with_tensors(
    numbers: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
    out: torch.Tensor,
) -> torch.Tensor:
    _check_result(out, out_dtype)
    _require_dtype(scale, (torch.float64,), "the scale")
    _require_dtype(zero_point, (torch.int64,), "the zero point")
    _require_one(scale, zero_point)
    return _dequantize(numbers, scale.reshape(()), zero_point.reshape(()), out)


def _check_within(numbers: torch.Tensor, zeros: torch.Tensor, low: int, high: int) -> None:
    if numbers.dtype == torch.int8:
        within = bool(((zeros >= low) & (zeros <= high)).all())
        _require(within, "a zero point lies outside of the limits", f"{low} to {high}")


def _dequantize_per_channel(
    numbers: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor | None,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
    out: torch.Tensor,
) -> torch.Tensor:
    _check_result(out, out_dtype)
    _require_dtype(scales, (torch.float32, torch.float64), "the tensor of scales")
    if zero_points is not None:
        _require_dtype(zero_points, _ZERO_POINTS, "the tensor of zero points")
    _check_channels(numbers, scales, zero_points, axis)
    zeros = torch.zeros(scales.shape, dtype=torch.int64) if zero_points is None else zero_points
    _check_within(numbers, zeros, low, high)
    return _dequantize(numbers, _along(scales, numbers, axis), _along(zeros, numbers, axis), out)


def _dequantize_per_token(
    numbers: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor,
    low: int,
    high: int,
    dtype: torch.dtype,
    output_dtype: torch.dtype,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    _check_result(out, output_dtype)
    _require_dtype(scales, (torch.float32, torch.float64), "the tensor of scales")
    _require_dtype(zero_points, _ZERO_POINTS, "the tensor of zero points")
    rows = _check_tokens(numbers, scales, zero_points)
    # The kernel for tokens calls that for channels.
    _check_within(numbers, zero_points, low, high)
    return _dequantize(numbers, scales.reshape(rows), zero_points.reshape(rows), out)


# Choice of parameters


def chosen_parameters(least: float, largest: float, low: int, high: int) -> tuple[float, int]:
    """Return scale and zero point for values of a range, which is widened to contain zero.

    Args:
        least: Smallest value.
        largest: Largest value.
        low: Smallest number.
        high: Largest number.
    """
    least, largest = min(least, 0.0), max(largest, 0.0)
    scale = (largest - least) / (high - low)
    # The kernel divides in float32: of a scale below 2.9e-39 there is no finite reciprocal.
    if _single(scale) == 0.0 or math.isinf(_single(1.0 / _single(scale))):
        scale = 0.1
    if scale < _SMALL_SCALE:
        if least == 0.0:
            largest = _single(_SMALL_SCALE * (high - low))
        elif largest == 0.0:
            least = _single(-_SMALL_SCALE * (high - low))
        else:
            factor = _single(_SMALL_SCALE / _single(scale))
            least, largest = _single(least * factor), _single(largest * factor)
        scale = _SMALL_SCALE
    return scale, _zero_point(least, largest, scale, low, high)


def _zero_point(least: float, largest: float, scale: float, low: int, high: int) -> int:
    below, above = least / scale, _quotient(largest, scale)
    from_least = abs(low) - abs(below) < abs(high) - abs(above)
    wanted = low - below if from_least else high - above
    if math.isnan(wanted):
        return -(2**31)
    return low if wanted < low else high if wanted > high else round(wanted)


def _quotient(value: float, scale: float) -> float:
    return math.nan if math.isinf(value) and math.isinf(scale) else value / scale


def _single(value: float) -> float:
    """Round to float32."""
    return ctypes.c_float(value).value


def _choose_qparams(
    values: torch.Tensor,
    low: int,
    high: int,
    eps: float,
    dtype: torch.dtype,
    *,
    scale_out: torch.Tensor,
    zero_point_out: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    _require_dtype(values, (torch.float32,), "the input")
    _require(values.numel() > 0, "the input has no elements", "one at least")
    found = _parameters_of(values.reshape(1, -1), low, high)
    return write_result(found[0].reshape(1), scale_out), write_result(found[1].reshape(1), zero_point_out)


def _choose_per_token(
    values: torch.Tensor, dtype: torch.dtype, *, scale_out: torch.Tensor, zero_point_out: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    _require_dtype(values, (torch.float32,), "the input")
    rows = values.reshape(-1, values.shape[-1])
    found = _parameters_of(rows, -128, 127)
    sizes = (*values.shape[:-1], 1)
    return write_result(found[0].reshape(sizes), scale_out), write_result(found[1].reshape(sizes), zero_point_out)


def _parameters_of(rows: torch.Tensor, low: int, high: int) -> tuple[torch.Tensor, torch.Tensor]:
    # Comparisons with NaN are false, so that it counts only where all others are compared with it.
    _require(not bool(rows[:, 0].isnan().any()), "the first value is NaN", "a number")
    known = rows.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf)
    ends = zip(known.amin(1).tolist(), known.amax(1).tolist(), strict=True)
    found = [chosen_parameters(least, largest, low, high) for least, largest in ends]
    scales = torch.tensor([scale for scale, _ in found], dtype=torch.float64)
    return scales, torch.tensor([zero for _, zero in found], dtype=torch.int64)


# Embeddings, sums and products


def _embedding(
    bits: int,
    weight: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor | None,
    low: int,
    high: int,
    indices: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    out: torch.Tensor,
) -> torch.Tensor:
    _require_dtype(weight, (torch.int8, torch.uint8) if bits == 8 else (torch.uint8,), "the table")
    _require_dtype(indices, (torch.int64,) if bits == 8 else (torch.int32, torch.int64), "the tensor of indices")
    _require_dtype(scales, (torch.float32, torch.float16), "the tensor of scales")
    if zero_points is not None:
        # It compares the zero points with the result, and reads them as what the scales are.
        _require_dtype(zero_points, (out.dtype,), "the tensor of zero points")
        _require_dtype(scales, (out.dtype,), "the tensor of scales")
    if bits < 8:
        ends = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        _require((low, high) == ends, f"the limits are {low} and {high}", f"{ends[0]} and {ends[1]}")
    for name, tensor in (("scales", scales), ("zero points", zero_points)):
        if tensor is not None:
            _require(
                tensor.shape[0] == weight.shape[0], f"there are {name} for {tensor.shape[0]} rows", str(weight.shape[0])
            )
    rows = indices.to(torch.int64)
    inside = bool(((rows >= 0) & (rows < weight.shape[0])).all())
    _require(inside, "an index is outside of the table", f"0 to {weight.shape[0] - 1}")
    groups = scales.shape[1] if scales.dim() == 2 else 1
    numbers = _unpacked(bits, weight)[rows].unflatten(-1, (groups, -1)).to(torch.float32)
    if zero_points is not None:
        numbers = numbers - zero_points.reshape(-1, groups)[rows].unsqueeze(-1).to(torch.float32)
    wide = numbers * scales.reshape(-1, groups)[rows].unsqueeze(-1).to(torch.float32)
    return write_result(wide.flatten(-2).to(out.dtype), out)


def _unpacked(bits: int, table: torch.Tensor) -> torch.Tensor:
    """Return the numbers of a table: two of four bits in a byte, the first above; or four of two, the first lowest."""
    if bits == 8:
        return table
    places = (4, 0) if bits == 4 else (0, 2, 4, 6)
    wide = table.to(torch.int32)
    return torch.stack([((wide >> place) & (2**bits - 1)) - 2 ** (bits - 1) for place in places], -1).flatten(-2)


def _add(
    a: torch.Tensor, a_scale: float, a_zero_point: int, a_quant_min: int, a_quant_max: int,
    b: torch.Tensor, b_scale: float, b_zero_point: int, b_quant_min: int, b_quant_max: int,
    out_scale: float, out_zero_point: int, out_quant_min: int, out_quant_max: int,
    *, out: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    _require(a.shape == b.shape, f"the operands have the shapes {list(a.shape)} and {list(b.shape)}", "equal shapes")
    for low, high in ((a_quant_min, a_quant_max), (b_quant_min, b_quant_max), (out_quant_min, out_quant_max)):
        _require(low >= 0 and high <= 255, f"{low} to {high} are limits", "0 to 255 or less")
    wide = [
        _dequantize(numbers, _one(scale, torch.float64), _one(zero, torch.int64), torch.empty(0))
        for numbers, scale, zero in ((a, a_scale, a_zero_point), (b, b_scale, b_zero_point))
    ]
    zero_point = _one(out_zero_point, torch.int64)
    return _quantize(wide[0] + wide[1], _one(out_scale, torch.float64), zero_point, out_quant_min, out_quant_max, out)


def _mixed_linear(
    values: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor | None,
    dtype: torch.dtype | None = None,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    """Multiply; the sum of a group of columns is formed in the order of memory, and then scaled."""
    _check_product(values, weight, zero_points)
    groups = scales.reshape(scales.shape[0], -1)
    width = -(-weight.shape[1] // groups.shape[1])
    made = torch.zeros(values.shape[0], weight.shape[0], dtype=out.dtype)
    for group in range(groups.shape[1]):
        part = slice(group * width, (group + 1) * width)
        factors = zip(values[:, part].T, weight[:, part].to(values.dtype).T, strict=True)
        sums = _summed((left.unsqueeze(1) * right for left, right in factors), made)
        made = made + sums * groups[:, group]
    return write_result(made, out)


def _check_product(values: torch.Tensor, weight: torch.Tensor, zero_points: torch.Tensor | None) -> None:
    _require_dtype(values, (torch.float32, torch.float16), "the input")
    _require_dtype(weight, (torch.int8,), "the weight")
    _require(zero_points is None, "there are zero points", "none")
    _require(values.dim() == 2 == weight.dim(), f"the ranks are {values.dim()} and {weight.dim()}", "two")


def _summed(products: Iterable[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """Sum up one by one, in the dtype of `like`."""
    made = torch.zeros_like(like)
    for product in products:
        made = made + product.to(made.dtype)
    return made


def _mixed_mm(
    values: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor | None,
    *,
    out: torch.Tensor,
) -> torch.Tensor:
    """Multiply; each row of the weight has a scale, and the sums run over rows."""
    _check_product(values, weight, zero_points)
    factors = zip(values.T, weight.to(values.dtype), scales, strict=True)
    made = torch.empty(values.shape[0], weight.shape[1], dtype=out.dtype)
    return write_result(_summed((left.unsqueeze(1) * right * scale for left, right, scale in factors), made), out)


_RANGE: Final = "int quant_min, int quant_max"
_OUT: Final = "Tensor(a!) out) -> Tensor(a!)"
_BOTH: Final = "Tensor(a!) scale_out, Tensor(b!) zero_point_out) -> (Tensor(a!), Tensor(b!))"
_TABLE: Final = (
    "Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, "
    "Tensor indices, *"
)
_PRODUCT: Final = "Tensor input, Tensor weight, Tensor weight_scales, Tensor? weight_zero_points"
_TERM: Final = "Tensor {0}, float {0}_scale, int {0}_zero_point, int {0}_quant_min, int {0}_quant_max"
_TABLES: Final[Mapping[str, Callable[..., Any]]] = {
    f"{name}.{overload}out({_TABLE}, {more}{_OUT}": partial(_embedding, bits)
    for name, bits in (("embedding_byte", 8), ("embedding_4bit", 4), ("embedding_2bit", 2))
    for overload, more in (("", ""), ("dtype_", "ScalarType? dtype=None, "))
}
_KERNELS: Final[Mapping[str, Callable[..., Any]]] = {
    f"quantize_per_tensor.out(Tensor input, float scale, int zero_point, {_RANGE}, ScalarType dtype, *, {_OUT}": (
        _quantize_per_tensor
    ),
    f"quantize_per_tensor.Tensor_out(Tensor input, Tensor scale, Tensor zero_point, {_RANGE}, ScalarType dtype, *, "
    f"{_OUT}": _quantize_with_tensors,
    f"quantize_per_channel.out(Tensor input, Tensor scales, Tensor zero_points, int axis, {_RANGE}, ScalarType dtype, "
    f"*, {_OUT}": _quantize_per_channel,
    f"quantize_per_token.out(Tensor input, Tensor scales, Tensor zero_points, {_RANGE}, ScalarType dtype, *, {_OUT}": (
        _quantize_per_token
    ),
    f"dequantize_per_tensor.out(Tensor input, float scale, int zero_point, {_RANGE}, ScalarType dtype, *, "
    f"ScalarType? out_dtype=None, {_OUT}": _dequantize_per_tensor,
    f"dequantize_per_tensor.Tensor_out(Tensor input, Tensor scale, Tensor zero_point, {_RANGE}, ScalarType dtype, *, "
    f"ScalarType? out_dtype=None, {_OUT}": _dequantize_with_tensors,
    f"dequantize_per_channel.out(Tensor input, Tensor scales, Tensor? zero_points, int axis, {_RANGE}, "
    f"ScalarType dtype, *, ScalarType? out_dtype=None, {_OUT}": _dequantize_per_channel,
    f"dequantize_per_token.out(Tensor input, Tensor scales, Tensor zero_points, {_RANGE}, ScalarType dtype, "
    f"ScalarType output_dtype, *, {_OUT}": _dequantize_per_token,
    f"choose_qparams.Tensor_out(Tensor input, {_RANGE}, float eps, ScalarType dtype, *, {_BOTH}": _choose_qparams,
    f"choose_qparams_per_token_asymmetric.out(Tensor input, ScalarType dtype, *, {_BOTH}": _choose_per_token,
    f"add.out({', '.join(map(_TERM.format, ('a', 'b')))}, float out_scale, int out_zero_point, int out_quant_min, "
    f"int out_quant_max, *, {_OUT}": _add,
    f"mixed_linear.out({_PRODUCT}, ScalarType? dtype=None, *, {_OUT}": _mixed_linear,
    f"mixed_mm.out({_PRODUCT}, *, {_OUT}": _mixed_mm,
    **_TABLES,
}
