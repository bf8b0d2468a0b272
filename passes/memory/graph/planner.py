"""Planning of one graph after the graphs it calls, which take blocks of its arenas, with one algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportGraphSignature
from torch.fx import GraphModule, Node

from exirkit.ir import ContractError, Location, ModelError, TensorSpec, UsageError, locate
from exirkit.passes.memory.planners import (
    MemoryAlgorithm,
    algorithm_name,
    arena_of,
    exact,
    portfolio,
    storage_root,
    write_place,
    write_view,
)
from exirkit.passes.memory.policy.planner import PooledPlanner

from .specs import (
    AllocationPolicy,
    SpecRoles,
    finalize_aliases,
    graph_calls,
    leave_out,
    needs_inputs_planned,
    node_specs,
    padding_of,
    select_specs,
    spec_roles,
    update_lifetimes,
)
from .tree_plan import PlacedGraph, smaller_without_blocks
from .value_uses import Chain, find_chains


@dataclass(slots=True)
class SubmodulePlan:
    """The plan of one called graph, relative to its block.

    Attributes:
        nbytes: Bytes needed in each arena, by arena number.
        specs: All that is placed, in called graphs of called graphs as well.
    """

    nbytes: list[int]
    specs: list[TensorSpec]


@dataclass(slots=True)
class ArenaBlock:
    """Room for graphs that never run at the same time.

    Attributes:
        plans: The plans that lie in it.
        specs: A stand-in for the block in each arena that it needs, by arena number: bytes and lifetime, nothing else.
    """

    plans: list[SubmodulePlan]
    specs: dict[int, TensorSpec]

    def finalize(self) -> None:
        """Move the plans to where the stand-ins were placed."""
        offsets = {mem_id: spec.mem_offset or 0 for mem_id, spec in self.specs.items()}
        for spec in (spec for plan in self.plans for spec in plan.specs):
            if spec.mem_offset is not None and spec.mem_id is not None:
                spec.mem_offset += offsets.get(spec.mem_id, 0)


def make_blocks(
    graph_module: GraphModule,
    calls: Mapping[Node, Sequence[GraphModule]],
    plans: Mapping[GraphModule, SubmodulePlan],
) -> list[ArenaBlock]:
    """Return a block for each call, in which its graphs take turns."""
    steps = {node: step for step, node in enumerate(graph_module.graph.nodes)}
    return [_block([plans[graph] for graph in graphs], steps[call]) for call, graphs in calls.items()]


def _block(plans: list[SubmodulePlan], step: int) -> ArenaBlock:
    block = ArenaBlock(plans, {})
    for mem_id in range(1, max(len(plan.nbytes) for plan in plans)):
        nbytes = max(plan.nbytes[mem_id] for plan in plans if mem_id < len(plan.nbytes))
        if nbytes:
            spec = TensorSpec(torch.uint8, [nbytes])
            spec.mem_id = mem_id
            spec.lifetime = [step, step]
            block.specs[mem_id] = spec
    return block


class GraphPlanner:
    """Plans one program; made for one run.

    Args:
        algorithm: Plans what lies in the arenas.
        alignment: Every offset and size is a multiple of this many bytes.
        in_place: Let results take the place of arguments.
        pools: Chooses arenas by a policy and plans them, in place of the algorithm.
    """

    def __init__(
        self,
        algorithm: MemoryAlgorithm,
        alignment: int,
        *,
        in_place: bool = False,
        pools: PooledPlanner | None = None,
    ) -> None:
        self._algorithm = algorithm if pools is None else pools
        self._pools = pools
        self._in_place = in_place
        self._alignment = alignment
        self._plans: dict[GraphModule, SubmodulePlan] = {}
        self._graphs: list[PlacedGraph] = []

    def plan(
        self,
        graph_module: GraphModule,
        graph_signature: ExportGraphSignature | None,
        policy: AllocationPolicy,
    ) -> list[int]:
        """Write the places of all specs and return the bytes of each arena by number."""
        padding = padding_of(graph_module)
        try:
            nbytes = self._plan_graph(graph_module, graph_signature, policy, padding, frozenset()).nbytes
        except ModelError as error:
            if self._pools is None or not self._plans or error.code != "EK484":
                raise
            # Bodies fill a pool as if it were their own, and what they take cannot move on any more.
            self._pools.keep_bodies_out()
            self._plans.clear()
            nbytes = self._plan_graph(graph_module, graph_signature, policy, padding, frozenset()).nbytes
        for called in self._plans:
            _place_views_of_outer(called)
        if self._plans and getattr(self._algorithm, "func", self._algorithm) in (portfolio, exact):
            nbytes = smaller_without_blocks(
                graph_module, graph_signature, self._graphs, nbytes, self._alignment, padding
            )
        return nbytes

    def _plan_graph(
        self,
        graph_module: GraphModule,
        graph_signature: ExportGraphSignature | None,
        policy: AllocationPolicy,
        padding: int,
        outer: frozenset[TensorSpec],
        inside: bool = False,
    ) -> SubmodulePlan:
        """Plan the graphs that a graph calls, and then the graph.

        Args:
            graph_module: The graph.
            graph_signature: That of the method; None for a graph that is called.
            policy: Whose memory is planned.
            padding: Bytes that must follow tensors.
            outer: Specs of the graphs around this one, which place them.
            inside: Whether it is a graph that is called.
        """
        finalize_aliases(graph_module.graph)
        spans = update_lifetimes(graph_module, graph_signature, outer)
        roles = spec_roles(graph_module.graph, graph_signature)
        leave_out(roles, outer)
        selected = select_specs(roles, policy)
        _forget_old_places(roles, selected, inside)
        calls = graph_calls(graph_module)
        for call, submodules in calls.items():
            self._plan_called(call, submodules, outer.union(spans))
        if self._pools is not None:
            self._pools.begin(graph_module, graph_signature, roles, selected, inside=inside)
        blocks = make_blocks(graph_module, calls, self._plans)
        stand_ins = [spec for block in blocks for spec in block.specs.values()]
        chains = find_chains(graph_module, roles, selected, spans, inside=inside) if self._in_place else []
        if self._pools is not None:
            self._pools.join(chains)
        pins = {spec: spec.mem_offset for spec in selected if spec.mem_offset is not None}

        def run(requested: Sequence[TensorSpec]) -> Any:
            return self._algorithm(self._alignment, list(requested), graph_module, graph_signature, padding)

        cost = _size_of if self._pools is None else self._pools.cost_of
        result, requested, chains = _smaller_plan(run, [*selected, *stand_ins], chains, cost)
        if self._pools is not None:
            self._pools.reject_overflow(result, requested)
        sizes = _Outcome(result, pins, algorithm_name(self._algorithm)).write(requested)
        for chain in chains:
            chain.finalize()
        for spec in selected:
            spec.alignment = self._alignment if self._pools is None else self._pools.alignment_of(arena_of(spec))
        self._graphs.append(PlacedGraph(selected, chains))
        placed = [*selected, *_place_views(roles, selected)]
        for block in blocks:
            block.finalize()
            for plan in block.plans:
                placed.extend(plan.specs)
                # Tensors without elements lie in arenas that need no bytes.
                sizes += [0] * (len(plan.nbytes) - len(sizes))
        return SubmodulePlan(sizes, placed)

    def _plan_called(self, node: Node, submodules: Sequence[GraphModule], outer: frozenset[TensorSpec]) -> None:
        for submodule in submodules:
            if submodule in self._plans:
                raise ModelError(
                    code="EK464",
                    message="a graph is run from two places, so that its inputs and results have no one place",
                    location=locate(node),
                )
            policy = AllocationPolicy(graph_input=needs_inputs_planned(node))
            self._plans[submodule] = self._plan_graph(submodule, None, policy, 0, outer, inside=True)


def _smaller_plan(
    run: Callable[[Sequence[TensorSpec]], Any],
    specs: list[TensorSpec],
    chains: list[Chain],
    cost: Callable[[Any], Any],
) -> tuple[Any, list[TensorSpec], list[Chain]]:
    """Plan with chains, or without where that is not larger; return what was requested and the chains that hold.

    Values of a chain are bound to one place, which now and then leaves a gap that they would not leave by themselves.
    """
    if not chains:
        return run(specs), specs, []
    bound = {member for chain in chains for member in chain.members}
    joined = [*(chain.spec for chain in chains), *(spec for spec in specs if spec not in bound)]
    if not all(hasattr(made := run(joined), name) for name in ("spec_dict", "bufsizes")):
        return made, joined, chains
    alone = run(specs)
    return (made, joined, chains) if cost(made) < cost(alone) else (alone, specs, [])


def _size_of(result: Any) -> int:
    return sum(result.bufsizes)


class _Outcome:
    """What an algorithm returned, and whether it can be used."""

    def __init__(self, result: Any, pins: Mapping[TensorSpec, int], name: str) -> None:
        self._result = result
        self._pins = pins
        self._name = name

    def write(self, requested: Sequence[TensorSpec]) -> list[int]:
        """Write the places into the specs and return the sizes, at least those of arenas 0 and 1."""
        places = getattr(self._result, "spec_dict", None)
        for spec in requested:
            if places is not None:
                place = places.get(spec)
                if place is None:
                    raise self._broken("left out a tensor", spec)
                write_place(spec, place)
            self._check_place(spec)
            # Only a pinned spec has no group, which tells a request from the result of an earlier run.
            spec.mem_obj_id = None if spec in self._pins else spec.mem_obj_id or 0
        return self._sizes(self._result if places is None else self._result.bufsizes)

    def _check_place(self, spec: TensorSpec) -> None:
        if type(spec.mem_id) is not int or type(spec.mem_offset) is not int:
            raise self._broken("gave a tensor no place", spec)
        if spec.mem_offset != self._pins.get(spec, spec.mem_offset):
            raise self._broken(f"moved a tensor that is pinned to byte {self._pins[spec]}", spec)

    def _sizes(self, sizes: Any) -> list[int]:
        if not isinstance(sizes, (list, tuple)) or not all(type(size) is int and size >= 0 for size in sizes):
            raise self._broken(f"returned {sizes!r} as sizes of the arenas")
        if sizes and sizes[0]:
            raise self._broken("gave arena 0, which stands for constants, a size")
        return [*sizes, *[0] * (2 - len(sizes))]

    def _broken(self, deed: str, spec: TensorSpec | None = None) -> ContractError:
        return ContractError(
            code="EK455",
            message=f"planning algorithm {self._name} {deed}",
            location=Location(text=None if spec is None else repr(spec)),
        )


def _forget_old_places(roles: SpecRoles, selected: Sequence[TensorSpec], inside: bool) -> None:
    """Take back what an earlier run wrote; a `mem_offset` without `mem_obj_id` is a request of the user and stays.

    Raises:
        UsageError: EK453, if a requested arena is not an arena number; EK460, if a graph that is called requests a
            place.
    """
    kept = set(selected)
    for spec in (*roles.owners, *roles.views):
        if spec.mem_obj_id is not None or (spec not in kept and spec not in roles.constants):
            spec.mem_obj_id = spec.mem_offset = None
    for spec in selected:
        arena_of(spec)
        if inside and spec.mem_offset is not None:
            raise UsageError(
                code="EK460",
                message="a tensor inside of a branch or loop is pinned to an offset",
                location=locate(roles.owners[spec]),
            )


def _place_views(roles: SpecRoles, selected: Sequence[TensorSpec]) -> list[TensorSpec]:
    """Put the views of what was planned where their owners are, and return them."""
    planned = set(selected)
    placed = []
    for spec, node in roles.views.items():
        root = storage_root(spec)[0]
        if root in planned:
            if write_view(spec):
                placed.append(spec)
        elif root not in roles.owners and root not in roles.constants and root not in roles.outer:
            raise ContractError(
                code="EK462",
                message="the base of a view is not in the graph",
                location=locate(node),
                notes=(f"its base is {root!r}",),
                hint="a pass erased the base's node; let it keep the base, or clear `storage_base` of the view",
            )
    return placed


def _place_views_of_outer(graph_module: GraphModule) -> None:
    """Put views of what the graphs around a called one have placed where their owners are."""
    for node in graph_module.graph.nodes:
        for spec in node_specs(node):
            if spec.mem_offset is None:
                write_view(spec)
