"""Inference for operators that copy what a view would show, where sizes are dynamic.

torch infers `permute_copy` and its kin by a view and a copy of it, and compares strides on the way: a guard on sizes
on which no result depends. Here the view is inferred, and the copy is row-major, as the kernels make it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses import FakeTensor
from torch.utils import _pytree as pytree

from exirkit.ir.dim_order import contiguous_stride
from exirkit.ir.graph.metadata import same_argument

from .meta_tensors import bare_tensor

# What it shows depends on where its source lies in memory.
_BY_ADDRESS = torch.ops.aten.as_strided_copy.default


@cache
def view_of_copy(op: Any) -> OpOverload | None:
    """Return the view whose result the operator copies, `aten.permute` for `aten.permute_copy`, or None."""
    if not isinstance(op, OpOverload) or op is _BY_ADDRESS or torch.Tag.view_copy not in op.tags:
        return None
    namespace, _, name = op._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_copy"), None)
    view = getattr(packet, op._overloadname, None)
    return view if isinstance(view, OpOverload) and view is not op else None


def infer_view_copy(view: OpOverload, args: Any, kwargs: Any) -> Any:
    """Return the copy of what a view of fake tensors shows; called under their mode."""
    args, kwargs = pytree.tree_map_only(torch.Tensor, _row_major, (args, kwargs))
    if view is torch.ops.aten.view.default and (sizes := _resolved(*args)) is not None:
        return _empty(args[0], sizes)
    if view is torch.ops.aten.select.int and not isinstance(args[0].shape[args[1]], int):
        # torch asks whether the selected part ends inside of the memory, which it cannot tell of products of sizes.
        dim = args[1] % args[0].dim()
        return _empty(args[0], [*args[0].shape[:dim], *args[0].shape[dim + 1 :]])
    return pytree.tree_map_only(torch.Tensor, _row_major, view(*args, **kwargs))


def _resolved(source: torch.Tensor, sizes: Sequence[Any]) -> list[Any] | None:
    """Return the sizes of a view with the -1 among them worked out, or None where that takes a guard.

    torch asks whether old and new sizes are equal before it asks whether they hold equally many elements.
    """
    free = [place for place, size in enumerate(sizes) if type(size) is int and size == -1]
    known = math.prod(size for place, size in enumerate(sizes) if place not in free)
    if len(free) > 1 or same_argument(known, 0) or any(type(size) is int and size < -1 for size in sizes):
        return None
    resolved = list(sizes)
    for place in free:
        resolved[place] = source.numel() // known
    return resolved if same_argument(math.prod(resolved), source.numel()) else None


def _row_major(value: torch.Tensor) -> torch.Tensor:
    return _empty(value, value.shape)


def _empty(like: torch.Tensor, sizes: Sequence[Any]) -> torch.Tensor:
    assert isinstance(like, FakeTensor)
    return FakeTensor(like.fake_mode, bare_tensor(like.dtype, sizes, contiguous_stride(sizes)), like.device)
