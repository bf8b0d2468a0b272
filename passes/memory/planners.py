"""The planners under their names, over problems in plain numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias

from torch.export import ExportGraphSignature
from torch.fx import GraphModule

from exirkit.ir import ContractError, Diagnostic, Location, ModelError, TensorSpec, UsageError

from .packing.search import (
    DEFAULT_WORK,
    Effort,
    ProvedPlacement,
    exact_placement,
    pack_shared_objects,
    smallest_placement,
)
from .problem import (
    Alternatives,
    Demand,
    Placement,
    PlannedValue,
    PlanningProblem,
    PlanningResult,
    Pool,
    Timeline,
    groups_sharing_bytes,
    lower_bound,
    storage_roots,
)

DemandPlanner = Callable[[Demand], Placement | ProvedPlacement]


def solve_planning_problem(problem: PlanningProblem, planner: str | DemandPlanner = "portfolio") -> PlanningResult:
    """Place the values of a problem.

    Values without bytes lie at offset 0 and do not conflict with any others, unless they are pinned. Values with
    a base lie in it, and keep it for as long as they are needed.

    Args:
        problem: What to place; bases must not form a cycle, and what is pinned must not overlap.
        planner: One of `PLANNERS`, or a function that places the ranges of one pool.

    Raises:
        UsageError: EK465, if the exact planner is asked for and OR-tools is not installed.
        KeyError: If there is no planner of that name.
    """
    place = planner_named(planner)
    timeline = Timeline(problem.bodies, problem.values)
    alternatives = Alternatives(problem.bodies) if len(problem.bodies) > 1 else None
    roots = storage_roots(problem.values)
    spans: dict[int, tuple[int, int]] = {}
    for value, (root, _) in zip(problem.values, roots, strict=True):
        first, last = timeline.span(value)
        known = spans.get(root)
        spans[root] = (first, last) if known is None else (min(first, known[0]), max(last, known[1]))
    result = PlanningResult([0] * len(problem.values), {}, {}, {})
    pools: dict[int, list[int]] = {}
    for root in spans:
        pools.setdefault(problem.values[root].pool, []).append(root)
    for number, members in sorted(pools.items()):
        _fill(problem, number, members, spans, alternatives, place, result)
    for index, (root, offset) in enumerate(roots):
        if root != index:
            result.offsets[index] = result.offsets[root] + offset
    return result


def planner_named(planner: str | DemandPlanner) -> DemandPlanner:
    """Return the planner of a name; anything else is one already."""
    return PLANNERS[planner] if isinstance(planner, str) else planner


def _fill(
    problem: PlanningProblem,
    number: int,
    members: list[int],
    spans: dict[int, tuple[int, int]],
    alternatives: Alternatives | None,
    place: DemandPlanner,
    result: PlanningResult,
) -> None:
    pool = problem.pools.get(number, Pool())
    demand, kept = _demand(problem, pool, members, spans, alternatives)
    answer = place(demand)
    placement = answer.placement if isinstance(answer, ProvedPlacement) else answer
    for index, offset in zip(kept, placement.offsets, strict=True):
        result.offsets[index] = offset
    result.pool_nbytes[number] = placement.height
    result.lower_bounds[number] = answer.bound if isinstance(answer, ProvedPlacement) else lower_bound(demand)
    if pool.limit is not None and placement.height > pool.limit:
        result.over_limit[number] = placement.height - pool.limit


def _demand(
    problem: PlanningProblem,
    pool: Pool,
    members: list[int],
    spans: dict[int, tuple[int, int]],
    alternatives: Alternatives | None,
) -> tuple[Demand, list[int]]:
    """Return what a pool has to hold, and the value of each range."""
    demand = Demand([], [], [])
    kept: list[int] = []
    units: list[int] = []
    with_bodies = bool(alternatives)
    for index in members:
        value = problem.values[index]
        if not value.nbytes and value.pinned is None:
            continue
        if value.pinned is not None:
            demand.pinned[len(kept)] = value.pinned
        first, last = spans[index]
        demand.first.append(first)
        demand.last.append(last)
        demand.size.append(value.nbytes + -value.nbytes % pool.alignment)
        units.append(math.lcm(value.alignment, pool.alignment))
        if with_bodies:
            demand.body.append(value.body)
        if problem.official_nbytes:
            demand.official_size.append(problem.official_nbytes[index])
        kept.append(index)
    if with_bodies:
        demand.alternatives = alternatives
    common = math.lcm(*units)
    if any(size % common for size in demand.size) or any(offset % common for offset in demand.pinned.values()):
        demand.alignment = units
    return demand, kept


def naive_placement(demand: Demand) -> Placement:
    """Give every range bytes of its own, after what is pinned."""
    offsets = [0] * len(demand)
    end = 0
    for index, offset in demand.pinned.items():
        offsets[index] = offset
        end = max(end, offset + demand.size[index])
    for index, size in enumerate(demand.size):
        if index not in demand.pinned:
            offsets[index] = demand.aligned(index, end)
            end = offsets[index] + size
    return Placement(offsets, end)


def official_placement(demand: Demand, *, above_others: bool = True) -> Placement:
    """Place as the official planner's greedy algorithm does; it knows of no alternatives.

    What it does not know either: where something is pinned, or there are too many objects to keep account of, the
    portfolio plans; ranges of different alignment are rounded up to the largest.

    Args:
        demand: What to place.
        above_others: Whether a range may lie inside a memory object above ranges that are needed at the same time.
    """
    if demand.alignment:
        unit = math.lcm(*demand.alignment)
        demand = replace(demand, size=[size + -size % unit for size in demand.size], alignment=[])
    packed = None if demand.pinned else pack_shared_objects(demand, above_others=above_others)
    return smallest_placement(demand) if packed is None else packed


PLANNERS: dict[str, DemandPlanner] = {
    "naive": naive_placement,
    "greedy": official_placement,
    "portfolio": smallest_placement,
    "exact": exact_placement,
}


DEFAULT_ARENA = 1


@dataclass(slots=True)
class SpecAllocResult:
    """The place of one tensor.

    Attributes:
        mem_id: Arena, counted from 1.
        mem_obj_id: Number of the group of tensors in this arena that share bytes; None for a tensor pinned by
            the user.
        mem_offset: First byte in the arena.
    """

    mem_id: int
    mem_obj_id: int | None
    mem_offset: int


@dataclass(slots=True)
class MemoryAlgoResult:
    """A plan.

    Attributes:
        spec_dict: The place of each spec.
        bufsizes: Bytes of each arena by its number; entry 0 stands for constants and is 0.
    """

    spec_dict: dict[TensorSpec, SpecAllocResult]
    bufsizes: list[int]


MemoryAlgorithm: TypeAlias = Callable[..., Any]
"""Returns a `MemoryAlgoResult`, or writes into the specs itself and returns the buffer sizes as a list."""


def naive(
    alignment: int,
    specs: Iterable[TensorSpec],
    graph_module: GraphModule,
    graph_signature: ExportGraphSignature | None,
    extra_padding: int = 0,
) -> MemoryAlgoResult:
    """Plan memory one tensor after another; the upper bound that other algorithms are measured against.

    Useful to find out whether a wrong result comes from memory that is reused too early. Pinned tensors keep their
    offset and the others follow after the last of them. For the arguments and errors see `planned`.
    """
    return planned(naive_placement, alignment, specs, extra_padding)


def greedy(
    alignment: int,
    specs: Iterable[TensorSpec],
    graph_module: GraphModule,
    graph_signature: ExportGraphSignature | None,
    extra_padding: int = 0,
    *,
    allow_overlapping_allocations: bool = True,
) -> MemoryAlgoResult:
    """Plan memory with reuse of whole objects, each tensor at the place that the official planner gives it.

    `portfolio`, the default, never needs more bytes. The official algorithm knows no pinned tensors; an arena with one,
    or with more than 20,000 memory objects, is planned as `portfolio` does. For the arguments and errors see `planned`.

    Args:
        alignment: As of `planned`.
        specs: As of `planned`.
        graph_module: Not used.
        graph_signature: Not used.
        extra_padding: As of `planned`.
        allow_overlapping_allocations: If False, two tensors share either all of a memory object or nothing: no tensor
            lies above another inside an object.
    """
    place = partial(official_placement, above_others=allow_overlapping_allocations)
    return planned(place, alignment, specs, extra_padding)


def portfolio(
    alignment: int,
    specs: Iterable[TensorSpec],
    graph_module: GraphModule,
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
        alignment: As of `planned`.
        specs: As of `planned`.
        graph_module: Not used.
        graph_signature: Not used.
        extra_padding: As of `planned`.
        effort: How long to search, as a multiple of the default: steps are counted, not seconds.
    """
    return planned(partial(smallest_placement, effort=Effort(effort)), alignment, specs, extra_padding)


def exact(
    alignment: int,
    specs: Iterable[TensorSpec],
    graph_module: GraphModule,
    graph_signature: ExportGraphSignature | None,
    extra_padding: int = 0,
    *,
    work: float = DEFAULT_WORK,
) -> MemoryAlgoResult:
    """Plan memory as `portfolio` does, and let OR-tools improve on it where that is not proved to be the best.

    Needs the extra `planning`. One worker, a fixed seed and a budget that is not a clock: the same specs in the same
    order give the same plan. Within the budget a few dozen tensors are solved; larger arenas keep what has been found.

    Args:
        alignment: As of `planned`.
        specs: As of `planned`.
        graph_module: Not used.
        graph_signature: Not used.
        extra_padding: As of `planned`.
        work: What the solver may do for one arena, in its deterministic unit of about a second.

    Raises:
        UsageError: EK465, if OR-tools is not installed.
    """
    return planned(partial(exact_placement, work=work), alignment, specs, extra_padding)


ALGORITHMS: Mapping[str, MemoryAlgorithm] = MappingProxyType(
    {"portfolio": portfolio, "greedy": greedy, "naive": naive, "exact": exact}
)
"""The planning algorithms under the names that policies use."""


def planned(
    planner: DemandPlanner, alignment: int, specs: Iterable[TensorSpec], extra_padding: int
) -> MemoryAlgoResult:
    """Plan specs with a planner of numbers: the adapter behind every documented algorithm.

    Args:
        planner: Places the ranges of one arena.
        alignment: Every offset and size is a multiple of this many bytes.
        specs: Specs with lifetimes, each once, in order of appearance in the graph. A spec with `storage_base` takes
            the memory of its base, which must be planned as well.
        extra_padding: Bytes added to each arena that is used.

    Raises:
        UsageError: EK453, EK459, EK463 for an arena number, an alignment or a lifetime that cannot be planned
            with.
        ModelError: EK451, if a shape is not bounded yet.
        ContractError: EK462, if the base of a view is not among the specs; EK458, if bases form a cycle.
    """
    check_alignment(alignment)
    listed = list(dict.fromkeys(specs))
    roots = [spec for spec in listed if spec.storage_base is None]
    for spec in roots:
        _check_plannable(spec)
    values = [
        PlannedValue(
            aligned_nbytes(spec, alignment),
            spec.lifetime[0] or 0,
            spec.lifetime[1] or 0,
            pool=arena_of(spec),
            pinned=pinned_offset(spec),
        )
        for spec in roots
    ]
    problem = PlanningProblem(values, official_nbytes=[spec.allocated_memory for spec in roots])
    result = result_of(solve_planning_problem(problem, planner), values, roots, extra_padding)
    for spec in listed:
        if spec.storage_base is not None:
            result.spec_dict[spec] = place_view(spec, result.spec_dict)
    return result


def result_of(
    plan: PlanningResult, values: Sequence[PlannedValue], specs: Sequence[TensorSpec], extra_padding: int
) -> MemoryAlgoResult:
    """Return a plan of numbers in the documented form.

    Args:
        plan: The plan.
        values: What was planned.
        specs: The spec of each value.
        extra_padding: Bytes added to each arena that is used.
    """
    sizes = plan.pool_nbytes
    result = MemoryAlgoResult({}, [0] * (max(sizes, default=DEFAULT_ARENA) + 1))
    for mem_id, nbytes in sizes.items():
        result.bufsizes[mem_id] = nbytes + extra_padding
        inside = [place for place, value in enumerate(values) if value.pool == mem_id]
        offsets = [plan.offsets[place] for place in inside]
        groups = groups_sharing_bytes(offsets, [values[place].nbytes for place in inside])
        for place, offset, group in zip(inside, offsets, groups, strict=True):
            pinned = values[place].pinned is not None
            result.spec_dict[specs[place]] = SpecAllocResult(mem_id, None if pinned else group, offset)
    return result


def arena_of(spec: TensorSpec) -> int:
    """Return the arena that a spec requests, 1 if it has no request."""
    mem_id = DEFAULT_ARENA if spec.mem_id is None else spec.mem_id
    if type(mem_id) is not int or mem_id < 1:
        raise UsageError(
            code="EK453",
            message=f"arena {mem_id!r} cannot be planned",
            location=Location(text=repr(spec)),
        )
    return mem_id


def pinned_offset(spec: TensorSpec) -> int | None:
    """Return the offset in bytes that the user fixed for a spec, or None.

    A spec is pinned by setting `mem_offset` and leaving `mem_obj_id` at None; planning always sets both, so
    that the result of an earlier run is not mistaken for a request.
    """
    return spec.mem_offset if spec.mem_obj_id is None else None


def aligned_nbytes(spec: TensorSpec, alignment: int) -> int:
    """Return the size of a spec in bytes, rounded up to the alignment."""
    return -(-spec.nbytes() // alignment) * alignment


def storage_root(spec: TensorSpec) -> tuple[TensorSpec, int]:
    """Return the spec that owns the memory of a view, and the view's first byte in it.

    Raises:
        ContractError: EK458, if the chain of bases is cyclic.
    """
    root, offset_bytes, seen = spec, 0, {spec}
    while root.storage_base is not None:
        offset_bytes += root.storage_offset_bytes
        root = root.storage_base
        if root in seen:
            raise ContractError(
                code="EK458",
                message="a chain of `storage_base` leads back to its start",
                location=Location(text=repr(spec)),
            )
        seen.add(root)
    return root, offset_bytes


def place_view(spec: TensorSpec, places: Mapping[TensorSpec, SpecAllocResult]) -> SpecAllocResult:
    """Return the place of a view, from that of the spec which owns its memory."""
    root, offset_bytes = storage_root(spec)
    place = places.get(root)
    if place is None:
        raise ContractError(
            code="EK462",
            message="the base of a view is not planned",
            location=Location(text=repr(spec)),
            notes=(f"its base is {root!r}",),
        )
    return SpecAllocResult(place.mem_id, place.mem_obj_id, place.mem_offset + offset_bytes)


def write_place(spec: TensorSpec, place: SpecAllocResult) -> None:
    """Write a place into a spec."""
    spec.mem_id, spec.mem_obj_id, spec.mem_offset = place.mem_id, place.mem_obj_id, place.mem_offset


def write_view(spec: TensorSpec) -> bool:
    """Write the place of a view into its spec, and return whether the owner of its memory has a place itself."""
    root = storage_root(spec)[0]
    if root is spec or root.mem_id is None or root.mem_offset is None:
        return False
    write_place(spec, place_view(spec, {root: SpecAllocResult(root.mem_id, root.mem_obj_id, root.mem_offset)}))
    return True


def check_alignment(alignment: int) -> None:
    """Raise UsageError EK459 unless the alignment is a positive number of bytes."""
    if type(alignment) is not int or alignment < 1:
        raise UsageError(
            code="EK459",
            message=f"alignment {alignment!r} is not a positive number of bytes",
        )


def algorithm_name(algorithm: MemoryAlgorithm) -> str:
    """Return the name under which an algorithm is reported."""
    if isinstance(algorithm, functools.partial):
        return algorithm_name(algorithm.func)
    return getattr(algorithm, "__name__", None) or type(algorithm).__name__


class MemoryPlanningAlgorithmSuite:
    """Runs several algorithms and keeps the plan with the smallest sum of arenas; of equal ones the first listed.

    Algorithms do not see each other's results, so the order of the list decides ties and nothing else.
    """

    def __init__(self, algo_list: Sequence[MemoryAlgorithm]) -> None:
        self.algo_list = list(algo_list)
        if not self.algo_list:
            raise UsageError(
                code="EK461",
                message="a suite of planning algorithms is empty",
            )

    @property
    def __name__(self) -> str:
        return f"suite[{', '.join(algorithm_name(algorithm) for algorithm in self.algo_list)}]"

    def __call__(
        self,
        alignment: int,
        specs: Iterable[TensorSpec],
        graph_module: GraphModule,
        graph_signature: ExportGraphSignature | None,
        extra_padding: int = 0,
    ) -> MemoryAlgoResult:
        """Return the smallest plan."""
        listed = list(specs)
        plans: list[MemoryAlgoResult] = [
            algorithm(alignment, listed, graph_module, graph_signature, extra_padding) for algorithm in self.algo_list
        ]
        return min(plans, key=lambda plan: sum(plan.bufsizes))


def has_integer_sizes(spec: TensorSpec) -> bool:
    """Return whether all sizes are numbers, as planning needs them."""
    return all(isinstance(dim, int) for dim in spec.shape)


def still_symbolic(spec: TensorSpec, location: Location) -> Diagnostic:
    """Return EK451 for a spec whose sizes are not all numbers."""
    return Diagnostic.of(
        code="EK451",
        message="a tensor is to be planned whose shape is still symbolic",
        location=location,
        notes=(f"its spec is {spec!r}",),
    )


def _check_plannable(spec: TensorSpec) -> None:
    if not has_integer_sizes(spec):
        raise ModelError(still_symbolic(spec, Location()))
    if spec.lifetime[0] is None or spec.lifetime[1] is None:
        raise UsageError(
            code="EK463",
            message="a tensor is to be planned whose lifetime is not known",
            location=Location(text=repr(spec)),
        )
