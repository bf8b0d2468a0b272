"""Decompositions of operators that PyTorch's table does not cover into one expression each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def shifted_left(x: Tensor, places: Tensor | int) -> Any:
    """`aten.__lshift__`, `aten.bitwise_left_shift`: products with powers of two, which wrap around as well."""
    dtype = torch.result_type(x, places)
    if dtype.is_floating_point:
        return NotImplemented
    x, bits = x.to(dtype), torch.iinfo(dtype).bits
    if isinstance(places, int):
        return x * _wrapped(1 << places, bits) if 0 <= places < bits else torch.zeros_like(x)
    for step in _powers_of_two_below(bits):
        x = torch.where((places & step) != 0, x * _wrapped(1 << step, bits), x)
    return torch.where((places >= 0) & (places < bits), x, 0)


def shifted_right(x: Tensor, places: Tensor | int) -> Any:
    """`aten.__rshift__`, `aten.bitwise_right_shift`: quotients by powers of two, rounded down."""
    dtype = torch.result_type(x, places)
    if dtype.is_floating_point:
        return NotImplemented
    x, bits = x.to(dtype), torch.iinfo(dtype).bits
    most = bits - int(x.dtype.is_signed)
    filled = torch.where(x < 0, -1, 0).to(x.dtype)
    if isinstance(places, int):
        return torch.div(x, 1 << places, rounding_mode="floor") if 0 <= places < most else filled
    for step in _powers_of_two_below(bits):
        x = torch.where((places & step) != 0, torch.div(x, 1 << step, rounding_mode="floor"), x)
    return torch.where((places >= 0) & (places < most), x, filled)


def _powers_of_two_below(bits: int) -> list[int]:
    return [1 << place for place in range(bits.bit_length() - 1)]


def _wrapped(number: int, bits: int) -> int:
    return number - (1 << bits) if number >= 1 << (bits - 1) else number


def product_with_vector(self: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`aten.addmv`."""
    return _added(self, torch.mv(mat, vec), beta, alpha)


def sum_of_products(self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """`aten.addbmm`: the sum over a batch of matrix products."""
    # The sum of narrow integers would be a wide one.
    product = torch.bmm(batch1, batch2).sum(0, dtype=self.dtype)
    return _added(self, product, beta, alpha)


def _added(addend: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    if not product.is_floating_point():
        # Factors of integers are integers; a fraction is cut off.
        beta, alpha = int(beta), int(alpha)
    scaled = product if alpha == 1 else product * alpha
    # Times zero, it does not count, also where it is NaN.
    if beta == 0:
        return scaled
    return (addend if beta == 1 else addend * beta) + scaled


def power_of_two(x: Tensor) -> Tensor:
    """`aten.exp2`."""
    return torch.pow(2.0, x)


def scaled_by_power_of_two(x: Tensor, exponent: Tensor) -> Tensor:
    """`aten.ldexp`."""
    return x * torch.pow(2.0, exponent)


def larger_number(x: Tensor, y: Tensor) -> Tensor:
    """`aten.fmax`: of a number and NaN, the number."""
    return _number(x, y, torch.maximum(x, y))


def smaller_number(x: Tensor, y: Tensor) -> Tensor:
    """`aten.fmin`: of a number and NaN, the number."""
    return _number(x, y, torch.minimum(x, y))


def _number(x: Tensor, y: Tensor, chosen: Tensor) -> Tensor:
    if not chosen.is_floating_point():
        return chosen
    x, y = x.to(chosen.dtype), y.to(chosen.dtype)
    return torch.where(torch.isnan(x), y, torch.where(torch.isnan(y), x, chosen))


def sign_bit(x: Tensor) -> Tensor:
    """`aten.signbit`, but for NaN, whose sign arithmetic does not keep: it counts as positive."""
    if not x.is_floating_point():
        return torch.zeros_like(x, dtype=torch.bool) if x.dtype is torch.bool else x < 0
    # The reciprocal of a zero shows its sign.
    return (x < 0) | (torch.reciprocal(x) < 0)


def with_sign_of(x: Tensor, other: Tensor) -> Tensor:
    """`aten.copysign`, with the sign of NaN taken for positive."""
    dtype = torch.result_type(x, other)
    magnitude = torch.abs(x.to(dtype if dtype.is_floating_point else torch.get_default_dtype()))
    return torch.where(sign_bit(other), -magnitude, magnitude)


def with_sign_of_number(x: Tensor, other: float) -> Tensor:
    """`aten.copysign.Scalar`."""
    magnitude = torch.abs(x if x.is_floating_point() else x.to(torch.get_default_dtype()))
    return -magnitude if math.copysign(1.0, other) < 0 else magnitude


def length_of_hypotenuse(x: Tensor, y: Tensor) -> Tensor:
    """`aten.hypot`; squares are taken of what is at most 1, so that they do not overflow."""
    x, y = torch.abs(x), torch.abs(y)
    longer = torch.maximum(x, y)
    ratio = torch.minimum(x, y) / torch.where(longer == 0, 1.0, longer)
    length = longer * torch.sqrt(1 + ratio * ratio)
    return torch.where(torch.isinf(x) | torch.isinf(y), math.inf, length)


def angle_of_real(x: Tensor) -> Tensor:
    """`aten.angle` of real numbers: pi for negative ones."""
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    # Not chosen between numbers: that has the default precision.
    found = (x < 0).to(dtype) * math.pi
    return torch.where(torch.isnan(x), x, found) if x.is_floating_point() else found


def rounded_to_decimals(x: Tensor, *, decimals: int) -> Tensor:
    """`aten.round.decimals`."""
    factor = 10.0 ** abs(decimals)
    if not x.is_floating_point() or decimals == 0:
        return torch.round(x)
    return torch.round(x * factor) / factor if decimals > 0 else torch.round(x / factor) * factor


def leaky_in_evaluation(
    self: Tensor,
    noise: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
) -> Any:
    """`aten.rrelu_with_noise_functional` in evaluation: a fixed slope. Training is left as it is."""
    if training:
        return NotImplemented
    return torch.nn.functional.leaky_relu(self, (lower + upper) / 2), noise.clone()


def linear_in_three(
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """`aten._trilinear`, which `torch.nn.Bilinear` calls: products of three tensors, summed over some dims.

    Each tensor lacks the dims of the whole product that it is expanded in.
    """
    del unroll_dim
    letters = "abcdefghijklmnop"[: i1.dim() + len(expand1)]
    terms = ["".join(one for dim, one in enumerate(letters) if dim not in left) for left in (expand1, expand2, expand3)]
    result = "".join(one for dim, one in enumerate(letters) if dim not in sumdim)
    return torch.einsum(f"{','.join(terms)}->{result}", i1, i2, i3)


def narrowed(self: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`aten.narrow_copy`."""
    return torch.narrow(self, dim, start, length).clone()


def taken(self: Tensor, index: Tensor) -> Tensor:
    """`aten.take`: elements by their places in row-major order."""
    return torch.ops.aten.index.Tensor(self.reshape(-1), [index])  # type: ignore[no-any-return]


def gradient_of_maximum(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    """`aten.max_pool2d_with_indices_backward`: each gradient goes to the element that was the largest of its window."""
    del kernel_size, stride, padding, dilation, ceil_mode
    zeros = torch.zeros_like(self).flatten(-2)
    return zeros.scatter_add(-1, indices.flatten(-2), grad_output.flatten(-2)).reshape(self.shape)


def padded_around(self: Tensor, pad: Sequence[int]) -> Tensor:
    """`aten._pad_circular`: each dim continued with its own other end, or cropped where a number is negative."""
    padded = self
    for place in range(0, len(pad), 2):
        # Pads begin with the last dim.
        dim = self.dim() - 1 - place // 2
        before, behind = pad[place : place + 2]
        if before < 0 or behind < 0:
            start = max(-before, 0)
            padded = padded.narrow(dim, start, padded.shape[dim] - start - max(-behind, 0))
        size, parts = padded.shape[dim], [padded]
        if before > 0:
            parts.insert(0, padded.narrow(dim, size - before, before))
        if behind > 0:
            parts.append(padded.narrow(dim, 0, behind))
        padded = torch.cat(parts, dim) if len(parts) > 1 else padded
    return padded if padded is not self else self.clone()


def padded(self: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """`aten.pad`, where torch would write to parts of what it makes."""
    return padded_around(self, pad) if mode == "circular" else aten.pad.default.decompose(self, pad, mode, value)


def is_among(elements: Any, tested: Any, *, assume_unique: bool = False, invert: bool = False) -> Any:
    """`aten.isin`: whether each of some elements equals one of others.

    Torch sorts the others, and does not find what equals one of them if there are some that are not a number.
    """
    del assume_unique
    if not isinstance(tested, Tensor):
        found = elements == tested
    elif isinstance(elements, Tensor):
        found = (elements.unsqueeze(-1) == tested.flatten()).any(-1)
    else:
        found = (tested == elements).any()
    return ~found if invert else found


def distance(self: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """`aten.dist`."""
    norm: Tensor = torch.linalg.vector_norm(self - other, p)
    return norm


def number_as_tensor(s: float, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Tensor:
    """`prims.scalar_tensor`, which torch's decompositions of functions of a tensor and a number end in."""
    return torch.scalar_tensor(s, dtype=dtype, device=device)


EXPRESSIONS: Mapping[Any, Callable[..., Any]] = {
    aten.__lshift__.Scalar: shifted_left,
    aten.__lshift__.Tensor: shifted_left,
    aten.__rshift__.Scalar: shifted_right,
    aten.__rshift__.Tensor: shifted_right,
    aten.bitwise_left_shift.Tensor: shifted_left,
    aten.bitwise_left_shift.Tensor_Scalar: shifted_left,
    aten.bitwise_right_shift.Tensor: shifted_right,
    aten.bitwise_right_shift.Tensor_Scalar: shifted_right,
    aten.addmv.default: product_with_vector,
    aten.addbmm.default: sum_of_products,
    aten.exp2.default: power_of_two,
    aten.ldexp.Tensor: scaled_by_power_of_two,
    aten.fmax.default: larger_number,
    aten.fmin.default: smaller_number,
    aten.signbit.default: sign_bit,
    aten.copysign.Tensor: with_sign_of,
    aten.copysign.Scalar: with_sign_of_number,
    aten.hypot.default: length_of_hypotenuse,
    aten.angle.default: angle_of_real,
    aten.isin.Tensor_Tensor: is_among,
    aten.isin.Tensor_Scalar: is_among,
    aten.isin.Scalar_Tensor: is_among,
    aten.round.decimals: rounded_to_decimals,
    aten.rrelu_with_noise_functional.default: leaky_in_evaluation,
    aten.dist.default: distance,
    aten._pad_circular.default: padded_around,
    aten._trilinear.default: linear_in_three,
    aten.narrow_copy.default: narrowed,
    aten.take.default: taken,
    torch.ops.prims.scalar_tensor.default: number_as_tensor,
    # The kernel of the official runtime adds to what lies in memory.
    aten.max_pool2d_with_indices_backward.default: gradient_of_maximum,
}

COMPOSITES: Mapping[Any, Callable[..., Any]] = {aten.pad.default: padded}
"""What is asked before torch takes composite operators apart; its decomposition of whole graphs takes none of them."""
