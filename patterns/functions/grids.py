"""Grids: with which parameters the elements of a float tensor can be quantised without a loss; the words about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from exirkit.patterns.functions.words import WORDS, Word, dtype_of


@dataclass(frozen=True, slots=True)
class Grid:
    """All elements are `(k - zero_point) * scale` for integers `k` from `quant_min` to `quant_max`.

    Attributes:
        scale: Distance of neighbours, above 0.
        zero_point: Integer that stands for 0.
        quant_min: Least integer.
        quant_max: Greatest integer.
        ints: Dtype of the integers.
    """

    scale: float
    zero_point: int
    quant_min: int
    quant_max: int
    ints: torch.dtype

    def text(self) -> str:
        """Return it as accounts show it: `int8 -128..127, scale 0.25, zero 3`."""
        ints = str(self.ints).removeprefix("torch.")
        return f"{ints} {self.quant_min}..{self.quant_max}, scale {self.scale:g}, zero {self.zero_point}"


def _made(scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: Any) -> Grid:
    numbers = (zero_point, quant_min, quant_max)
    if not isinstance(scale, int | float) or not scale > 0 or not all(type(one) is int for one in numbers):
        raise TypeError("a grid has a scale above 0 and integers")
    ints = torch.iinfo(dtype_of(dtype))
    if not ints.min <= quant_min <= quant_max <= ints.max:
        raise TypeError(f"not all integers from {quant_min} to {quant_max} are numbers of {ints.dtype}")
    return Grid(float(scale), zero_point, quant_min, quant_max, dtype_of(dtype))


WORDS["grid"] = Word(
    "grid",
    _made,
    doc="Scale, zero point, limits and dtype as one value; of a tensor `x`, with which it is quantised without a loss.",
    of_tensor=lambda facts, x: facts.grid(x),
)


def quantised(tensor: torch.Tensor, grid: Grid) -> torch.Tensor:
    """Return the nearest integers of a grid."""
    numbers = torch.round(tensor * (1.0 / grid.scale)) + grid.zero_point
    return torch.clamp(numbers, grid.quant_min, grid.quant_max).to(grid.ints)


def dequantised(integers: torch.Tensor, grid: Grid, dtype: torch.dtype) -> torch.Tensor:
    """Return the numbers that integers of a grid stand for."""
    return ((integers.to(torch.int64) - grid.zero_point) * grid.scale).to(dtype)
