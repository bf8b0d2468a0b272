"""Making the tensors of a program; the same description makes the same bytes on every machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from exirkit.ir import Diagnostic, ModelError

from .model import Contents, Program, Run
from .sizes import size_value

_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_STEP = np.uint64(0x9E3779B97F4A7C15)


def make_tensor(contents: Contents, dtype: torch.dtype, sizes: Sequence[int]) -> torch.Tensor:
    """Make a tensor.

    The element at a place depends on the seed and the place alone, not on the layout; only in an `expanded` tensor all
    rows along the first dim are the first row.

    Args:
        contents: What is in it.
        dtype: Of the elements.
        sizes: Size of each dim.

    Raises:
        ModelError: EK805, the listed numbers are more or fewer than the elements, or the dtype does not take them.
    """
    shape = tuple(sizes)
    if contents.layout == "expanded" and len(shape) > 0 and shape[0] > 0 and contents.kind != "numbers":
        return _elements(contents, dtype, shape[1:]).unsqueeze(0).expand(shape)
    return _laid_out(_elements(contents, dtype, shape), contents.layout)


def inputs_of(program: Program, run: Run) -> tuple[torch.Tensor, ...]:
    """Make the inputs of a run, in the order in which its method takes them."""
    method = next(one for one in program.methods if one.name == run.method)
    return tuple(
        make_tensor(run.inputs[one.name], one.type.dtype, [size_value(dim, run.sizes) for dim in one.type.sizes])
        for one in method.inputs
    )


def stored_tensor(program: Program, name: str) -> torch.Tensor:
    """Make a parameter, buffer or constant as it is at the start."""
    stored = next(one for one in program.stored if one.name == name)
    return make_tensor(stored.contents, stored.type.dtype, [int(one) for one in stored.type.sizes])


def random_bits(seed: int, number: int) -> NDArray[np.uint64]:
    """Return 64 random bits for each place: SplitMix64 at the places' numbers, started from the seed."""
    state = np.arange(1, number + 1, dtype=np.uint64) * _STEP + np.array([seed], dtype=np.uint64) * _MIX[0]
    state = (state ^ (state >> np.uint64(30))) * _MIX[0]
    state = (state ^ (state >> np.uint64(27))) * _MIX[1]
    mixed: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return mixed


def _elements(contents: Contents, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    number = math.prod(shape)
    if contents.kind == "zeros":
        return torch.zeros(shape, dtype=dtype)
    if contents.kind == "numbers":
        return _listed(contents.numbers, dtype, shape, number)
    flat = _dyadic(contents, dtype, number)
    if contents.kind == "special" and number > 0 and dtype is not torch.bool:
        bits = random_bits(contents.seed + 1, number)
        values = torch.tensor(_special_values(dtype), dtype=dtype)
        chosen = values[torch.from_numpy((bits >> np.uint64(8)).astype(np.int64) % len(values))]
        # A third stays ordinary.
        flat = torch.where(torch.from_numpy(bits % np.uint64(3) != 0), chosen, flat)
    return flat.reshape(shape)


def _listed(numbers: Sequence[Any], dtype: torch.dtype, shape: tuple[int, ...], number: int) -> torch.Tensor:
    if len(numbers) != number:
        raise ModelError(Diagnostic(code="EK805", message=f"{number} elements are described by {len(numbers)} numbers"))
    try:
        return torch.tensor(numbers, dtype=dtype).reshape(shape)
    except (RuntimeError, OverflowError, ValueError, TypeError):
        message = f"not all of the numbers are numbers of {dtype}"
        raise ModelError(Diagnostic(code="EK805", message=message)) from None


def _dyadic(contents: Contents, dtype: torch.dtype, number: int) -> torch.Tensor:
    bits = random_bits(contents.seed, number)
    if dtype is torch.bool:
        return torch.from_numpy((bits >> np.uint64(32)) % np.uint64(2) != 0)
    if dtype.is_complex:
        parts = [_dyadic(contents, torch.float64, 2 * number).reshape(2, number)[one] for one in (0, 1)]
        return torch.complex(parts[0], parts[1]).to(dtype)
    places = 2.0**contents.bits if dtype.is_floating_point else 1
    low, high = math.ceil(contents.low * places), math.floor(contents.high * places)
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        low, high = max(low, limits.min), min(high, limits.max)
    # A range without a multiple in it is its least value; more than 63 bits of range are not needed.
    span = np.uint64(min(max(high - low, 0) + 1, 2**63 - 1))
    steps = (bits % span).astype(np.int64)
    if dtype.is_floating_point:
        return torch.from_numpy((steps + float(low)) / places).to(dtype)
    return torch.from_numpy(steps + np.int64(min(low, 2**63 - 1))).to(dtype)


def _special_values(dtype: torch.dtype) -> list[float | int]:
    if dtype.is_complex or dtype.is_floating_point:
        limits = torch.finfo(dtype)
        small, large = limits.tiny, limits.max
        # The smallest denormal, made by halving so that no table of formats is needed.
        least = small * limits.eps
        floats = [math.nan, math.inf, -math.inf, -0.0, 0.0, least, -least, small, large, -large, 1 + limits.eps]
        return [*floats, 0.5, 1.5, 2.5]
    whole = torch.iinfo(dtype)
    return [whole.min, whole.max, whole.min + 1, whole.max - 1, 0, 1, *([-1] if whole.min < 0 else [])]


def _laid_out(dense: torch.Tensor, layout: str) -> torch.Tensor:
    """Return the same elements with other strides, where the layout has a meaning for the rank."""
    if layout == "channels_last" and dense.dim() in (4, 5):
        form = torch.channels_last if dense.dim() == 4 else torch.channels_last_3d
        # Where torch takes strides for right already, it leaves them; sizes of one would keep those of a dense tensor.
        strides = torch.empty(dense.shape, memory_format=form, device="meta").stride()
        return torch.empty_strided(dense.shape, strides, dtype=dense.dtype).copy_(dense)
    if layout == "transposed" and dense.dim() >= 2:
        return dense.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "strided" and dense.dim() >= 1:
        wide = torch.zeros((*dense.shape[:-1], dense.shape[-1] * 2), dtype=dense.dtype)
        wide[..., ::2] = dense
        return wide[..., ::2]
    return dense
