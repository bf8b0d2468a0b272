"""Meanings of convolutions and of what else is composed: sums over windows, products with a bias, variances."""

from __future__ import annotations

from typing import Any

import z3

from exirkit.patterns.proving.elements import FLOATS, Elements
from exirkit.patterns.proving.meanings import MEANINGS, meaning
from exirkit.patterns.proving.movement import viewed
from exirkit.patterns.proving.paths import Path, UnsupportedError, integer
from exirkit.patterns.proving.pointwise import add, div, mul, sub
from exirkit.patterns.proving.sums import fold, mean, product_of_matrices, reduced_dims, sum_over
from exirkit.patterns.proving.tensors import Index, SymbolicTensor, product


def _each(path: Path, given: Any, rank: int) -> list[Any]:
    """Return a number for each dim of a window; one number is that of all."""
    listed = list(given) if isinstance(given, list | tuple) else [given]
    listed = listed * rank if len(listed) == 1 else listed
    path.require(len(listed) == rank, "a number for each dim of the window")
    return listed


@meaning("aten.convolution.default")
def convolution(  # noqa: C901 - what it requires, one after the other
    path: Path, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: Any,
    output_padding: Any, groups: Any,
) -> Any:  # fmt: skip
    """Convolution: a sum over the channels of a group and over the window."""
    del output_padding  # of transposed ones
    if bool(transposed):
        raise UnsupportedError("a transposed convolution")
    if input.dtype not in FLOATS or weight.dtype != input.dtype:
        raise UnsupportedError("a convolution of integers, or of several dtypes")
    rank = input.dim() - 2
    path.require(rank >= 1 and weight.dim() == rank + 2, "images and a window")
    strides, pads, steps = (_each(path, one, rank) for one in (stride, padding, dilation))
    for one in (*strides, *steps, groups):
        path.require(integer(one) > 0, "positive strides, dilations and groups")
    for one in pads:
        path.require(integer(one) >= 0, "padding that is not negative")
    inner, outer = weight.shape[1], weight.shape[0]
    path.require(integer(input.shape[1]) == integer(inner * groups), "channels that fit")
    path.require(integer(outer) % integer(groups) == 0, "as many outputs for each group")
    windows = weight.shape[2:]
    sizes = [input.shape[0], outer]
    for size, pad, step, window, jump in zip(input.shape[2:], pads, steps, windows, strides, strict=True):
        room = size + 2 * pad - step * (window - 1) - 1
        path.require(z3.And(integer(room) >= 0, integer(window) > 0), "a window that fits")
        sizes.append(room // jump + 1)
    is_one_group = isinstance(groups, int) and groups == 1

    def element(elements: Elements, index: Index) -> Any:
        each = integer(outer) / integer(groups)
        first = z3.IntVal(0) if is_one_group else (index[1] / each) * integer(inner)

        def term(bound: list[Any]) -> Any:
            places, inside = [], []
            for at in range(rank):
                start = integer(strides[at]) * index[2 + at] - integer(pads[at])
                place = z3.simplify(start + integer(steps[at]) * bound[1 + at])
                places.append(place)
                if not (isinstance(pads[at], int) and pads[at] == 0):
                    inside += [place >= 0, place < integer(input.shape[2 + at])]
            left = input.at(elements, (index[0], z3.simplify(first + bound[0]), *places))
            left = z3.If(z3.And(*inside), left, elements.constant(0, input.dtype)) if inside else left
            right = weight.at(elements, (index[1], *bound))
            return elements.arithmetic("mul", left, right, input.dtype)

        kind = f"sum_{input.dtype}" if elements.is_real else f"product_{input.dtype}"
        return fold(elements, kind, [inner, *windows], term)

    made = SymbolicTensor.make(path, sizes, input.dtype, element)
    if bias is None:
        return made
    path.require(bias.dim() == 1 and integer(bias.shape[0]) == integer(outer), "a bias for each output")
    return add(path, made, viewed(path, bias, [bias.shape[0], *[1] * rank]))


@meaning("aten.conv1d.default", "aten.conv2d.default")
def conv(
    path: Path, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    groups: Any = 1,
) -> Any:  # fmt: skip
    """Convolution of a batch."""
    if isinstance(padding, str) or input.dim() != weight.dim():
        raise UnsupportedError("a convolution without a batch, or with padding by name")
    return convolution(path, input, weight, bias, stride, padding, dilation, False, [0], groups)


@meaning("aten.baddbmm.default")
def baddbmm(path: Path, self: Any, batch1: Any, batch2: Any, beta: Any = 1, alpha: Any = 1) -> Any:
    """Products of matrices and a bias."""
    path.require(batch1.dim() == 3, "batches of matrices")
    made = product_of_matrices(path, batch1, batch2)
    if not (isinstance(alpha, int | float) and alpha == 1):
        made = mul(path, made, alpha)
    if isinstance(beta, int | float) and beta == 1:
        return add(path, made, self)
    return made if bool(beta == 0) else add(path, made, mul(path, self, beta))


@meaning("aten.var.correction")
def variance(path: Path, self: Any, dim: Any = None, correction: Any = None, keepdim: bool = False) -> Any:
    """Sum of squared distances from the mean, over the number of elements less a correction."""
    if self.dtype not in FLOATS or not isinstance(correction, int | None):
        raise UnsupportedError("a variance with a correction that may be anything")
    dims = reduced_dims(path, self, dim)
    count = product([self.shape[at] for at in dims])
    less = 1 if correction is None else correction
    path.require(integer(count) > less, "more elements than the correction")
    path.formulas.add("variances")
    centred = sub(path, self, mean(path, self, dims, True))
    return div(path, sum_over(path, mul(path, centred, centred), dims, keepdim), count - less)


@meaning("aten.prelu.default")
def prelu(path: Path, self: Any, weight: Any) -> Any:
    """Values, the negative ones times a weight, or the weight of their channel."""
    path.require(weight.dim() <= 1, "a weight, or one for each channel")
    factor = weight
    if weight.dim() == 1 and self.dim() >= 2:
        one = integer(weight.shape[0])
        path.require(z3.Or(one == 1, one == integer(self.shape[1])), "a weight for each channel")
        factor = viewed(path, weight, [weight.shape[0], *[1] * (self.dim() - 2)])
    elif weight.dim() == 1:
        path.require(integer(weight.shape[0]) == 1, "one weight")
    zero = MEANINGS["aten.gt.Scalar"](path, self, 0)
    return MEANINGS["aten.where.self"](path, zero, self, mul(path, self, factor))
