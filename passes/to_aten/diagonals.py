"""What is written onto diagonals."""

from __future__ import annotations

from typing import Any

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
