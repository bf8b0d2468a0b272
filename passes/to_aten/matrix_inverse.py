"""Decomposition of the inverse of a matrix into steps of Gauss and Jordan."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

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
