"""Decomposition of sampling a volume at points that a grid names."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

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
    batch, channels = volume.shape[:2]
    # From the outermost dim to the innermost, as the sizes are.
    sizes = list(volume.shape[2:])
    points = [_point(grid[..., 2 - dim], size, padding_mode, align_corners) for dim, size in enumerate(sizes)]
    flat = volume.reshape(batch, channels, -1)
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
    rows = index.reshape(batch, 1, -1).expand(-1, channels, -1)
    found = flat.gather(2, rows).reshape(batch, channels, *shape)
    return torch.where(is_inside.unsqueeze(1), found, 0)
