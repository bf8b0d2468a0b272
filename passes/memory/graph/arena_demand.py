"""From the specs of one arena to numbers, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from exirkit.ir import TensorSpec
from exirkit.passes.memory.algorithms import ArenaPlan, aligned_nbytes, pinned_offset
from exirkit.passes.memory.packing.demand import Demand, Placement
from exirkit.passes.memory.packing.packers import groups_sharing_bytes


def arena_demand(members: Sequence[TensorSpec], alignment: int) -> tuple[Demand, list[int]]:
    """Return what an arena has to hold, and the place in `members` of each range.

    An empty tensor needs no byte, and sits at offset 0 without being in anybody's way.
    """
    demand = Demand([], [], [])
    kept: list[int] = []
    for index, spec in enumerate(members):
        size, pinned = aligned_nbytes(spec, alignment), pinned_offset(spec)
        if not size and pinned is None:
            continue
        first, last = spec.lifetime
        assert first is not None
        assert last is not None
        if pinned is not None:
            demand.pinned[len(kept)] = pinned
        demand.first.append(first)
        demand.last.append(last)
        demand.size.append(size)
        kept.append(index)
    return demand, kept


def arena_plan(placement: Placement, groups: Sequence[int], kept: Sequence[int], count: int) -> ArenaPlan:
    """Return the places of all members of an arena, from those of the ranges."""
    plan = ArenaPlan([0] * count, [0] * count, placement.height)
    for place, index in enumerate(kept):
        plan.offsets[index] = placement.offsets[place]
        plan.groups[index] = groups[place]
    return plan


def placed_by(
    members: Sequence[TensorSpec], alignment: int, place: Callable[[Demand, Sequence[int]], Placement]
) -> ArenaPlan:
    """Plan an arena with a function that takes the demand and the official order of its ranges."""
    demand, kept = arena_demand(members, alignment)
    placement = place(demand, official_order([members[index] for index in kept], demand.size))
    return arena_plan(placement, groups_sharing_bytes(placement.offsets, demand.size), kept, len(members))


def official_order(specs: Sequence[TensorSpec], sizes: Sequence[int]) -> list[int]:
    """Return the order of the official planner: falling size, and of equal sizes the last one first.

    It sorts by the sizes that specs have before the alignment of the plan is applied, and gives up where that is the
    finer one; the size of the plan comes first here, which makes no difference elsewhere.
    """
    return sorted(range(len(specs)), key=lambda index: (-sizes[index], -specs[index].allocated_memory, -index))
