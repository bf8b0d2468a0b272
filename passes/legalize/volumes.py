"""Convolution and pooling of three dims in terms of two, for runtimes whose kernels have two."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from exirkit.ir import GraphEditor, ModelError, locate, ops

from .edge_calls import CallLegalization, EdgeCalls

aten = ops.edge.aten


class LegalizeVolumes(CallLegalization):
    """Replace convolutions and poolings of `[N, C, D, H, W]` by those of `[N * D, C, H, W]`.

    A convolution is the sum of the convolutions of the planes under each plane of the kernel. A transposed one puts
    planes of zeros between the planes first. The largest of a window is the largest of the largest of its planes, and a
    mean the sum of sums of planes, divided by their counts.

    Raises:
        ModelError: EK437, sizes vary that have to be known, or the indices of a pooling are used.

    Before: `%y = aten.convolution.default(%x, %w, %b, [1, 1, 1], [0, 0, 0], [1, 1, 1], False, [0, 0, 0], 1)`
    After: the planes of the kernel, for each a slice of the planes, `aten.convolution.default`, and the sum of all
    """

    name = "legalize-volumes"

    def made(self, calls: EdgeCalls) -> Node:
        """Compute a convolution or a mean."""
        return _MADE_BY[calls.node.target](_Volume(calls))

    @staticmethod
    def concerns(node: Node) -> bool:
        """Whether the pass would replace a node."""
        if node.target is aten.convolution.default:
            weight: Any = node.args[1]
            return bool(weight.meta["val"].dim() == 5)
        return node.target is aten.max_pool3d_with_indices.default or node.target in _MADE_BY

    def put(self, editor: GraphEditor, node: Node) -> None:
        """Replace a call; of a pooling with indices, the results that are used."""
        if node.target is not aten.max_pool3d_with_indices.default:
            super().put(editor, node)
            return
        uses: list[tuple[Node, Any]] = [(user, user.args[1]) for user in node.users]
        used = {place for user, place in uses if user.users}
        made = _max_pool(_Volume(EdgeCalls(editor, node)), with_indices=1 in used) if used else []
        for user, place in uses:
            if user.users:
                editor.replace(user, made[place])
            editor.erase(user)
        editor.erase(node)


def _rejection(node: Node, why: str) -> ModelError:
    return ModelError(
        code="EK437",
        message=f"{node.target} cannot be computed plane by plane: {why}",
        location=locate(node),
    )


class _Volume:
    """One call, its input as planes, and the calls that are made for it.

    Planes are `[N, D, C, H, W]`; a convolution of two dims sees them as `[N * D, C, H, W]`.
    """

    def __init__(self, calls: EdgeCalls) -> None:
        self.calls = calls
        self.node = node = calls.node
        self.source: Any = node.args[0]
        value = node.meta["val"]
        self.value: torch.Tensor = value[0] if isinstance(value, list | tuple) else value
        self.shape: Sequence[Any] = self.value.shape

    @property
    def is_batched(self) -> bool:
        return len(self.shape) == 5

    def planes(self) -> Node:
        varying = [size for size in self.source.meta["val"].shape if not isinstance(size, int)]
        if len(varying) > 1:
            raise _rejection(self.node, f"{len(varying)} sizes of its input vary")
        source = self.source if self.is_batched else self.calls(aten.unsqueeze_copy.default, self.source, 0)
        return self.calls.permute(source, [0, 2, 1, 3, 4])

    def volume(self, planes: Node, value: torch.Tensor | None = None) -> Node:
        """Turn planes into a result, which is the first one unless it is given."""
        value, dims = self.value if value is None else value, [0, 2, 1, 3, 4]
        if self.is_batched:
            # Sizes that vary are known by the expressions that the program had for them.
            return self.calls.given_value(value, aten.permute_copy.default, planes, dims)
        made = self.calls.permute(planes, dims)
        return self.calls.given_value(value, aten.squeeze_copy.dims, made, [0])

    def padded(self, planes: Node, before: int, after: int, value: float) -> Node:
        """Add planes of one value at both ends, or take some away."""
        if before < 0 or after < 0:
            planes = self.calls(
                aten.slice_copy.Tensor, planes, 1, max(-before, 0), -max(-after, 0) if after < 0 else 2**63 - 1
            )
            before, after = max(before, 0), max(after, 0)
        if before == after == 0:
            return planes
        return self.calls(aten.constant_pad_nd.default, planes, [0, 0, 0, 0, 0, 0, before, after], value)

    def taken(self, planes: Node, offset: int, reach: int, stride: int) -> Node:
        """Return the planes under one plane of a kernel that reaches over so many planes behind its first one."""
        # Counted from the other end, so that the number of planes may vary.
        end = offset - reach if offset < reach else 2**63 - 1
        if offset == 0 and stride == 1 and reach == 0:
            return planes
        return self.calls(aten.slice_copy.Tensor, planes, 1, offset, end, stride)

    def flat(self, planes: Node) -> Node:
        """Join batch and planes."""
        batch, depth, *rest = planes.meta["val"].shape
        return self._viewed(planes, [_product(batch, depth), *rest])

    def unflat(self, flat: Node, like: Node) -> Node:
        """Split batch and planes as they are in `like`."""
        return self._viewed(flat, [*like.meta["val"].shape[:2], *flat.meta["val"].shape[1:]])

    def _viewed(self, tensor: Node, sizes: Sequence[Any]) -> Node:
        known = [size if isinstance(size, int) else -1 for size in sizes]
        if known.count(-1) > 1:
            raise _rejection(self.node, "more than one size varies")
        return self.calls.view(tensor, known)

    def summed(self, terms: Sequence[Node]) -> Node:
        total = terms[0]
        for term in terms[1:]:
            total = self.calls(aten.add.Tensor, total, term)
        return total


def _product(one: Any, other: Any) -> int | None:
    """Return the product of two sizes, or None if it varies."""
    return one * other if isinstance(one, int) and isinstance(other, int) else None


def _convolution(volume: _Volume) -> Node:
    calls = volume.calls
    weight, bias, stride, padding, dilation, is_transposed, extra, groups = calls.given(
        "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups"
    )
    stride, padding, dilation, extra = (_three(one) for one in (stride, padding, dilation, extra))
    depth = weight.meta["val"].shape[2]
    reach = dilation[0] * (depth - 1)
    planes = volume.planes()
    if is_transposed:
        planes = _spread(volume, planes, stride[0])
        planes = volume.padded(planes, reach - padding[0], reach - padding[0] + extra[0], 0.0)
    else:
        planes = volume.padded(planes, padding[0], padding[0], 0.0)
    step = 1 if is_transposed else stride[0]
    terms = []
    for place in range(depth):
        under = volume.taken(planes, place * dilation[0], reach, step)
        kernel = calls(aten.select_copy.int, weight, 2, depth - 1 - place if is_transposed else place)
        made = calls(
            aten.convolution.default,
            volume.flat(under),
            kernel,
            # Added once.
            bias if place == 0 else None,
            stride[1:],
            padding[1:],
            dilation[1:],
            is_transposed,
            extra[1:],
            groups,
        )
        terms.append(volume.unflat(made, under))
    return volume.volume(volume.summed(terms))


def _spread(volume: _Volume, planes: Node, stride: int) -> Node:
    """Put planes of zeros between the planes."""
    if stride == 1:
        return planes
    calls = volume.calls
    apart = calls(aten.unsqueeze_copy.default, planes, 2)
    apart = calls(aten.constant_pad_nd.default, apart, [0, 0, 0, 0, 0, 0, 0, stride - 1], 0.0)
    batch, depth, *rest = planes.meta["val"].shape
    together = volume._viewed(apart, [batch, _product(depth, stride), *rest])
    return calls(aten.slice_copy.Tensor, together, 1, 0, 1 - stride)


def _max_pool(volume: _Volume, *, with_indices: bool) -> list[Node]:
    """Return the largest values, and where they are if that is asked for."""
    calls = volume.calls
    kernel, stride, padding, dilation, is_ceil = _window(calls, "dilation")
    dtype: torch.dtype = volume.source.meta["val"].dtype
    least = -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min
    planes = volume.planes()
    pooled = calls(
        aten.max_pool2d_with_indices.default, volume.flat(planes), kernel[1:], stride[1:], padding[1:], dilation[1:],
        is_ceil,
    )  # fmt: skip
    reach = dilation[0] * (kernel[0] - 1)
    behind = _behind(volume, padding[0], reach, stride[0], is_ceil)

    def under_the_kernel(result: int, beyond: float) -> list[Node]:
        """Return what the pooling of planes gives for each plane of the kernel."""
        made = volume.unflat(calls(operator.getitem, pooled, result), planes)
        if result == 1:
            made = calls(aten.add.Tensor, made, _first_places(volume))
        made = volume.padded(made, padding[0], behind, beyond)
        return [volume.taken(made, place * dilation[0], reach, stride[0]) for place in range(kernel[0])]

    values = under_the_kernel(0, least)
    largest = values[0]
    for term in values[1:]:
        largest = calls(aten.maximum.default, largest, term)
    found = [volume.volume(largest)]
    if with_indices:
        places = under_the_kernel(1, _BEYOND)
        found.append(volume.volume(_place_of_largest(calls, values, places), volume.node.meta["val"][1]))
    return found


_BEYOND = -1
"""Where what is in the padding is."""


def _first_places(volume: _Volume) -> Node:
    """Return where each plane begins, `[1, D, 1, 1, 1]`, counted in elements."""
    depth, *sizes = volume.source.meta["val"].shape[-3:]
    if not all(isinstance(size, int) for size in (depth, *sizes)):
        raise _rejection(volume.node, "the indices of a pooling of three dims are used, and its sizes vary")
    size = math.prod(sizes)
    calls = volume.calls
    places = calls(aten.arange.start_step, 0, depth * size, size, dtype=torch.int64)
    return calls.view(places, [1, depth, 1, 1, 1])


def _place_of_largest(calls: EdgeCalls, values: Sequence[Node], places: Sequence[Node]) -> Node:
    """Return the places of the largest of some planes: the first of equal ones, the last that is not a number."""
    largest, place = values[0], places[0]
    for value, where in zip(values[1:], places[1:], strict=True):
        is_larger = calls(aten.gt.Tensor, value, largest)
        if value.meta["val"].dtype.is_floating_point:
            is_larger = calls(aten.logical_or.default, is_larger, calls(aten.ne.Tensor, value, value))
        # The first element of a window has its place, even if no other number is less.
        is_taken = calls(aten.logical_or.default, is_larger, calls(aten.lt.Scalar, place, 0))
        largest = calls(aten.where.self, is_taken, value, largest)
        place = calls(aten.where.self, is_taken, where, place)
    return place


def _mean_pool(volume: _Volume) -> Node:
    calls = volume.calls
    kernel, stride, padding, is_ceil = _window(calls)
    counts_padding, divisor = calls.given("count_include_pad", "divisor_override")
    source = volume.source.meta["val"].shape
    if not all(isinstance(size, int) for size in (*source[-3:], *volume.shape[-3:])):
        raise _rejection(volume.node, "the sizes of windows depend on sizes that vary")
    planes = volume.planes()
    sums = calls(
        aten.avg_pool2d.default, volume.flat(planes), kernel[1:], stride[1:], padding[1:], is_ceil, counts_padding, 1
    )
    planes = volume.unflat(sums, planes)
    reach = kernel[0] - 1
    planes = volume.padded(planes, padding[0], _behind(volume, padding[0], reach, stride[0], is_ceil), 0.0)
    total = volume.summed([volume.taken(planes, place, reach, stride[0]) for place in range(kernel[0])])
    if divisor is not None:
        return volume.volume(_quotient(calls, total, divisor))
    sizes = [
        _counts(int(size), int(out), *window, includes_padding=counts_padding)
        for size, out, *window in zip(source[-3:], volume.shape[-3:], kernel, stride, padding, strict=True)
    ]
    return volume.volume(_divided(calls, total, sizes))


def _adaptive_mean_pool(volume: _Volume) -> Node:
    depth, out = volume.source.meta["val"].shape[-3], volume.shape[-3]
    if not isinstance(depth, int) or not isinstance(out, int):
        raise _rejection(volume.node, "the depth varies, and windows with it")
    calls = volume.calls
    planes = volume.planes()
    flat = calls(aten._adaptive_avg_pool2d.default, volume.flat(planes), list(volume.shape[-2:]))
    means = volume.unflat(flat, planes)
    parts = []
    for place in range(out):
        start, end = place * depth // out, -(-(place + 1) * depth // out)
        window = calls(aten.slice_copy.Tensor, means, 1, start, end)
        parts.append(window if end - start == 1 else calls(aten.mean.dim, window, [1], True))
    return volume.volume(parts[0] if out == 1 else calls(aten.cat.default, parts, 1))


def _divided(calls: EdgeCalls, total: Node, counts: list[list[int]]) -> Node:
    """Divide planes `[N, D, C, H, W]` by products of counts along depth, height and width."""
    if all(len(set(one)) <= 1 for one in counts):
        number = math.prod(one[0] for one in counts if one)
        return _quotient(calls, total, number)
    for dim, along in zip((1, 3, 4), counts, strict=True):
        parts = [
            _quotient(calls, calls(aten.slice_copy.Tensor, total, dim, start, end), count)
            for start, end, count in _runs(along)
        ]
        total = parts[0] if len(parts) == 1 else calls(aten.cat.default, parts, dim)
    return total


def _quotient(calls: EdgeCalls, total: Node, number: int) -> Node:
    """Divide by a number; means of integers are rounded towards zero."""
    dtype = total.meta["val"].dtype
    if dtype.is_floating_point:
        return calls(aten.div.Scalar, total, number)
    return calls(aten.div.Tensor_mode, total, calls(aten.full.default, [], number, dtype=dtype), rounding_mode="trunc")


def _runs(numbers: list[int]) -> list[tuple[int, int, int]]:
    """Return where equal numbers begin and end."""
    found: list[tuple[int, int, int]] = []
    for place, number in enumerate(numbers):
        if found and found[-1][2] == number:
            found[-1] = (found[-1][0], place + 1, number)
        else:
            found.append((place, place + 1, number))
    return found


def _counts(size: int, out: int, kernel: int, stride: int, padding: int, *, includes_padding: bool) -> list[int]:
    """Return how many elements each window along a dim has."""
    found = []
    for place in range(out):
        start = place * stride - padding
        end = min(start + kernel, size + padding)
        found.append(end - start if includes_padding else min(end, size) - max(start, 0))
    return found


def _window(calls: EdgeCalls, *more: str) -> list[Any]:
    """Return kernel, stride, padding and more of a pooling, each three numbers, and whether sizes are rounded up."""
    kernel, stride, padding, *others, is_ceil = calls.given("kernel_size", "stride", "padding", *more, "ceil_mode")
    kernel = _three(kernel)
    return [kernel, _three(stride) if stride else kernel, _three(padding), *map(_three, others), is_ceil]


def _three(given: Any) -> list[int]:
    numbers = list(given) if isinstance(given, list | tuple) else [given]
    return numbers * 3 if len(numbers) == 1 else numbers


def _behind(volume: _Volume, padding: int, reach: int, stride: int, is_ceil: bool) -> int:
    """Return how many planes there must be behind the last one: windows may begin there if sizes are rounded up."""
    if not is_ceil:
        return padding
    depth, out = volume.source.meta["val"].shape[-3], volume.shape[-3]
    if not isinstance(depth, int) or not isinstance(out, int):
        raise _rejection(volume.node, "the depth varies, and sizes are rounded up")
    return max((out - 1) * stride + reach + 1 - depth - padding, padding)


_MADE_BY: Mapping[Any, Callable[[_Volume], Node]] = {
    aten.convolution.default: _convolution,
    aten.avg_pool3d.default: _mean_pool,
    aten._adaptive_avg_pool3d.default: _adaptive_mean_pool,
}
