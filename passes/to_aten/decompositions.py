"""Decompositions of operators that PyTorch's table does not cover."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from exirkit.ir import has_kernel

from .expressions import EXPRESSIONS
from .scatters import diagonal_scatter, select_scatter

_NEAREST = 1
_BORDER, _REFLECTION = 1, 2


def sampled_volume(
    volume: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Tensor:
    """`aten.grid_sampler_3d`: values of a volume at points, from the eight elements around each, or the nearest.

    Args:
        volume: `[N, C, D, H, W]`.
        grid: `[N, d, h, w, 3]`, the points as x, y and z, of which -1 and 1 are the ends.
        interpolation_mode: 0 for the eight around, 1 for the nearest.
        padding_mode: Beyond the ends, 0 for zeros, 1 for the element at the end, 2 for those mirrored at it.
        align_corners: Whether the ends are the middles of the outermost elements, and not their outer edges.

    Returns:
        `[N, C, d, h, w]`, of the dtype of the volume.
    """
    channels = volume.shape[1]
    # From the outermost dim to the innermost, as the sizes are.
    sizes = list(volume.shape[2:])
    points = [_point(grid[..., 2 - dim], size, padding_mode, align_corners) for dim, size in enumerate(sizes)]
    flat = volume.flatten(2)
    if interpolation_mode == _NEAREST:
        return _taken(flat, [torch.round(one) for one in points], sizes, channels)
    lower = [torch.floor(one) for one in points]
    total = None
    for corner in itertools.product((0, 1), repeat=3):
        weight = None
        for point, low, step in zip(points, lower, corner, strict=True):
            share = point - low if step else low + 1 - point
            weight = share if weight is None else weight * share
        found = _taken(flat, [low + step for low, step in zip(lower, corner, strict=True)], sizes, channels)
        term = found * weight.unsqueeze(1)  # type: ignore[union-attr]
        total = term if total is None else total + term
    assert total is not None
    return total


def _point(given: Tensor, size: int, padding_mode: int, align_corners: bool) -> Tensor:
    """Return where in a dim, counted in elements, points between -1 and 1 are."""
    point = (given + 1) / 2 * (size - 1) if align_corners else ((given + 1) * size - 1) / 2
    if padding_mode == _REFLECTION:
        point = _reflected(point, 0, 2 * (size - 1)) if align_corners else _reflected(point, -1, 2 * size - 1)
    return point.clamp(0, size - 1) if padding_mode in (_BORDER, _REFLECTION) else point


def _reflected(point: Tensor, twice_low: int, twice_high: int) -> Tensor:
    """Mirror points at both ends until they lie between them; the ends are given doubled."""
    if isinstance(twice_high, int) and twice_low == twice_high:
        return torch.zeros_like(point)
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    distance = (point - low).abs()
    flips = torch.floor(distance / span)
    extra = distance - flips * span
    is_even = flips - 2 * torch.floor(flips / 2) == 0
    return torch.where(is_even, extra + low, span - extra + low)


def _taken(flat: Tensor, places: list[Tensor], sizes: list[int], channels: int) -> Tensor:
    """Return the elements at whole places, `[N, C, d, h, w]`; zeros beyond the ends."""
    is_inside, index = None, None
    for place, size in zip(places, sizes, strict=True):
        inside = (place >= 0) & (place <= size - 1)
        # What is not a number is not inside, and no place.
        whole = torch.where(inside, place, 0).to(torch.int64)
        is_inside = inside if is_inside is None else is_inside & inside
        index = whole if index is None else index * size + whole
    assert is_inside is not None
    assert index is not None
    batch, *shape = index.shape
    rows = index.flatten(1).unsqueeze(1).expand(-1, channels, -1)
    found = flat.gather(2, rows).reshape(batch, channels, *shape)
    return torch.where(is_inside.unsqueeze(1), found, 0)


MOST_ROWS = 16
"""Of larger matrices the steps would be too many calls."""


def inverse(matrix: Tensor, *, check_errors: bool = False) -> Any:
    """`aten.linalg_inv_ex`: the inverses of square matrices, and which row was the first without a pivot.

    Args:
        matrix: `[*B, n, n]`, a floating dtype, with n of at most `MOST_ROWS`.
        check_errors: Whether to fail for what has no inverse; not supported.

    Returns:
        The inverses, and for each matrix 0 or the number of the row, from 1, as int32.
    """
    size = matrix.shape[-1]
    if check_errors or matrix.is_complex() or not isinstance(size, int) or not 0 < size <= MOST_ROWS:
        return NotImplemented
    rows = torch.arange(size, device=matrix.device)
    unit = torch.eye(size, dtype=matrix.dtype, device=matrix.device).expand(matrix.shape)
    left = torch.cat([matrix, unit], -1)
    info = torch.zeros(matrix.shape[:-2], dtype=torch.int32, device=matrix.device)
    for place in range(size):
        column = left[..., place]
        # The largest element of the column among the rows that are left.
        chosen = torch.where(rows >= place, column.abs(), -1.0).argmax(-1, keepdim=True)
        index = chosen.unsqueeze(-1).expand(*matrix.shape[:-2], 1, 2 * size)
        pivot_row, row = left.gather(-2, index), left.narrow(-2, place, 1)
        is_place, is_chosen = (rows == place).unsqueeze(-1), (rows == chosen).unsqueeze(-1)
        left = torch.where(is_place, pivot_row, torch.where(is_chosen, row, left))
        pivot = pivot_row[..., place : place + 1]
        is_missing = (pivot == 0).reshape(info.shape)
        info = torch.where(is_missing & (info == 0), torch.full_like(info, place + 1), info)
        scaled = pivot_row / pivot
        left = torch.where(is_place, scaled, left - left[..., place : place + 1] * scaled)
    return left[..., size:], info


def inverse_or_nothing(matrix: Tensor) -> Any:
    """`aten.linalg_inv`: the inverses; of a matrix without one, elements that are not finite where torch fails."""
    return torch.ops.aten.linalg_inv_ex.default(matrix)[0]


Joined = Callable[[Tensor, Tensor], Tensor]
Reduced = Callable[[Tensor, int], Tensor]


def running_product(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """`aten.cumprod`: the product of all elements up to each along a dim, integers as int64."""
    if x.is_complex() or (dtype is not None and dtype.is_complex):
        return NotImplemented
    is_whole = not x.is_floating_point()
    made = x.to(dtype if dtype is not None else torch.int64 if is_whole else x.dtype)
    return _scanned(made, dim, torch.mul, 1, lambda table, along: table.prod(along))


def running_maximum(x: Tensor, dim: int) -> Any:
    """`aten.cummax`: the largest element up to each along a dim, and where the last of these is."""
    return _running_extreme(x, dim, torch.maximum, torch.amax, is_least=False)


def running_minimum(x: Tensor, dim: int) -> Any:
    """`aten.cummin`: the smallest element up to each along a dim, and where the last of these is."""
    return _running_extreme(x, dim, torch.minimum, torch.amin, is_least=True)


def _running_extreme(x: Tensor, dim: int, join: Joined, reduce: Any, *, is_least: bool) -> Any:
    if x.is_complex():
        return NotImplemented
    if x.dtype is torch.bool:
        values, indices = _running_extreme(x.to(torch.uint8), dim, join, reduce, is_least=is_least)
        return values.to(torch.bool), indices
    values = _scanned(x, dim, join, _neutral(x.dtype, is_least), reduce)
    # An element that equals the extreme is the last one of its value so far. Nothing but itself follows what is not a
    # number.
    is_new = x == values
    if x.is_floating_point():
        is_new = is_new | (x != x)
    places = _scanned(torch.where(is_new, _places(x, dim), 0), dim, torch.maximum, 0, torch.amax)
    # Zeros of both signs are equal, and the last one is the extreme: `maximum` may give the other.
    return x.gather(dim, places) if x.is_floating_point() else values, places


def _neutral(dtype: torch.dtype, is_least: bool) -> float:
    if dtype.is_floating_point:
        return float("inf") if is_least else float("-inf")
    limits = torch.iinfo(dtype)
    return limits.max if is_least else limits.min


def running_log_sum(x: Tensor, dim: int) -> Any:
    """`aten.logcumsumexp`: the logarithm of the sum of exponentials of all elements up to each along a dim."""
    if not x.is_floating_point():
        return NotImplemented
    return _scanned(x, dim, _log_of_both, float("-inf"), lambda table, along: torch.logsumexp(table, along))


def _log_of_both(one: Tensor, other: Tensor) -> Tensor:
    greatest, least = torch.maximum(one, other), torch.minimum(one, other)
    # Infinities of one sign differ by what is not a number; they are their own sum.
    made = greatest + torch.log1p(torch.exp(least - greatest))
    return torch.where(greatest.abs() == float("inf"), greatest, made)


def most_frequent(x: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """`aten.mode`: the element that is there most often along a dim, the smallest of several, and where its last is.

    torch leaves open which of the places of the element it returns.
    """
    if x.dim() == 0 or x.is_complex() or not isinstance(x.shape[dim], int) or x.shape[dim] < 1:
        return NotImplemented
    if x.dtype is torch.bool:
        values, indices = most_frequent(x.to(torch.uint8), dim, keepdim)
        return values.to(torch.bool), indices
    size = x.shape[dim]
    ordered = torch.sort(x, dim)[0]
    places = _places(x, dim).expand(x.shape)
    if size > 1:
        first, differs = places.narrow(dim, 0, 1), ordered.narrow(dim, 1, size - 1) != ordered.narrow(dim, 0, size - 1)
        starts = torch.cat([first, torch.where(differs, places.narrow(dim, 1, size - 1), 0)], dim)
        length = places - _scanned(starts, dim, torch.maximum, 0, torch.amax)
    else:
        length = places
    # The first of equally long runs is that of the smallest element.
    values = ordered.gather(dim, length.argmax(dim, keepdim=True))
    indices = torch.where(x == values, places, 0).amax(dim, keepdim=True)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))


def _places(x: Tensor, dim: int) -> Tensor:
    """Return the places along a dim, in a shape that broadcasts with the tensor."""
    dim %= max(x.dim(), 1)
    places = torch.arange(x.shape[dim] if x.dim() else 1, device=x.device)
    return places.reshape([-1 if one == dim else 1 for one in range(x.dim())])


def _scanned(x: Tensor, dim: int, join: Joined, neutral: float, reduce: Reduced) -> Tensor:
    """Join each element with all in front of it.

    Args:
        x: The elements.
        dim: Along which dim.
        join: Joins two; associative.
        neutral: What changes nothing it is joined with.
        reduce: Joins all along a dim.
    """
    if x.dim() == 0:
        return x.clone()
    dim %= x.dim()
    size = x.shape[dim]
    if not isinstance(size, int):
        places = torch.arange(size, device=x.device)
        is_reached = places.unsqueeze(0) <= places.unsqueeze(1)
        table = torch.where(is_reached, x.movedim(dim, -1).unsqueeze(-2), x.new_full([], neutral))
        return reduce(table, -1).movedim(-1, dim)
    reach = 1
    while reach < size:
        joined = join(x.narrow(dim, reach, size - reach), x.narrow(dim, 0, size - reach))
        x = torch.cat([x.narrow(dim, 0, reach), joined], dim)
        reach *= 2
    # As torch makes room for the results of all of them.
    return x.clone(memory_format=torch.contiguous_format) if size < 2 else x


aten = torch.ops.aten


def histogram(x: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """`aten.histc`: count how many elements lie in each of `bins` intervals of one length between two bounds.

    Args:
        x: Any shape, a floating dtype.
        bins: How many intervals.
        min: Lower bound; where both are equal, the bounds are the least and the greatest element.
        max: Upper bound, which is in the last interval.

    Returns:
        The counts, `[bins]`, of the dtype of `x`.
    """
    flat = x.reshape(-1)
    counts = x.new_zeros([bins])
    if flat.shape[0] == 0:
        return counts
    low, high = _bounds(flat, float(min), float(max))
    # What is not a number is in no interval: it fails both comparisons.
    inside = (flat >= low) & (flat <= high)
    kept = torch.where(inside, flat, low)
    place = ((kept - low) * bins / (high - low)).to(torch.int64).clamp(max=bins - 1)
    return counts.scatter_add(0, place, inside.to(x.dtype))


def _bounds(flat: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Return the bounds of a histogram as tensors without dims."""
    if low != high:
        return flat.new_full([], low), flat.new_full([], high)
    if low != 0.0:
        # torch reads equal bounds as none given, whatever they are.
        return _bounds(flat, 0.0, 0.0)
    least, greatest = flat.amin(), flat.amax()
    widened = (least == greatest).to(flat.dtype)
    return least - widened, greatest + widened


def histogram_and_edges(
    x: Tensor,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    """`aten.histogram.bin_ct`: how many elements, or their weights, lie in intervals of one length, and their ends."""
    flat = x.reshape(-1)
    if range is not None or flat.shape[0] == 0:
        low, high = (float(one) for one in range or (0.0, 1.0))
        if low == high:
            low, high = low - 0.5, high + 0.5
        least, greatest = flat.new_full([], low), flat.new_full([], high)
    else:
        least, greatest = flat.amin(), flat.amax()
        half = (least == greatest).to(flat.dtype) * 0.5
        least, greatest = least - half, greatest + half
    places = torch.arange(bins + 1, dtype=flat.dtype, device=flat.device)
    step = (greatest - least) / bins
    # From the nearer end, so that both ends are exact.
    edges = torch.where(places < (bins + 1) // 2, least + step * places, greatest - step * (bins - places))
    inside = (flat >= least) & (flat <= greatest)
    kept = torch.where(inside, flat, least)
    place = ((kept - least) * bins / (greatest - least)).to(torch.int64).clamp(0, bins - 1)
    # What was rounded across an edge.
    place = place - (kept < edges[place]).to(torch.int64)
    place = (place + (kept >= edges[place + 1]).to(torch.int64)).clamp(max=bins - 1)
    return _counted(inside, place, edges, weight, density), edges


def histogram_between(x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False) -> Any:
    """`aten.histogram.bins_tensor`: how many elements, or their weights, lie between ends, and the ends."""
    flat, count = x.reshape(-1), bins.shape[0] - 1
    if not isinstance(count, int) or count < 1:
        return NotImplemented
    inside = (flat >= bins[0]) & (flat <= bins[count])
    place = ((bins.unsqueeze(0) <= flat.unsqueeze(1)).sum(-1) - 1).clamp(0, count - 1)
    return _counted(inside, place, bins, weight, density), bins.clone()


def _counted(inside: Tensor, place: Tensor, edges: Tensor, weight: Tensor | None, density: bool) -> Tensor:
    """Add up the weights, ones if none are given, of what is inside, by places."""
    given = torch.ones_like(place, dtype=edges.dtype) if weight is None else weight.reshape(-1)
    counts = edges.new_zeros([edges.shape[0] - 1]).scatter_add(0, place, torch.where(inside, given, 0))
    return counts / counts.sum() / (edges[1:] - edges[:-1]) if density else counts


def grouped_product(rows: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
    """Multiply each group of rows with a matrix of its own: the product of a mixture of experts.

    With more rows than matrices, all products are computed and chosen from; otherwise each row gets its matrix.

    Args:
        rows: `[S, D]`, sorted by group.
        weights: `[G, D, O]`.
        ends: `[G]`, the row behind each group, not decreasing. Rows behind the last group give zeros.

    Returns:
        The products, `[S, O]`.
    """
    groups, count = weights.shape[0], rows.shape[0]
    positions = torch.arange(count, device=rows.device)
    group = (ends.to(torch.int64).unsqueeze(0) <= positions.unsqueeze(1)).sum(1)
    has_group = (group < groups).unsqueeze(1)
    chosen = group.clamp(max=groups - 1)
    if isinstance(count, int) and count <= groups:
        product = torch.bmm(rows.unsqueeze(1), weights[chosen]).squeeze(1)
    else:
        every = torch.bmm(rows.unsqueeze(0).expand(groups, -1, -1), weights)
        # Chosen, not masked and added: what another matrix makes of a row may be infinite.
        product = every[chosen, positions]
    return torch.where(has_group, product, product.new_zeros([]))


def grouped_mm(a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """`aten._grouped_mm` of rows in groups, or of two batches."""
    if bias is not None or out_dtype not in (None, a.dtype):
        return NotImplemented
    if offs is None:
        return torch.bmm(a, b) if a.dim() == 3 and b.dim() == 3 else NotImplemented
    return grouped_product(a, b, offs) if a.dim() == 2 and b.dim() == 3 else NotImplemented


def integer_product(a: Tensor, b: Tensor) -> Tensor:
    """`aten._int_mm`: the product of two matrices of int8, added up in int32."""
    return torch.mm(a.to(torch.int32), b.to(torch.int32))


def attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """`aten._scaled_dot_product_flash_attention_for_cpu_backward`: the gradients of query, key and value.

    The weights of the attention are computed again: what torch decomposes the forward operator to does not return
    `logsumexp`, whatever the place of its second result is called.

    Args:
        grad_out: `[..., L, E]`, the gradient of the result.
        query: `[..., L, D]`.
        key: `[..., S, D]`.
        value: `[..., S, E]`.
        out: The result.
        logsumexp: Not used.
        dropout_p: 0; the operator knows nothing else.
        is_causal: Whether row i sees no column behind i.
        attn_mask: `[..., L, S]`, added to the scores, or True where they count.
        scale: Factor of the scores; 1 / sqrt(D) unless given.
    """
    del logsumexp, dropout_p
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * factor) @ key.transpose(-2, -1)
    if is_causal:
        rows = torch.arange(query.shape[-2], device=query.device).unsqueeze(1)
        columns = torch.arange(key.shape[-2], device=query.device).unsqueeze(0)
        scores = scores.masked_fill(columns > rows, -math.inf)
    if attn_mask is not None:
        is_bool = attn_mask.dtype is torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if is_bool else scores + attn_mask
    weights = torch.softmax(scores, -1)
    if attn_mask is not None:
        # A row that sees nothing has weights of zero.
        weights = torch.where((scores == -math.inf).all(-1, keepdim=True), torch.zeros_like(weights), weights)
    grad_weights = grad_out @ value.transpose(-2, -1)
    # The sum over columns of what the softmax takes back is that of the result.
    grad_scores = weights * (grad_weights - (grad_out * out).sum(-1, keepdim=True)) * factor
    return grad_scores @ key, grad_scores.transpose(-2, -1) @ query, weights.transpose(-2, -1) @ grad_out


def empty_permuted(size: Any, physical_layout: Any, **options: Any) -> Tensor:
    """`aten.empty_permuted`: memory in an order of dims, which is a permutation of memory in row-major order."""
    made: Tensor = aten.empty.memory_format([size[dim] for dim in physical_layout], **options)
    if list(physical_layout) == sorted(physical_layout):
        return made
    return made.permute([physical_layout.index(dim) for dim in range(len(size))])


def stable_sort(x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> Any:
    """`aten.sort.stable` as the core operator, which leaves open in which order equal elements come.

    One that must keep them in order stays: `legalize-sorts` takes both.
    """
    return NotImplemented if stable else aten.sort.default(x, dim, descending)


def places_among(
    boundaries: Tensor,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    """`aten.searchsorted`: how many sorted boundaries are behind each value; what is not a number is behind all.

    Args:
        boundaries: `[n]`, or `[*B, n]` for values `[*B, m]`.
        values: Tensor or number.
        out_int32: Whether the result is int32 instead of int64.
        right: Whether a boundary that equals the value counts.
        side: `right` for the same, or `left`.
        sorter: The order in which the boundaries are sorted, if they are not.
    """
    # How many are behind a value does not depend on their order.
    del sorter
    wanted = values.unsqueeze(-1) if isinstance(values, Tensor) else values
    limits = boundaries if boundaries.dim() == 1 else boundaries.unsqueeze(-2)
    beyond = limits > wanted if right or side == "right" else limits >= wanted
    return (~beyond).sum(-1).to(torch.int32 if out_int32 else torch.int64)


def bucket_of(values: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Any:
    """`aten.bucketize`: the places of values among sorted boundaries."""
    return places_among(boundaries, values, out_int32=out_int32, right=right)


def kth_value(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """`aten.kthvalue`: the k-th least values along a dim, and where they are."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, indices = torch.sort(x, dim)
    chosen = [one.select(dim, k - 1) for one in (values, indices)]
    return tuple(one.unsqueeze(dim) if keepdim else one for one in chosen)


def median_of_all(x: Tensor) -> Any:
    """`aten.median`: the middle element, the lower one of two; not a number if one element is not."""
    if isinstance(x.numel(), int) and x.numel() == 0:
        least = float("nan") if x.is_floating_point() else torch.iinfo(x.dtype).min
        return torch.full((), least, dtype=x.dtype)
    made = median_along(x.reshape(-1), 0)
    return made if made is NotImplemented else made[0]


def median_along(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """`aten.median.dim`: the middle elements along a dim, and where they are."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    if not isinstance(x.shape[dim], int) or x.shape[dim] < 1:
        return NotImplemented
    size = x.shape[dim]
    values, indices = torch.sort(x, dim)
    if not x.is_floating_point():
        chosen = [one.narrow(dim, (size - 1) // 2, 1) for one in (values, indices)]
    else:
        # What is not a number is last; the first of these is the median if there is one.
        unknown = (values != values).sum(dim, keepdim=True)
        place = torch.where(unknown > 0, size - unknown, (size - 1) // 2)
        chosen = [one.gather(dim, place) for one in (values, indices)]
    return tuple(one if keepdim else one.squeeze(dim) for one in chosen)


def adaptive_max_pool(x: Tensor, output_size: Sequence[int]) -> Any:
    """`aten.adaptive_max_pool2d` and `3d`: the largest of windows that cover the input, and where they are.

    Windows of one size are those of a plain pooling. Others are examined one by one; what is not used of that goes.
    """
    dims = len(output_size)
    sizes = list(x.shape[-dims:])
    if not all(isinstance(size, int) and size > 0 for size in (*sizes, *output_size)):
        return NotImplemented
    if all(size % out == 0 for size, out in zip(sizes, output_size, strict=True)):
        window = [size // out for size, out in zip(sizes, output_size, strict=True)]
        pool = aten.max_pool2d_with_indices if dims == 2 else aten.max_pool3d_with_indices
        return pool.default(x, window, window)
    along = [
        [(place * size // out, -(-(place + 1) * size // out)) for place in range(out)]
        for size, out in zip(sizes, output_size, strict=True)
    ]
    values = x
    for dim, windows in enumerate(along, start=-dims):
        parts = [values.narrow(dim, start, end - start).amax(dim, keepdim=True) for start, end in windows]
        values = torch.cat(parts, dim)
    found = [_place_of_largest(x, corner, sizes) for corner in itertools.product(*along)]
    return values, torch.stack(found, -1).reshape(values.shape)


def _place_of_largest(x: Tensor, window: Sequence[tuple[int, int]], sizes: Sequence[int]) -> Tensor:
    """Return where in the last dims the largest element of a window is, counted in row-major order."""
    part = x
    for dim, (start, end) in enumerate(window, start=-len(window)):
        part = part.narrow(dim, start, end - start)
    left = part.flatten(-len(window)).argmax(-1)
    place, stride = torch.zeros_like(left), 1
    for (start, end), size in zip(reversed(window), reversed(sizes), strict=True):
        rest = torch.div(left, end - start, rounding_mode="floor")
        place = place + (left - rest * (end - start) + start) * stride
        left, stride = rest, stride * size
    return place


_BY_OPERATOR: Mapping[Any, Callable[..., Any]] = {
    aten.histc.default: histogram,
    aten._grouped_mm.default: grouped_mm,
    aten._int_mm.default: integer_product,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attention_backward,
    aten.empty_permuted.default: empty_permuted,
    aten.diagonal_scatter.default: diagonal_scatter,
    aten.select_scatter.default: select_scatter,
    aten.sort.stable: stable_sort,
    aten.searchsorted.Tensor: places_among,
    aten.searchsorted.Scalar: places_among,
    aten.bucketize.Tensor: bucket_of,
    aten.bucketize.Scalar: bucket_of,
    aten.kthvalue.default: kth_value,
    aten.median.default: median_of_all,
    aten.median.dim: median_along,
    aten.adaptive_max_pool2d.default: adaptive_max_pool,
    aten.adaptive_max_pool3d.default: adaptive_max_pool,
    aten.cumprod.default: running_product,
    aten.cummax.default: running_maximum,
    aten.cummin.default: running_minimum,
    aten.logcumsumexp.default: running_log_sum,
    aten.mode.default: most_frequent,
    aten.grid_sampler_3d.default: sampled_volume,
    aten.histogram.bin_ct: histogram_and_edges,
    aten.histogram.bins_tensor: histogram_between,
    aten.linalg_inv.default: inverse_or_nothing,
    aten.linalg_inv_ex.default: inverse,
}

# Operators of other libraries, which exist once these are imported.
_BY_NAME: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("transformers::grouped_mm_fallback", ""): grouped_product,
}


def further_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return the decompositions by operator; those of other libraries where they are imported."""
    table = {**EXPRESSIONS, **_BY_OPERATOR}
    for (name, overload), function in _BY_NAME.items():
        if has_kernel(f"{name}.{overload}" if overload else name):
            namespace, operator = name.split("::")
            packet = getattr(getattr(torch.ops, namespace), operator)
            table[getattr(packet, overload or "default")] = function
    return table
