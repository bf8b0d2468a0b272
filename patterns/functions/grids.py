"""Grids: with which parameters the elements of a float tensor can be quantised without a loss; the words about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from exirkit.patterns.functions.words import WORDS, Word, dtype_of, word

_MOST_CHANNELS = 1 << 14


@dataclass(frozen=True, slots=True)
class Grid:
    """All elements are `(k - zero_point) * scale` for integers `k` from `quant_min` to `quant_max`.

    Attributes:
        scale: Distance of neighbours, above 0; one for each channel if there is an axis.
        zero_point: Integer that stands for 0, likewise.
        quant_min: Least integer.
        quant_max: Greatest integer.
        ints: Dtype of the integers.
        axis: Dim of the channels, from 0; None if all elements have one scale.
    """

    scale: float | tuple[float, ...]
    zero_point: int | tuple[int, ...]
    quant_min: int
    quant_max: int
    ints: torch.dtype
    axis: int | None = None

    def text(self) -> str:
        """Return it as accounts show it: `int8 -128..127, scale 0.25, zero 3`."""
        ints = str(self.ints).removeprefix("torch.")
        numbers = f"scale {_shown(self.scale)}, zero {_shown(self.zero_point)}"
        along = "" if self.axis is None else f", along dim {self.axis}"
        return f"{ints} {self.quant_min}..{self.quant_max}, {numbers}{along}"

    def parameters(self, like: torch.Tensor) -> tuple[Any, Any]:
        """Return scale and zero point, so that they can be computed with beside a tensor on the grid."""
        if self.axis is None:
            return self.scale, self.zero_point
        sizes = [1] * like.dim()
        sizes[self.axis] = -1
        scales, zeros = self.tensors()
        return scales.view(sizes), zeros.view(sizes)

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return scales and zero points as operators take them that quantise per channel."""
        return torch.tensor(self.scale, dtype=torch.float32), torch.tensor(self.zero_point, dtype=torch.int64)

    def fits(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor has the channels of the grid."""
        if self.axis is None:
            return True
        return self.axis < tensor.dim() and tensor.shape[self.axis] == len(self.scale)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements of a stored tensor of one dim, such as the scales of channels.

    Attributes:
        numbers: The elements.
    """

    numbers: tuple[Any, ...]

    def text(self) -> str:
        """Return the first of them."""
        return f"stored, {_shown(self.numbers)}"


def _shown(numbers: Any) -> str:
    if not isinstance(numbers, tuple):
        return f"{numbers:g}"
    return f"[{', '.join(f'{one:g}' for one in numbers[:4])}{', ...' if len(numbers) > 4 else ''}]"


def elements_of(tensor: torch.Tensor) -> Elements | None:
    """Return the elements of a tensor of one dim; None of others."""
    if tensor.dim() != 1 or tensor.numel() > _MOST_CHANNELS or tensor.dtype.is_complex or tensor.is_quantized:
        return None
    return Elements(tuple(tensor.detach().tolist()))


def listed_elements(tensor: torch.Tensor | None) -> list[Any]:
    """Return the elements of a tensor that is known while the program is lowered.

    Raises:
        TypeError: It is not known, or has other dims than one.
    """
    found = None if tensor is None else elements_of(tensor)
    if found is None:
        raise TypeError(f"a stored tensor of one dim with up to {_MOST_CHANNELS:,} elements is needed here")
    return list(found.numbers)


def _made(scale: Any, zero_point: Any, quant_min: Any, quant_max: Any, dtype: Any, axis: Any = None) -> Grid:
    if axis is not None:
        scale, zero_point = tuple(map(_as_stored, scale)), tuple(zero_point)
        if type(axis) is not int or axis < 0 or not scale or len(scale) != len(zero_point):
            raise TypeError("a grid per channel has a dim from 0, and a scale and a zero point for each channel")
    scales: Sequence[Any] = scale if axis is not None else (scale,)
    numbers = (*(zero_point if axis is not None else (zero_point,)), quant_min, quant_max)
    is_scale = all(isinstance(one, int | float) and 0 < one < float("inf") for one in scales)
    if not is_scale or not all(type(one) is int for one in numbers):
        raise TypeError("a grid has a scale above 0 and integers")
    ints = torch.iinfo(dtype_of(dtype))
    if not ints.min <= quant_min <= quant_max <= ints.max:
        raise TypeError(f"not all integers from {quant_min} to {quant_max} are numbers of {ints.dtype}")
    return Grid(scale if axis is not None else float(scale), zero_point, quant_min, quant_max, dtype_of(dtype), axis)


def _as_stored(scale: Any) -> float:
    return float(torch.tensor(scale, dtype=torch.float32))


WORDS["grid"] = Word(
    "grid",
    _made,
    doc="Scale, zero point, limits, dtype, and for channels lists and their dim, as one value; of a tensor `x`, with "
    "which it is quantised without a loss.",
    of_tensor=lambda facts, x: facts.grid(x),
)


@word()
def on_axis(g: Any, axis: int) -> Grid:
    """A grid per channel, with another dim of the channels; one without channels as it is."""
    if not isinstance(g, Grid):
        raise TypeError("a grid is needed here")
    return g if g.axis is None else replace(g, axis=axis)


def _no_tensor(x: Any) -> list[Any]:
    raise TypeError("a stored tensor is needed here")


WORDS["elements"] = Word(
    "elements",
    _no_tensor,
    doc="The elements of a stored tensor of one dim, as a list.",
    of_tensor=lambda facts, x: facts.elements(x),
)


def quantised(tensor: torch.Tensor, grid: Grid) -> torch.Tensor:
    """Return the nearest integers of a grid."""
    scale, zero_point = grid.parameters(tensor)
    numbers = torch.round(tensor * (1.0 / scale)) + zero_point
    return torch.clamp(numbers, grid.quant_min, grid.quant_max).to(grid.ints)


def dequantised(integers: torch.Tensor, grid: Grid, dtype: torch.dtype) -> torch.Tensor:
    """Return the numbers that integers of a grid stand for."""
    scale, zero_point = grid.parameters(integers)
    made: torch.Tensor = ((integers.to(torch.int64) - zero_point) * scale).to(dtype)
    return made
