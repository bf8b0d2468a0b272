"""Words about the order of a tensor's elements in memory."""

from __future__ import annotations

from typing import Any

import torch

from exirkit.ir import dim_order_from_stride
from exirkit.patterns.syntax.undecided import compare

from .words import tensor_facts, word


@word()
def stride(x: Any) -> list[Any]:
    """Steps in memory between neighbours, per dim."""
    return list(tensor_facts(x).stride())


@word()
def dim_order(x: Any) -> list[int]:
    """Dims from the slowest to the fastest in memory."""
    return list(dim_order_from_stride(tensor_facts(x).stride()))


@word()
def is_contiguous(x: Any) -> bool:
    """Whether elements stand row by row without gaps."""
    return bool(compare("==", stride(x), strides_for(x, torch.contiguous_format)) is True)


@word()
def channels_last(x: Any) -> bool:
    """Whether elements of a tensor of rank 4 stand with channels innermost."""
    found = tensor_facts(x)
    return found.dim() == 4 and compare("==", stride(x), strides_for(x, torch.channels_last)) is True


@word()
def strides_for(x: Any, memory_format: torch.memory_format) -> list[Any]:
    """Strides that a tensor of these sizes has in a memory format."""
    found = tensor_facts(x)
    sizes = list(found.shape)
    if memory_format is torch.preserve_format:
        return list(found.stride())
    order = list(range(found.dim()))
    if memory_format is torch.channels_last:
        if found.dim() != 4:
            raise ValueError("channels_last is for tensors of rank 4")
        order = [0, 2, 3, 1]
    elif memory_format is torch.channels_last_3d:
        if found.dim() != 5:
            raise ValueError("channels_last_3d is for tensors of rank 5")
        order = [0, 2, 3, 4, 1]
    made: list[Any] = [0] * found.dim()
    step: Any = 1
    for dim in reversed(order):
        made[dim] = step
        step = step * (sizes[dim] if not _is_zero(sizes[dim]) else 1)
    return made


def _is_zero(size: Any) -> bool:
    return compare("==", size, 0) is True
