"""Elements that are written to a part of a tensor: onto a diagonal, or to one place of a dim."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


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
    return made.reshape(last.shape).permute([order.index(dim) for dim in range(x.dim())])


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
