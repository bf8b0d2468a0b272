"""Meanings of operators that compute each image, or each row, from all of it: resizing, sampling, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import z3

from exirkit.patterns.proving.elements import Elements, Scalar
from exirkit.patterns.proving.meanings import MEANINGS, meaning
from exirkit.patterns.proving.movement import constant_pad, normal_dim, permuted, viewed
from exirkit.patterns.proving.paths import Number, Path, UnsupportedError, integer
from exirkit.patterns.proving.sums import UnknownResult, fold, mean
from exirkit.patterns.proving.tensors import Index, SymbolicTensor


def _numbers(elements: Elements, values: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return what an operator was given besides tensors, as words and as terms."""
    words, terms = [], []
    for value in values:
        if isinstance(value, list | tuple):
            inner, more = _numbers(elements, value)
            words.append(f"[{inner}]")
            terms += more
        elif value is None or isinstance(value, bool | str):
            words.append(str(value))
        elif isinstance(value, int | Number):
            words.append("int")
            terms.append(integer(value))
        elif isinstance(value, float | Scalar):
            words.append("float")
            terms.append(value.term if isinstance(value, Scalar) else Scalar.of(elements.path, value).term)
        else:
            raise UnsupportedError(f"a {type(value).__name__} as an option")
    return ",".join(words), terms


def of_planes(
    path: Path,
    name: str,
    tensor: Any,
    front: int,
    sizes: Sequence[Any],
    options: Sequence[Any],
    others: Sequence[Any] = (),
) -> SymbolicTensor:
    """Return what is computed of all elements behind the first dims, of which nothing else is known.

    Args:
        path: The path it is on.
        name: Name of the operator.
        tensor: What it is computed of.
        front: How many dims are in front, each index of which is on its own.
        sizes: Sizes of the result behind these dims.
        options: Numbers and words that it depends on.
        others: From an evaluator and an index to further terms that it depends on.
    """
    shape = tensor.shape

    def element(elements: Elements, index: Index) -> Any:
        plane = fold(
            elements,
            f"plane_{tensor.dtype}",
            shape[front:],
            lambda bound: tensor.at(elements, (*index[:front], *bound)),
        )
        words, terms = _numbers(elements, options)
        more = [one(elements, index) for one in others]
        # The term of a plane leaves out dims of one element: its sizes say which dims there are.
        places = [*(integer(one) for one in shape[front:]), *(integer(one) for one in index[front:])]
        return elements.function(f"{name}|{words}_{tensor.dtype}", plane.sort(), [plane, *terms, *more, *places])

    return SymbolicTensor.make(path, [*shape[:front], *sizes], tensor.dtype, element)


def _of_images(path: Path, tensor: Any, what: str) -> None:
    path.require(tensor.dim() == 4, f"images for {what}")


def _resized_sizes(path: Path, output_size: Any, what: str) -> list[Any]:
    if output_size is None:
        raise UnsupportedError(f"{what} by factors")
    path.require(len(output_size) == 2, "two sizes")
    for one in output_size:
        path.require(integer(one) > 0, "sizes with elements")
    return list(output_size)


@meaning("aten.upsample_nearest2d.vec", "aten.upsample_nearest2d.default")
def upsample_nearest2d(path: Path, input: Any, output_size: Any = None, **rest: Any) -> Any:
    """Images of another size whose pixels are those that are nearest; whole multiples repeat each of them."""
    _of_images(path, input, "resizing")
    if any(one is not None for one in rest.values()) or output_size is None:
        return _by_factors(path, input, output_size, rest)
    sizes = _resized_sizes(path, output_size, "resizing")
    shape = input.shape
    for one in shape[2:]:
        path.require(integer(one) > 0, "images with pixels")
    if all(path.holds(integer(new) % integer(old) == 0) for new, old in zip(sizes, shape[2:], strict=True)):
        return _repeated(path, input, [new // old for new, old in zip(sizes, shape[2:], strict=True)], sizes)
    return of_planes(path, "nearest", input, 2, sizes, [sizes])


def _by_factors(path: Path, input: Any, output_size: Any, rest: Any) -> Any:
    factors = rest.get("scale_factors")
    if output_size is not None or factors is None or len(factors) != 2:
        raise UnsupportedError("resizing by factors and sizes")
    whole = [int(one) if isinstance(one, float) and one.is_integer() and one >= 1 else None for one in factors]
    if None in whole:
        raise UnsupportedError("resizing by factors that are not whole")
    return _repeated(path, input, whole, [size * one for size, one in zip(input.shape[2:], whole, strict=True)])


def _repeated(path: Path, tensor: Any, factors: Sequence[Any], sizes: Sequence[Any]) -> SymbolicTensor:
    def element(elements: Elements, index: Index) -> Any:
        inner = [z3.simplify(integer(one) / integer(factor)) for one, factor in zip(index[2:], factors, strict=True)]
        return tensor.at(elements, (*index[:2], *inner))

    return SymbolicTensor.make(path, [*tensor.shape[:2], *sizes], tensor.dtype, element)


@meaning("aten.upsample_bilinear2d.vec", "aten.upsample_bilinear2d.default")
def upsample_bilinear2d(
    path: Path, input: Any, output_size: Any = None, align_corners: Any = False, **rest: Any
) -> Any:
    """Images of another size by straight lines between pixels, which are not looked into."""
    _of_images(path, input, "resizing")
    if any(one is not None for one in rest.values()):
        raise UnsupportedError("resizing by factors")
    sizes = _resized_sizes(path, output_size, "resizing")
    for one in input.shape[2:]:
        path.require(integer(one) > 0, "images with pixels")
    return of_planes(path, "bilinear", input, 2, sizes, [sizes, align_corners])


@meaning("aten.grid_sampler_2d.default")
def grid_sampler_2d(
    path: Path, input: Any, grid: Any, interpolation_mode: Any, padding_mode: Any, align_corners: Any
) -> Any:
    """Values between the pixels of an image, at places that a grid says."""
    _of_images(path, input, "sampling")
    path.require(grid.dim() == 4 and grid.dtype == input.dtype, "a grid of places")
    path.require(integer(grid.shape[0]) == integer(input.shape[0]), "a grid for each image")
    path.require(integer(grid.shape[3]) == 2, "two coordinates")
    for one in input.shape[2:]:
        path.require(integer(one) > 0, "images with pixels")
    # A value depends on the image and on one place of the grid: where that is in the grid does not matter.
    shape = input.shape

    def element(elements: Elements, index: Index) -> Any:
        image = fold(
            elements, f"plane_{input.dtype}", shape[2:], lambda bound: input.at(elements, (*index[:2], *bound))
        )
        place = [grid.at(elements, (index[0], *index[2:], z3.IntVal(at))) for at in range(2)]
        words, terms = _numbers(elements, [interpolation_mode, padding_mode, align_corners, *shape[2:]])
        return elements.function(f"sampled|{words}_{input.dtype}", image.sort(), [image, *terms, *place])

    return SymbolicTensor.make(path, [*shape[:2], *grid.shape[1:3]], input.dtype, element)


@meaning("aten._adaptive_avg_pool2d.default", "aten.adaptive_avg_pool2d.default")
def adaptive_avg_pool2d(path: Path, self: Any, output_size: Sequence[Any]) -> Any:
    """The mean of each channel, or means of its parts, which are not looked into."""
    if all(isinstance(one, int) and one == 1 for one in output_size):
        return mean(path, self, [-2, -1], True)
    path.require(self.dim() in (3, 4), "images")
    for one in (*output_size, *self.shape[-2:]):
        path.require(integer(one) > 0, "sizes with elements")
    return of_planes(path, "adaptive_mean", self, self.dim() - 2, list(output_size), [list(output_size)])


@meaning("aten.adaptive_max_pool2d.default")
def adaptive_max_pool2d(path: Path, self: Any, output_size: Sequence[Any]) -> list[Any]:
    """Maxima of parts of each channel, which are not looked into."""
    path.require(self.dim() in (3, 4), "images")
    for one in (*output_size, *self.shape[-2:]):
        path.require(integer(one) > 0, "sizes with elements")
    return [
        of_planes(path, "adaptive_max", self, self.dim() - 2, list(output_size), [list(output_size)]), UnknownResult()
    ]  # fmt: skip


# Padding by what is there


def _reflected(path: Path, tensor: Any, pad: Sequence[Any], count: int) -> SymbolicTensor:
    path.require(len(pad) == 2 * count and tensor.dim() in (count + 1, count + 2), "widths for the last dims")
    rank, shape = tensor.dim(), tensor.shape
    sizes = list(shape)
    for at in range(count):
        low, high, size = pad[2 * at], pad[2 * at + 1], shape[rank - 1 - at]
        path.require(z3.And(integer(low) < integer(size), integer(high) < integer(size)), "widths below the size")
        sizes[rank - 1 - at] = size + low + high
        path.require(integer(sizes[rank - 1 - at]) > 0, "a result with elements")

    def element(elements: Elements, index: Index) -> Any:
        found = list(index)
        for at in range(count):
            dim = rank - 1 - at
            place, last = integer(index[dim]) - integer(pad[2 * at]), integer(shape[dim]) - 1
            found[dim] = z3.simplify(z3.If(place < 0, -place, z3.If(place > last, 2 * last - place, place)))
        return tensor.at(elements, tuple(found))

    return SymbolicTensor.make(path, sizes, tensor.dtype, element)


def _reflection(count: int) -> None:
    @meaning(f"aten.reflection_pad{count}d.default", moves=True)
    def run(path: Path, self: Any, padding: Sequence[Any]) -> Any:
        return _reflected(path, self, list(padding), count)


for _count in (1, 2, 3):
    _reflection(_count)


@meaning("aten.pad.default", moves=True)
def pad_of_mode(path: Path, self: Any, pad: Sequence[Any], mode: Any = "constant", value: Any = None) -> Any:
    """What is around a tensor: a number, or what is reflected at its border."""
    if mode == "constant":
        return constant_pad(path, self, pad, 0 if value is None else value)
    if mode != "reflect" or value is not None or len(pad) % 2:
        raise UnsupportedError(f"padding by {mode}")
    return _reflected(path, self, list(pad), len(pad) // 2)


# Windows that lie side by side


@meaning("aten.pixel_unshuffle.default", moves=True)
def pixel_unshuffle(path: Path, self: Any, downscale_factor: Any) -> Any:
    """Rows and columns moved to channels."""
    factor, shape = downscale_factor, self.shape
    path.require(len(shape) >= 3, "three dims")
    path.require(integer(factor) > 0, "a factor")
    channels, height, width = shape[-3:]
    for one in (height, width):
        path.require(integer(one) % integer(factor) == 0, "rows and columns to move")
    rows, columns = height // factor, width // factor
    path.assume(
        z3.And(integer(rows) * integer(factor) == integer(height), integer(columns) * integer(factor) == integer(width))
    )
    batch = shape[:-3]
    inner = viewed(path, self, [*batch, channels, rows, factor, columns, factor])
    dims = [*range(len(batch)), *(len(batch) + at for at in (0, 2, 4, 1, 3))]
    return viewed(path, permuted(path, inner, dims), [*batch, channels * factor * factor, rows, columns])


@meaning("aten.im2col.default")
def im2col(
    path: Path, self: Any, kernel_size: Sequence[Any], dilation: Sequence[Any], padding: Sequence[Any],
    stride: Sequence[Any],
) -> Any:  # fmt: skip
    """Windows as columns, of those that lie side by side."""
    plain = all(
        isinstance(one, int) and one == want for one, want in zip((*dilation, *padding), (1, 1, 0, 0), strict=True)
    )
    same = all(
        one is other or path.holds(integer(one) == integer(other))
        for one, other in zip(kernel_size, stride, strict=True)
    )
    if not plain or not same or self.dim() != 4:
        raise UnsupportedError("windows that overlap, or do not touch")
    batch, channels, height, width = self.shape
    rows, columns = height // kernel_size[0], width // kernel_size[1]
    for one in (rows, columns):
        path.require(integer(one) > 0, "a window that fits")
    parts = [(height, kernel_size[0], rows), (width, kernel_size[1], columns)]
    sizes = [batch, channels * kernel_size[0] * kernel_size[1], rows * columns]

    def element(elements: Elements, index: Index) -> Any:
        if not path.holds(z3.And(*(integer(size) % integer(each) == 0 for size, each, _ in parts))):
            raise UnsupportedError("windows that do not fill the image")
        for size, each, count in parts:
            path.assume(integer(count) * integer(each) == integer(size))
        inner = viewed(path, self, [batch, channels, rows, kernel_size[0], columns, kernel_size[1]])
        return viewed(path, permuted(path, inner, [0, 1, 3, 5, 2, 4]), sizes).at(elements, index)

    return SymbolicTensor.make(path, sizes, self.dtype, element)


# Where the largest and the smallest elements are

_SAME_PLACE = "of equal largest, or smallest, elements all operators find the same place"


def _placed(path: Path, tensor: Any, at: int, keepdim: bool, name: str) -> SymbolicTensor:
    """Return places along a dim, as functions of all that is along it."""
    shape = tensor.shape
    sizes = [*shape[:at], *([1] if keepdim else []), *shape[at + 1 :]]
    path.require(integer(shape[at]) > 0, "elements to choose from")

    def element(elements: Elements, index: Index) -> Any:
        behind = index[at + 1 :] if keepdim else index[at:]
        row = fold(
            elements,
            f"plane_{tensor.dtype}",
            [shape[at]],
            lambda bound: tensor.at(elements, (*index[:at], bound[0], *behind)),
        )
        elements.axioms.add(_SAME_PLACE)
        size = integer(shape[at])
        return elements.function(f"place_of_{name}_{tensor.dtype}", elements.sort(torch.int64), [row, size])

    return SymbolicTensor.make(path, sizes, torch.int64, element)


def _search(word: str) -> None:
    @meaning(f"aten.arg{word}.default")
    def place(path: Path, self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None or self.dim() == 0:
            raise UnsupportedError("the place in all elements")
        return _placed(path, self, normal_dim(path, dim, self.dim()), bool(keepdim), word)

    @meaning(f"aten.{word}.dim")
    def both(path: Path, self: Any, dim: Any, keepdim: bool = False) -> list[Any]:
        if self.dim() == 0:
            raise UnsupportedError("the largest of no dims")
        at = normal_dim(path, dim, self.dim())
        values = MEANINGS[f"aten.a{word}.default"](path, self, [at], bool(keepdim))
        return [values, _placed(path, self, at, bool(keepdim), word)]


_search("max")
_search("min")
