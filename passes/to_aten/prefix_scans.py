"""Decompositions of running products, extremes and sums of exponentials along a dim, and of what they help to find.

A scan over n elements of known number takes log2(n) steps: after step k each element stands for the 2**k elements up to
it. Where the number varies, every element is computed from a row of its own in a table of n by n.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

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
    places = torch.where(is_new, _places(x, dim), 0)
    return values, _scanned(places, dim, torch.maximum, 0, torch.amax)


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
    return x.clone() if size < 2 else x
