"""Operators of `quantized_decomposed` that ExecuTorch runtimes have kernels for, and that torch does not define.

torch registers quantize, dequantize and the choice of parameters as functional operators only. Their out variants, and
embeddings, sums and products of quantized tensors, are registered by a library of the runtime. Programs are lowered
with the schemas that stand here, whether that library is loaded or not, and in whatever order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch.fx import Node

from .catalogue import has_trait
from .handles import DefinedOperator, define_operator, define_out_variant, underlying

_LIBRARY = "quantized_decomposed"
_RANGE = "int quant_min, int quant_max"

_OF_TORCH = {
    "quantize_per_tensor": (
        f"quantize_per_tensor.out(Tensor input, float scale, int zero_point, {_RANGE}, ScalarType dtype, *"
    ),
    "quantize_per_tensor.tensor": (
        f"quantize_per_tensor.Tensor_out(Tensor input, Tensor scale, Tensor zero_point, {_RANGE}, ScalarType dtype, *"
    ),
    "quantize_per_channel": (
        f"quantize_per_channel.out(Tensor input, Tensor scales, Tensor zero_points, int axis, {_RANGE}, "
        "ScalarType dtype, *"
    ),
    "quantize_per_token": (
        f"quantize_per_token.out(Tensor input, Tensor scales, Tensor zero_points, {_RANGE}, ScalarType dtype, *"
    ),
    "dequantize_per_tensor": (
        f"dequantize_per_tensor.out(Tensor input, float scale, int zero_point, {_RANGE}, ScalarType dtype, *, "
        "ScalarType? out_dtype=None"
    ),
    "dequantize_per_tensor.tensor": (
        f"dequantize_per_tensor.Tensor_out(Tensor input, Tensor scale, Tensor zero_point, {_RANGE}, "
        "ScalarType dtype, *, ScalarType? out_dtype=None"
    ),
    "dequantize_per_channel": (
        f"dequantize_per_channel.out(Tensor input, Tensor scales, Tensor? zero_points, int axis, {_RANGE}, "
        "ScalarType dtype, *, ScalarType? out_dtype=None"
    ),
    "dequantize_per_token": (
        f"dequantize_per_token.out(Tensor input, Tensor scales, Tensor zero_points, {_RANGE}, ScalarType dtype, "
        "ScalarType output_dtype, *"
    ),
}
"""Out variants with one result, without their last argument, by operators that torch defines."""

_PARAMETERS_OF_TORCH = {
    "choose_qparams.tensor": (f"choose_qparams.Tensor_out(Tensor input, {_RANGE}, float eps, ScalarType dtype, *"),
    "choose_qparams_per_token_asymmetric": (
        "choose_qparams_per_token_asymmetric.out(Tensor input, ScalarType dtype, *"
    ),
    # What torch makes of the former when it decomposes a program.
    "_choose_qparams_per_token_asymmetric_impl": (
        "choose_qparams_per_token_asymmetric.out(Tensor input, ScalarType dtype, *"
    ),
}
"""Out variants that give scales and zero points."""

QUANTIZED_SCHEMAS: dict[str, str] = {}
"""Schemas of operators that write their results into given tensors, by the names of those that return them."""


# A few wide numbers cost nothing, and conditions of rules ask for them.
_SMALL_NBYTES = 1024
_NARROW = frozenset({torch.int8, torch.uint8, torch.int16, torch.uint16})


@cache
def quantization_kind(target: Any) -> str:
    """Return `quantize` or `dequantize` for an operator of `quantized_decomposed` that does so, else nothing."""
    schema = getattr(underlying(target), "_schema", None)
    library, _, name = ("", "", "") if schema is None else schema.name.partition("::")
    return str(name).partition("_")[0] if library == _LIBRARY and "quantize_per_" in name else ""


@cache
def _widening(target: Any) -> str:
    return "cast" if has_trait(target, "cast") else quantization_kind(target)


@cache
def is_quantization(target: Any) -> bool:
    """Return whether a graph target is an operator that quantizes, dequantizes, or computes with quantized tensors."""
    schema = getattr(underlying(target), "_schema", None)
    return schema is not None and schema.name.partition("::")[0] in (_LIBRARY, "torchao")


def widens(node: Node) -> bool:
    """Return whether a call makes wide numbers of narrow integers: it dequantizes, or casts 16 bits or fewer.

    A program that stores such a result loses what quantized weights are for. Results of a few numbers do not count.
    """
    kind = _widening(node.target)
    made = node.meta.get("val") if kind in ("cast", "dequantize") else None
    if not isinstance(made, torch.Tensor) or _is_small(made):
        return False
    source = node.args[0].meta.get("val") if node.args and isinstance(node.args[0], Node) else None
    if kind == "dequantize" or not isinstance(source, torch.Tensor):
        return kind == "dequantize"
    return source.dtype in _NARROW and made.dtype.itemsize > source.dtype.itemsize


def _is_small(value: torch.Tensor) -> bool:
    sizes = list(value.shape)
    return all(type(size) is int for size in sizes) and math.prod(sizes) * value.dtype.itemsize <= _SMALL_NBYTES


def _give_out(name: str, out_schema: str) -> None:
    define_out_variant(f"{_LIBRARY}::{name}", out_schema)
    QUANTIZED_SCHEMAS[f"{_LIBRARY}::{name}"] = out_schema


for _name, _schema in _OF_TORCH.items():
    _give_out(_name, f"{_LIBRARY}::{_schema}, Tensor(a!) out) -> Tensor(a!)")
for _name, _schema in _PARAMETERS_OF_TORCH.items():
    _results = "Tensor(a!) scale_out, Tensor(b!) zero_point_out) -> (Tensor(a!), Tensor(b!))"
    _give_out(_name, f"{_LIBRARY}::{_schema}, {_results}")


def _define(
    name: str, arguments: str, meaning: Callable[..., torch.Tensor], *, more: str = "", overload: str = ""
) -> None:
    """Define an operator and its out variant.

    Args:
        name: Without library and overload.
        arguments: By position.
        meaning: Computes it.
        more: Arguments by name.
        overload: Of the functional operator.
    """
    full = f"{_LIBRARY}::{name}"
    dot, out = (f".{overload}", f"{overload}_out") if overload else ("", "out")
    named = f", *, {more}" if more else ""
    out_schema = f"{full}.{out}({arguments}{named or ', *'}, Tensor(a!) out) -> Tensor(a!)"
    define_operator(DefinedOperator(f"{full}{dot}({arguments}{named}) -> Tensor", meaning, out_schema=out_schema))
    # Someone else may have registered it with torch.
    _give_out(f"{name}{dot}", out_schema)


def _embedding(
    bits: int,
    weight: torch.Tensor,
    weight_scales: torch.Tensor,
    weight_zero_points: torch.Tensor | None,
    weight_quant_min: int,
    weight_quant_max: int,
    indices: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return dequantized rows of a table of quantized embeddings.

    Args:
        bits: Of a number in the table: 2, 4 or 8; several are packed into a byte.
        weight: The table, one row for each embedding: int8, or uint8 where bytes are packed.
        weight_scales: One for each row, or one for each group of columns of each row.
        weight_zero_points: The same; zeros if absent.
        weight_quant_min: Smallest number; it follows from `bits`.
        weight_quant_max: Largest number; it follows from `bits`.
        indices: Which rows.
        dtype: Of the result; that of the scales if absent.
    """
    del weight_quant_min, weight_quant_max
    chosen = unpacked(bits, torch.nn.functional.embedding(indices, weight))
    scales = weight_scales if weight_scales.dim() == 2 else weight_scales.unsqueeze(1)
    grouped = chosen.unflatten(-1, (scales.shape[1], -1)).to(scales.dtype)
    if weight_zero_points is not None:
        zeros = weight_zero_points.reshape(scales.shape)
        grouped = grouped - torch.nn.functional.embedding(indices, zeros).unsqueeze(-1)
    made: torch.Tensor = grouped * torch.nn.functional.embedding(indices, scales).unsqueeze(-1)
    return made.flatten(-2).to(dtype or scales.dtype)


def unpacked(bits: int, packed: torch.Tensor) -> torch.Tensor:
    """Return the numbers that bytes of a table of embeddings hold, with signs.

    Four bits: the even column in the upper half, plus 8. Two bits: the first column in the lowest bits, plus 2.

    Args:
        bits: Of a number; 8 for a table that is not packed.
        packed: uint8, `[..., columns * bits / 8]`.

    Returns:
        `[..., columns]`, int16, or `packed` itself.
    """
    if bits == 8:
        return packed
    shifts = (4, 0) if bits == 4 else (0, 2, 4, 6)
    parts = [(packed.to(torch.int16) >> shift) & (2**bits - 1) for shift in shifts]
    unsigned: torch.Tensor = torch.stack(parts, -1).flatten(-2)
    return unsigned.sub(2 ** (bits - 1))


_ROWS = "Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, "
for _name, _bits in (("embedding_byte", 8), ("embedding_4bit", 4), ("embedding_2bit", 2)):
    for _overload, _more in (("", ""), ("dtype", "ScalarType? dtype=None")):
        _define(_name, f"{_ROWS}Tensor indices", partial(_embedding, _bits), more=_more, overload=_overload)


def _add(
    a: torch.Tensor, a_scale: float, a_zero_point: int, a_quant_min: int, a_quant_max: int,
    b: torch.Tensor, b_scale: float, b_zero_point: int, b_quant_min: int, b_quant_max: int,
    out_scale: float, out_zero_point: int, out_quant_min: int, out_quant_max: int,
) -> torch.Tensor:  # fmt: skip
    """Return the quantized sum of two quantized tensors."""
    del a_quant_min, a_quant_max, b_quant_min, b_quant_max
    left = (a.to(torch.int32) - a_zero_point).to(torch.float32) * a_scale
    right = (b.to(torch.int32) - b_zero_point).to(torch.float32) * b_scale
    rounded = torch.round((left + right) * (1.0 / out_scale)) + out_zero_point
    return rounded.clamp(out_quant_min, out_quant_max).to(a.dtype)


_TERM = "Tensor {0}, float {0}_scale, int {0}_zero_point, int {0}_quant_min, int {0}_quant_max, "
_define(
    "add",
    _TERM.format("a") + _TERM.format("b") + "float out_scale, int out_zero_point, int out_quant_min, int out_quant_max",
    _add,
)


def _mixed_mm(
    input: torch.Tensor, weight: torch.Tensor, weight_scales: torch.Tensor, weight_zero_points: torch.Tensor | None
) -> torch.Tensor:
    """Return the product of `[M, K]` and int8 `[K, N]`, whose rows have scales."""
    shifted = weight if weight_zero_points is None else weight - weight_zero_points.unsqueeze(1)
    return input @ (shifted.to(input.dtype) * weight_scales.unsqueeze(1).to(input.dtype))


_define("mixed_mm", "Tensor input, Tensor weight, Tensor weight_scales, Tensor? weight_zero_points", _mixed_mm)


def _mixed_linear(
    input: torch.Tensor,
    weight: torch.Tensor,
    weight_scales: torch.Tensor,
    weight_zero_points: torch.Tensor | None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Return the product of `[M, K]` and the transpose of int8 `[N, K]`, which has a scale for each row or group."""
    scales = weight_scales if weight_scales.dim() == 2 else weight_scales.unsqueeze(1)
    grouped = weight.unflatten(1, (scales.shape[1], -1)).to(input.dtype)
    if weight_zero_points is not None:
        grouped = grouped - weight_zero_points.reshape(scales.shape).unsqueeze(-1).to(input.dtype)
    wide = (grouped * scales.unsqueeze(-1).to(input.dtype)).flatten(1)
    return torch.nn.functional.linear(input, wide).to(dtype or input.dtype)


_define(
    "mixed_linear",
    "Tensor input, Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, ScalarType? dtype=None",
    _mixed_linear,
)
