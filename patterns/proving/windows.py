"""Meanings of convolutions and pools: folds over windows, outside of which an input has zeros, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import z3

from exirkit.patterns.proving.elements import Elements, sizes_equal
from exirkit.patterns.proving.meanings import meaning
from exirkit.patterns.proving.movement import viewed
from exirkit.patterns.proving.paths import Number, Path, UnsupportedError, integer
from exirkit.patterns.proving.pointwise import add
from exirkit.patterns.proving.sums import UnknownResult, fold, product_kind
from exirkit.patterns.proving.tensors import Index, SymbolicTensor, product


def _each(path: Path, values: Any, count: int) -> list[Any]:
    """Return a number for each dim of a window, of which one may be given for all."""
    found = list(values) if isinstance(values, list | tuple) else [values]
    if len(found) == 1:
        found *= count
    path.require(len(found) == count, "a number for each dim of a window")
    return found


def _is(value: Any, number: int) -> bool:
    return isinstance(value, int) and value == number


def _quotient(path: Path, value: Any, divisor: Any) -> Any:
    """Return how often one size is in another."""
    if _is(divisor, 1):
        return value
    return 1 if sizes_equal(path, value, divisor) else value // divisor


class _Window:
    """Where a window lies in one dim of the input.

    Args:
        size: Of the dim.
        kernel: Of the window.
        stride: From one window to the next.
        padding: In front of the dim, and behind it.
        dilation: From one element of the window to the next.
        is_over_end: The last window may reach over the end, if it starts before it.
    """

    def __init__(
        self, size: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, *, is_over_end: bool = False
    ) -> None:
        self.size, self.kernel, self.stride, self.padding, self.dilation = size, kernel, stride, padding, dilation
        self.is_over_end = is_over_end

    def count(self, path: Path) -> Any:
        """Return how many windows there are; that one fits is required."""
        path.require(integer(self.stride) > 0, "a stride that is positive")
        path.require(integer(self.dilation) > 0, "a dilation that is positive")
        path.require(integer(self.kernel) > 0, "a window with elements")
        path.require(integer(self.padding) >= 0, "a padding that is not negative")
        room = self.size + 2 * self.padding - self.dilation * (self.kernel - 1) - 1
        path.require(integer(room) >= 0, "an input that a window fits into")
        if self.is_over_end:
            return self._over_end(path, room)
        return (room if _is(self.stride, 1) else room // self.stride) + 1

    def _over_end(self, path: Path, room: Any) -> Any:
        count = (room + self.stride - 1) // self.stride + 1
        starts_behind = (integer(count) - 1) * integer(self.stride) >= integer(self.size) + integer(self.padding)
        return Number(path, z3.If(starts_behind, integer(count) - 1, integer(count)))

    def place(self, index: Any, inner: Any) -> Any:
        """Return the place in the dim of an element of a window."""
        return z3.simplify(
            integer(index) * integer(self.stride) + integer(inner) * integer(self.dilation) - integer(self.padding)
        )

    def inside(self, place: Any) -> list[Any]:
        """Return the conditions under which a place is in the dim; where nothing is padded it always is."""
        return [] if _is(self.padding, 0) and not self.is_over_end else [place >= 0, place < integer(self.size)]

    def padded_part(self, index: Any) -> Any:
        """Return how many elements of a window without dilation are in the dim or its padding."""
        first = integer(index) * integer(self.stride) - integer(self.padding)
        last, end = first + integer(self.kernel), integer(self.size) + integer(self.padding)
        return z3.If(last > end, end, last) - first

    def part(self, index: Any) -> Any:
        """Return how many elements of a window without dilation are in the dim."""
        first = integer(index) * integer(self.stride) - integer(self.padding)
        last = first + integer(self.kernel)
        size = integer(self.size)
        return z3.If(last > size, size, last) - z3.If(first < 0, z3.IntVal(0), first)


def _or_else(inside: Sequence[Any], value: Any, otherwise: Any) -> Any:
    return z3.If(z3.And(*inside), value, otherwise) if inside else value


@meaning("aten.convolution.default")
def convolution(
    path: Path, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: Any,
    output_padding: Any, groups: Any,
) -> Any:  # fmt: skip
    """Sums of products over windows, of the channels of a group."""
    rank = weight.dim()
    path.require(rank >= 3 and input.dim() == rank, "an input of the rank of the weights")
    if input.dtype != weight.dtype:
        raise UnsupportedError("a convolution of different dtypes")
    path.require(integer(groups) > 0, "groups")
    compute = _transposed if transposed else _convolved
    made = compute(
        path, input, weight, [_each(path, one, rank - 2) for one in (stride, padding, dilation, output_padding)], groups
    )
    if bias is None:
        return made
    path.require(bias.dim() == 1 and bool(sizes_equal(path, bias.shape[0], made.shape[1])), "a bias of each channel")
    return add(path, made, viewed(path, bias, [bias.shape[0], *[1] * (rank - 2)]))


def _convolved(path: Path, input: Any, weight: Any, options: list[list[Any]], groups: Any) -> SymbolicTensor:
    stride, padding, dilation, _ = options
    channels, inner, kernel = weight.shape[0], weight.shape[1], weight.shape[2:]
    path.require(integer(input.shape[1]) == integer(inner) * integer(groups), "channels of all groups")
    path.require(integer(channels) % integer(groups) == 0, "groups of equal size")
    each = _quotient(path, channels, groups)
    windows = [_Window(*one) for one in zip(input.shape[2:], kernel, stride, padding, dilation, strict=True)]

    def element(elements: Elements, index: Index) -> Any:
        batch, channel, *places = index
        first = z3.IntVal(0) if _is(groups, 1) else integer(channel) / integer(each) * integer(inner)

        def term(bound: list[Any]) -> Any:
            at = [window.place(one, k) for window, one, k in zip(windows, places, bound[1:], strict=True)]
            inside = [one for window, place in zip(windows, at, strict=True) for one in window.inside(place)]
            value = input.at(elements, (batch, z3.simplify(first + bound[0]), *at))
            value = _or_else(inside, value, elements.constant(0, input.dtype))
            factor = weight.at(elements, (channel, *bound))
            return elements.arithmetic("mul", value, factor, input.dtype)

        return fold(elements, product_kind(elements, input.dtype), [inner, *kernel], term)

    sizes = [input.shape[0], channels, *(window.count(path) for window in windows)]
    return SymbolicTensor.make(path, sizes, input.dtype, element)


def _transposed(path: Path, input: Any, weight: Any, options: list[list[Any]], groups: Any) -> SymbolicTensor:
    stride, padding, dilation, more = options
    rows, each, kernel = weight.shape[0], weight.shape[1], weight.shape[2:]
    path.require(integer(input.shape[1]) == integer(rows), "channels of all groups")
    path.require(integer(rows) % integer(groups) == 0, "groups of equal size")
    inner = _quotient(path, rows, groups)
    shape = input.shape[2:]
    sizes = []
    for size, k, s, p, d, rest in zip(shape, kernel, stride, padding, dilation, more, strict=True):
        path.require(z3.And(integer(s) > 0, integer(d) > 0), "strides and dilations that are positive")
        made = (size - 1) * s - 2 * p + d * (k - 1) + rest + 1
        path.require(integer(made) > 0, "a result with elements")
        sizes.append(made)

    def element(elements: Elements, index: Index) -> Any:
        batch, channel, *places = index
        group = z3.IntVal(0) if _is(groups, 1) else integer(channel) / integer(each)

        def term(bound: list[Any]) -> Any:
            row = z3.simplify(group * integer(inner) + bound[0])
            at, inside = [], []
            for one, size, k, s, p, d in zip(places, shape, bound[1:], stride, padding, dilation, strict=True):
                place = z3.simplify(integer(one) + integer(p) - k * integer(d))
                if not _is(s, 1):
                    inside.append(place % integer(s) == 0)
                    place = place / integer(s)
                inside += [place >= 0, place < integer(size)]
                at.append(place)
            value = _or_else(inside, input.at(elements, (batch, row, *at)), elements.constant(0, input.dtype))
            column = z3.simplify(integer(channel) - group * integer(each))
            factor = weight.at(elements, (row, column, *bound[1:]))
            return elements.arithmetic("mul", value, factor, input.dtype)

        return fold(elements, product_kind(elements, input.dtype), [inner, *kernel], term)

    return SymbolicTensor.make(path, [input.shape[0], each * groups, *sizes], input.dtype, element)


def _of_dims(*names: str) -> None:
    @meaning(*names)
    def run(
        path: Path, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: Any = 1,
    ) -> Any:  # fmt: skip
        if isinstance(padding, str):
            raise UnsupportedError("a padding that is a word")
        is_single = input.dim() == weight.dim() - 1
        batch = viewed(path, input, [1, *input.shape]) if is_single else input
        made = convolution(path, batch, weight, bias, stride, padding, dilation, False, [0], groups)
        return viewed(path, made, made.shape[1:]) if is_single else made


_of_dims("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default")


# Pools


def _windows(
    path: Path, tensor: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: Any
) -> tuple[list[_Window], int]:
    """Return the windows of the last dims, and how many dims are in front of them."""
    kernel = list(kernel) if isinstance(kernel, list | tuple) else [kernel]
    count = max(2, len(kernel))
    stride = kernel if isinstance(stride, list | tuple) and not stride else stride
    front = tensor.dim() - count
    path.require(front in (1, 2), "a dim of channels")
    options = [_each(path, one, count) for one in (kernel, stride, padding, dilation)]
    over = bool(ceil_mode)
    return [_Window(*one, is_over_end=over) for one in zip(tensor.shape[front:], *options, strict=True)], front


@meaning("aten.avg_pool2d.default")
def avg_pool2d(
    path: Path, self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: Any = False,
    count_include_pad: Any = True, divisor_override: Any = None,
) -> Any:  # fmt: skip
    """Means of windows, of which zeros around the input count as elements, or do not."""
    windows, front = _windows(path, self, kernel_size, stride, padding, 1, ceil_mode)
    path.formulas.add("means of windows")

    def element(elements: Elements, index: Index) -> Any:
        places = index[front:]

        def term(bound: list[Any]) -> Any:
            at = [window.place(one, k) for window, one, k in zip(windows, places, bound, strict=True)]
            inside = [one for window, place in zip(windows, at, strict=True) for one in window.inside(place)]
            return _or_else(inside, self.at(elements, (*index[:front], *at)), elements.constant(0, self.dtype))

        total = fold(elements, f"sum_{self.dtype}", [window.kernel for window in windows], term)
        if divisor_override is not None:
            count = integer(divisor_override)
        elif ceil_mode:
            parts = [
                window.padded_part(one) if count_include_pad else window.part(one)
                for window, one in zip(windows, places, strict=True)
            ]
            count = product(parts)
        elif count_include_pad or all(_is(window.padding, 0) for window in windows):
            count = integer(product([window.kernel for window in windows]))
        else:
            count = product([window.part(one) for window, one in zip(windows, places, strict=True)])
        if elements.is_real:
            return elements.arithmetic("div", total, z3.ToReal(count), self.dtype)
        return elements.function(f"mean_of_window_{self.dtype}", elements.sort(self.dtype), [total, count])

    return SymbolicTensor.make(path, [*self.shape[:front], *(one.count(path) for one in windows)], self.dtype, element)


def _max_pool(
    path: Path, self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
    ceil_mode: Any = False,
) -> SymbolicTensor:  # fmt: skip
    windows, front = _windows(path, self, kernel_size, stride, padding, dilation, ceil_mode)
    if not self.dtype.is_floating_point and (ceil_mode or not all(_is(window.padding, 0) for window in windows)):
        raise UnsupportedError("a padded maximum of integers")

    def element(elements: Elements, index: Index) -> Any:
        def term(bound: list[Any]) -> Any:
            at = [window.place(one, k) for window, one, k in zip(windows, index[front:], bound, strict=True)]
            inside = [one for window, place in zip(windows, at, strict=True) for one in window.inside(place)]
            value = self.at(elements, (*index[:front], *at))
            return _or_else(inside, value, elements.least(self.dtype)) if inside else value

        return fold(elements, f"amax_{self.dtype}", [window.kernel for window in windows], term)

    return SymbolicTensor.make(path, [*self.shape[:front], *(one.count(path) for one in windows)], self.dtype, element)


@meaning("aten.max_pool2d.default")
def max_pool2d(path: Path, self: Any, **options: Any) -> Any:
    """Maxima of windows."""
    return _max_pool(path, self, **options)


@meaning("aten.max_pool2d_with_indices.default")
def max_pool2d_with_indices(path: Path, self: Any, **options: Any) -> list[Any]:
    """Maxima of windows; where they are is not looked into."""
    return [_max_pool(path, self, **options), UnknownResult()]
