"""The handles of operators, with the operators that the official package defines beside its passes."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from exirkit.ir import DefinedOperator, define_operator, defined_operator, defined_operator_names
from exirkit.ir import ops as ops

# Libraries whose operators the backend dialect has: all that torch knows, whatever is appended here.
_BACKEND_OP_LIB: list[str] = []

_ARGUMENTS = (
    "(Tensor weight, Tensor weight_scales, Tensor? weight_zero_points, int weight_quant_min, int weight_quant_max, "
    "Tensor indices{}) -> Tensor{}"
)


def _rows(
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
    chosen = _unpacked(bits, torch.nn.functional.embedding(indices, weight))
    scales = weight_scales if weight_scales.dim() == 2 else weight_scales.unsqueeze(1)
    grouped = chosen.unflatten(-1, (scales.shape[1], -1)).to(scales.dtype)
    if weight_zero_points is not None:
        zeros = weight_zero_points.reshape(scales.shape)
        grouped = grouped - torch.nn.functional.embedding(indices, zeros).unsqueeze(-1)
    made: torch.Tensor = grouped * torch.nn.functional.embedding(indices, scales).unsqueeze(-1)
    return made.flatten(-2).to(dtype or scales.dtype)


def _unpacked(bits: int, packed: torch.Tensor) -> torch.Tensor:
    if bits == 8:
        return packed
    shifts = (4, 0) if bits == 4 else (0, 2, 4, 6)
    parts = [(packed.to(torch.int16) >> shift) & (2**bits - 1) for shift in shifts]
    unsigned: torch.Tensor = torch.stack(parts, -1).flatten(-2)
    return unsigned.sub(2 ** (bits - 1))


def _define(name: str, meaning: Any) -> None:
    for overload, more in (("", ""), (".dtype", ", *, ScalarType? dtype=None")):
        out = ".out" if not overload else ".dtype_out"
        keyword = (more or ", *") + ", Tensor(a!) out"
        define_operator(
            DefinedOperator(
                f"quantized_decomposed::{name}{overload}{_ARGUMENTS.format(more, '')}",
                meaning,
                out_schema=f"quantized_decomposed::{name}{out}{_ARGUMENTS.format(keyword, '(a!)')}",
            )
        )


for _name, _bits in (("embedding_byte", 8), ("embedding_4bit", 4), ("embedding_2bit", 2)):
    _define(_name, partial(_rows, _bits))


class _Packet:
    """The overloads of an operator of exirkit, as an attribute of `torch.ops.NAMESPACE`."""

    def __init__(self, name: str) -> None:
        self._qualified = name

    def __getattr__(self, overload: str) -> DefinedOperator:
        found = defined_operator(self._qualified if overload == "default" else f"{self._qualified}.{overload}")
        if found is None:
            raise AttributeError(overload)
        return found


class _Namespace(type(torch.ops.aten)):  # type: ignore[misc]
    """A namespace of `torch.ops` that has, besides what torch knows, the operators that exirkit defines itself.

    Code for the official package names some of them there, where that registers them. They are given out only as long
    as torch has no operator of the name, so both packages can be imported, in either order.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if not any(one.split(".")[0] == f"{self.name}::{name}" for one in defined_operator_names()):
                raise
            return _Packet(f"{self.name}::{name}")


for _namespace in sorted({one.partition("::")[0] for one in defined_operator_names()}):
    getattr(torch.ops, _namespace).__class__ = _Namespace
