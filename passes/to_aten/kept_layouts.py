"""Decompositions into views whose result has the layout of the argument, as that of the operator has.

Copies for views are row-major, and so is what is computed from them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _is_channels_last(x: Tensor) -> bool:
    return x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)


def gated_half(x: Tensor, dim: int = -1) -> Tensor:
    """`aten.glu`: one half of a dim times the sigmoid of the other.

    Args:
        x: What is channels last is copied here: with views the product would be channels last already, and no longer
            once they become copies.
        dim: The dim, of an even size.
    """
    wide: Tensor = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    if not _is_channels_last(x):
        first, second = wide.tensor_split(2, dim)
        gated: Tensor = (first * torch.sigmoid(second)).to(x.dtype)
        return gated
    half = x.shape[dim] // 2
    first, second = (aten.slice_copy.Tensor(wide, dim, place * half, (place + 1) * half) for place in (0, 1))
    copied: Tensor = (first * torch.sigmoid(second)).to(x.dtype)
    return copied.contiguous(memory_format=torch.channels_last)


def diagonal_scatter(x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """`aten.diagonal_scatter`: other elements on a diagonal of two dims, which is a slice of both in a row.

    Args:
        x: Of known sizes in both dims.
        src: The elements of the diagonal, along the last dim.
        offset: How far the diagonal is above the main one.
        dim1: The dim of the rows.
        dim2: The dim of the columns.
    """
    ends = [dim % x.dim() for dim in (dim1, dim2)]
    rows, columns = (x.shape[dim] for dim in ends)
    if not isinstance(rows, int) or not isinstance(columns, int):
        return NotImplemented
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    if count == 0:
        return x.clone()
    others = [dim for dim in range(x.dim()) if dim not in ends]
    order = [*others, *ends]
    last = x.permute(order)
    start, step = max(offset, 0) - min(offset, 0) * columns, columns + 1
    flat = last.reshape([*last.shape[:-2], rows * columns])
    made = flat.slice_scatter(src, -1, start, start + (count - 1) * step + 1, step)
    back = [order.index(dim) for dim in range(x.dim())]
    if not _is_channels_last(x):
        return made.reshape(last.shape).permute(back)
    # A view could be channels last already, and would no longer be once it becomes a copy.
    copied: Tensor = aten.permute_copy.default(made.reshape(last.shape), back)
    return copied.contiguous(memory_format=torch.channels_last)


def select_scatter(x: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """`aten.select_scatter`: other elements at one place of a dim, in the layout of the tensor around them.

    The tensor stands in front of the elements, of which copies for views make row-major ones: a choice has the layout
    of what it is offered first.

    Args:
        x: The tensor.
        src: The elements.
        dim: The dim, which they lack.
        index: The place.
    """
    size = x.shape[dim]
    places = torch.arange(size, device=x.device).view([-1 if one == dim % x.dim() else 1 for one in range(x.dim())])
    return torch.where(places != (index + size if index < 0 else index), x, src.unsqueeze(dim).to(x.dtype))
