"""The planning algorithm of the official exporter, for comparison and for whoever needs its places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch.export import ExportGraphSignature

from exirkit.ir import TensorSpec

from .algorithms import ArenaPlan, MemoryAlgoResult, plan_by_arena
from .graph.arena_demand import arena_demand, arena_plan, official_order, placed_by
from .packing.search import smallest_placement
from .packing.shared_objects import pack_shared_objects


def greedy(
    alignment: int,
    specs: Iterable[TensorSpec],
    graph_module: torch.fx.GraphModule,
    graph_signature: ExportGraphSignature | None,
    extra_padding: int = 0,
    *,
    allow_overlapping_allocations: bool = True,
) -> MemoryAlgoResult:
    """Plan memory with reuse of whole objects, each tensor at the place that the official planner gives it.

    `portfolio`, the default, never needs more bytes. The official algorithm knows no pinned tensors; an arena with one,
    or with more than 20,000 memory objects, is planned as `portfolio` does.

    Args:
        alignment: Every offset and size is a multiple of this many bytes.
        specs: Specs with lifetimes, each once, in order of appearance in the graph.
        graph_module: Not looked at.
        graph_signature: Not looked at.
        extra_padding: Bytes added to each arena that is used.
        allow_overlapping_allocations: If False, two tensors share either all of a memory object or nothing: no tensor
            lies above another inside an object.

    Raises:
        UsageError, ModelError, ContractError: As `plan_by_arena`.
    """

    def plan_arena(members: Sequence[TensorSpec], alignment: int) -> ArenaPlan:
        demand, kept = arena_demand(members, alignment)
        order = official_order([members[index] for index in kept], demand.size)
        if not demand.pinned:
            packed = pack_shared_objects(demand, order, above_others=allow_overlapping_allocations)
            if packed is not None:
                return arena_plan(packed[0], packed[1], kept, len(members))
        return placed_by(members, alignment, smallest_placement)

    return plan_by_arena(alignment, specs, extra_padding, plan_arena)
