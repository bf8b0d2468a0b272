"""The planning algorithms that look for the smallest arena: many cheap heuristics, and a solver that proves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch.export import ExportGraphSignature

from exirkit.ir import TensorSpec

from .algorithms import ArenaPlan, MemoryAlgoResult, plan_by_arena
from .graph.arena_demand import placed_by
from .packing.demand import Demand, Placement
from .packing.exact import DEFAULT_WORK, exact_placement
from .packing.search import Effort, smallest_placement


def portfolio(
    alignment: int,
    specs: Iterable[TensorSpec],
    graph_module: torch.fx.GraphModule,
    graph_signature: ExportGraphSignature | None,
    extra_padding: int = 0,
    *,
    effort: float = 1.0,
) -> MemoryAlgoResult:
    """Plan memory by several heuristics, of which the smallest plan wins: the default.

    Each arena is packed in turn by offset in several orders (falling size, falling size times lifetime, number of
    conflicts, time), then by the official algorithm, whose result is compacted, then in orders that are changed step by
    step. The search ends as soon as a plan needs no more than the bytes live at the worst step, which no plan can beat.
    The same specs in the same order give the same plan.

    No arena is larger than `greedy` makes it, except where a tensor is pinned, and for arenas with more than 20,000
    memory objects, where the official algorithm is left out.

    Args:
        alignment: Every offset and size is a multiple of this many bytes.
        specs: Specs with lifetimes, each once, in order of appearance in the graph.
        graph_module: Not looked at.
        graph_signature: Not looked at.
        extra_padding: Bytes added to each arena that is used.
        effort: How long to search, as a multiple of the default: steps are counted, not seconds.

    Raises:
        UsageError, ModelError, ContractError: As `plan_by_arena`.
    """

    def place(demand: Demand, order: Sequence[int]) -> Placement:
        return smallest_placement(demand, order, Effort(effort))

    def plan_arena(members: Sequence[TensorSpec], alignment: int) -> ArenaPlan:
        return placed_by(members, alignment, place)

    return plan_by_arena(alignment, specs, extra_padding, plan_arena)


def exact(
    alignment: int,
    specs: Iterable[TensorSpec],
    graph_module: torch.fx.GraphModule,
    graph_signature: ExportGraphSignature | None,
    extra_padding: int = 0,
    *,
    work: float = DEFAULT_WORK,
) -> MemoryAlgoResult:
    """Plan memory as `portfolio` does, and let OR-tools improve on it where that is not proved to be the best.

    Needs the extra `planning`. One worker, a fixed seed and a budget that is no clock: the same specs in the same order
    give the same plan. Within the budget a few dozen tensors are solved; larger arenas keep what has been found.

    Args:
        alignment: Every offset and size is a multiple of this many bytes.
        specs: Specs with lifetimes, each once, in order of appearance in the graph.
        graph_module: Not looked at.
        graph_signature: Not looked at.
        extra_padding: Bytes added to each arena that is used.
        work: What the solver may do for one arena, in its deterministic unit of about a second.

    Raises:
        UsageError, ModelError, ContractError: As `plan_by_arena`; EK465, if OR-tools is not installed.
    """

    def place(demand: Demand, order: Sequence[int]) -> Placement:
        return exact_placement(demand, smallest_placement(demand, order), work).placement

    def plan_arena(members: Sequence[TensorSpec], alignment: int) -> ArenaPlan:
        return placed_by(members, alignment, place)

    return plan_by_arena(alignment, specs, extra_padding, plan_arena)
