"""The planning algorithm without reuse: every tensor has bytes of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch.export import ExportGraphSignature

from exirkit.ir import TensorSpec

from .algorithms import ArenaPlan, MemoryAlgoResult, aligned_nbytes, pinned_offset, plan_by_arena


def naive(
    alignment: int,
    specs: Iterable[TensorSpec],
    graph_module: torch.fx.GraphModule,
    graph_signature: ExportGraphSignature | None,
    extra_padding: int = 0,
) -> MemoryAlgoResult:
    """Plan memory one tensor after another; the upper bound that other algorithms are measured against.

    Useful to find out whether a wrong result comes from memory that is reused too early. Pinned tensors keep
    their offset and the others follow after the last of them.

    Args:
        alignment: Every offset and size is a multiple of this many bytes.
        specs: Specs with lifetimes, each once, in order of appearance in the graph.
        graph_module: Not looked at.
        graph_signature: Not looked at.
        extra_padding: Bytes added to each arena that is used.

    Raises:
        UsageError, ModelError, ContractError: As `plan_by_arena`.
    """
    return plan_by_arena(alignment, specs, extra_padding, _plan_arena)


def _plan_arena(members: Sequence[TensorSpec], alignment: int) -> ArenaPlan:
    pins = [pinned_offset(spec) for spec in members]
    end = max(
        (pin + aligned_nbytes(spec, alignment) for spec, pin in zip(members, pins, strict=True) if pin is not None),
        default=0,
    )
    plan = ArenaPlan([], list(range(len(members))), -(-end // alignment) * alignment)
    for spec, pin in zip(members, pins, strict=True):
        plan.offsets.append(plan.nbytes if pin is None else pin)
        if pin is None:
            plan.nbytes += aligned_nbytes(spec, alignment)
    return plan
