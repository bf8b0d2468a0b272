"""The default planning algorithm: several cheap heuristics, of which the smallest plan wins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch.export import ExportGraphSignature

from exirkit.ir import TensorSpec

from .algorithms import ArenaPlan, MemoryAlgoResult, aligned_nbytes, pinned_offset, plan_by_arena
from .packing import Demand, Placement, groups_sharing_bytes
from .search import smallest_placement
from .shared_objects import pack_shared_objects


def greedy(
    alignment: int,
    specs: Iterable[TensorSpec],
    graph_module: torch.fx.GraphModule,
    graph_signature: ExportGraphSignature | None,
    extra_padding: int = 0,
    *,
    allow_overlapping_allocations: bool = True,
) -> MemoryAlgoResult:
    """Plan memory with reuse; no arena is larger than the official planner's greedy algorithm makes it.

    Each arena is packed in turn by offset in several orders (falling size, falling size times lifetime,
    number of conflicts, time), then by the official shared-object heuristic, whose result is compacted. The
    search ends as soon as a plan needs no more than the bytes live at the worst step, which no plan can beat.
    The same specs in the same order give the same plan.

    The bound by the official plan does not hold where a tensor is pinned, and for arenas with more than 20,000 memory
    objects, where the official heuristic is left out.

    Args:
        alignment: Every offset and size is a multiple of this many bytes.
        specs: Specs with lifetimes, each once, in order of appearance in the graph.
        graph_module: Not looked at.
        graph_signature: Not looked at.
        extra_padding: Bytes added to each arena that is used.
        allow_overlapping_allocations: If False, two tensors share either all of a memory object or nothing:
            only the shared-object heuristic is used, and no tensor lies above another inside an object.

    Raises:
        UsageError, ModelError, ContractError: As `plan_by_arena`.
    """

    def plan_arena(members: Sequence[TensorSpec], alignment: int) -> ArenaPlan:
        return _plan_arena(members, alignment, allow_overlapping_allocations)

    return plan_by_arena(alignment, specs, extra_padding, plan_arena)


def _plan_arena(members: Sequence[TensorSpec], alignment: int, overlapping: bool) -> ArenaPlan:
    sizes = [aligned_nbytes(spec, alignment) for spec in members]
    # An empty tensor needs no byte, and sits at offset 0 without being in anybody's way.
    kept = [index for index, size in enumerate(sizes) if size or pinned_offset(members[index]) is not None]
    demand = Demand([], [], [])
    for place, index in enumerate(kept):
        spec = members[index]
        first, last = spec.lifetime
        assert first is not None
        assert last is not None
        demand.first.append(first)
        demand.last.append(last)
        demand.size.append(sizes[index])
        pinned = pinned_offset(spec)
        if pinned is not None:
            demand.pinned[place] = pinned
    official_order = _official_order([members[index] for index in kept], demand.size)
    if not overlapping and not demand.pinned:
        packed = pack_shared_objects(demand, official_order, above_others=False)
        if packed is not None:
            return _spread(packed[0], packed[1], kept, len(members))
    placement = smallest_placement(demand, official_order)
    return _spread(placement, groups_sharing_bytes(placement.offsets, demand.size), kept, len(members))


def _spread(placement: Placement, groups: Sequence[int], kept: Sequence[int], count: int) -> ArenaPlan:
    plan = ArenaPlan([0] * count, [0] * count, placement.height)
    for place, index in enumerate(kept):
        plan.offsets[index] = placement.offsets[place]
        plan.groups[index] = groups[place]
    return plan


def _official_order(specs: Sequence[TensorSpec], sizes: Sequence[int]) -> list[int]:
    """Return the order of the official planner: falling size, and of equal sizes the last one first.

    It sorts by the sizes that specs have before the alignment of the plan is applied, and gives up where that is the
    finer one; the size of the plan comes first here, which makes no difference elsewhere.
    """
    return sorted(range(len(specs)), key=lambda index: (-sizes[index], -specs[index].allocated_memory, -index))
