"""Sizes as numbers, orders of dims as memory formats, and dtypes as the numbers of the file format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import sympy
import torch

from exirkit.emit import ScalarType
from exirkit.ir import Dim, GuardOnDataDependentSymNode, UsageError, dim_order_from_memory_format

CHANNELS_LAST = (0, 2, 3, 1)
"""Order of dims of `torch.channels_last`."""


def eval_expr(size: Dim) -> int | None:
    """Return the size of the example that the program was exported with, or None if only the data decides it."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    try:
        return int(size.node.shape_env.guarding_hint_or_throw(size.node.expr))
    except GuardOnDataDependentSymNode:
        return None


def eval_shape(shape: Iterable[Dim]) -> list[int | None]:
    """Return the sizes of the example, None for each that only the data decides."""
    return [eval_expr(size) for size in shape]


def eval_upper_bound(size: Dim) -> int:
    """Return the largest value of a size; that of the example, if its range has no end.

    Raises:
        UsageError: EK758, the range has no end and only the data decides the size.
    """
    if not isinstance(size, torch.SymInt):
        return int(size)
    upper = size.node.shape_env.bound_sympy(size.node.expr).upper
    if isinstance(upper, sympy.Integer):
        return int(upper)
    example = eval_expr(size)
    if example is None:
        raise UsageError(code="EK758", message=f"size {size.node.expr} has no upper bound")
    return example


def eval_shape_upper_bound(shape: Iterable[Dim]) -> list[int]:
    """Return the largest value of each size.

    Raises:
        UsageError: EK758, as for `eval_upper_bound`.
    """
    return [eval_upper_bound(size) for size in shape]


def collect_free_symbols(shape: Iterable[Dim]) -> set[sympy.Symbol]:
    """Return the symbols that a shape depends on."""
    found: set[sympy.Symbol] = set()
    for size in shape:
        if isinstance(size, torch.SymInt):
            found |= size.node.expr.free_symbols
    return found


def get_dim_order(memory_format: torch.memory_format | None, ndim: int) -> list[int] | None:
    """Return the order of dims, outermost first, of a memory format.

    Args:
        memory_format: The format; None or `torch.preserve_format` stand for none in particular.
        ndim: Number of dims.

    Returns:
        The order, or None for none in particular.

    Raises:
        UsageError: The format is not one for so many dims.
    """
    if memory_format is None or memory_format is torch.preserve_format:
        return None
    return list(dim_order_from_memory_format(memory_format, ndim))


def get_memory_format(dim_order: Sequence[int] | None) -> torch.memory_format:
    """Return the memory format of an order of dims.

    Raises:
        UsageError: EK759, no memory format stands for it.
    """
    if dim_order is None:
        return torch.preserve_format
    order = tuple(dim_order)
    if order == tuple(range(len(order))):
        return torch.contiguous_format
    if order == CHANNELS_LAST:
        return torch.channels_last
    raise UsageError(code="EK759", message=f"no memory format stands for the dim order {list(order)}")


def is_channel_last_dim_order(tensor: torch.Tensor) -> bool:
    """Return whether a tensor of four dims has its channels innermost."""
    return tensor.dim() == len(CHANNELS_LAST) and tuple(tensor.dim_order()) == CHANNELS_LAST


def is_contiguous_dim_order(tensor: torch.Tensor) -> bool:
    """Return whether the dims of a tensor are in their order in memory."""
    return tuple(tensor.dim_order()) == tuple(range(tensor.dim()))


def num_bytes_from_shape_and_dtype(shape: Sequence[int], dtype: torch.dtype) -> int:
    """Return how many bytes the elements of a tensor take."""
    return math.prod(shape) * dtype.itemsize


def scalar_type_enum(dtype: torch.dtype) -> ScalarType:
    """Return the number of a dtype in program files.

    Raises:
        UsageError: Files have no such dtype.
    """
    return ScalarType.from_dtype(dtype)


def is_shape_dynamic(node: Any) -> bool:
    """Return whether a size of a node's value is symbolic."""
    value = node.meta["val"]
    return any(isinstance(size, torch.SymInt) for size in value.shape)
