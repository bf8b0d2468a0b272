"""Functions that stand for memory in graphs of the ExecuTorch dialect.

They are targets of `call_function` nodes. The emitter turns none of them into a kernel call; they are
executable so that the graph can be run and interpreted on torch as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch

from exirkit.ir.dim_order import Dim, sample_ints
from exirkit.ir.tensor_spec import TensorSpec

AllocSpec: TypeAlias = "tuple[Sequence[Dim], torch.dtype]"


def alloc(spec: AllocSpec | list[AllocSpec]) -> torch.Tensor | list[torch.Tensor]:
    """Return uninitialised memory for one out tensor, or a list of them.

    `%add = aten.add.Tensor(%x, %y)` becomes `%alloc = alloc(((2, 3), float32))` and
    `%add = aten.add.out(%x, %y, out=%alloc)`. Both nodes carry the same `TensorSpec` object in
    `meta["spec"]`; planning gives it a place in an arena.

    Args:
        spec: Sizes and dtype of the tensor, or a list of such pairs. A symbolic size counts as its hint.
    """
    if isinstance(spec, list):
        return [_empty(one) for one in spec]
    return _empty(spec)


def free(spec: TensorSpec) -> None:
    """Mark the step after which the runtime may release an unbounded tensor; does nothing on torch."""


def view(base: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """Return `base` with another shape of equally many elements, in the same memory.

    The spec of such a node has the base's spec as its `storage_base`: no copy is made and no kernel runs.
    """
    return base.view(size)


def _empty(spec: AllocSpec) -> torch.Tensor:
    sizes, dtype = spec
    return torch.empty(sample_ints(sizes), dtype=dtype)
