"""The pass that gives every tensor of a program its place in an arena."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram, ExportGraphSignature
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassResult

from exirkit.ir import ALIGNMENT, ContractError, ProgramInterface, TensorSpec, UsageError, called_graphs
from exirkit.verifiers import check_memory_plan

from .graph.planner import GraphPlanner
from .graph.specs import AllocationPolicy, node_specs
from .methods import check_limits, pool_of_arenas, reject_overflow, sizes_of
from .planners import ALGORITHMS, MemoryAlgorithm, algorithm_name, check_alignment, portfolio
from .policy.model import MemoryPolicy, check_policy, load_memory_policy, planned_inputs, planned_outputs, plans_all
from .policy.planner import PooledPlanner
from .scheduling.graph_schedule import GraphSchedule, plan_scheduled


class MemoryPlanningPass:
    """Plan the memory of a graph in the ExecuTorch dialect.

    The last pass before emission. It writes `lifetime`, `mem_id`, `mem_obj_id`, `mem_offset` and `alignment` of the
    specs, and `graph_module.meta["non_const_buffer_sizes"]`: bytes of each arena by number, where entry 0 stands for
    constants and is 0. Arenas that are not in the memory of the CPU are named in `meta["non_const_buffer_device"]`.

    A subclass may request arenas, by setting `mem_id` of specs before it calls `super().run()`, and for places, by
    setting `mem_offset` as well. An object keeps no state between runs; it may be used for any number of programs.

    Args:
        memory_planning_algo: A callable `(alignment, specs, graph_module, graph_signature, extra_padding)` that returns
            a `MemoryAlgoResult`, or writes into the specs and returns the sizes of the arenas. By default `portfolio`.
        allow_lifetime_and_storage_overlap: Do not check the plan afterwards.
        alloc_graph_input: Plan memory for inputs. If not, the caller provides it.
        alloc_graph_output: Plan memory for outputs. If not, the caller provides it.
        alloc_mutable_buffers: Plan memory for buffers that the program mutates.
        share_mutable_buffers: Give mutable buffers of one name one place in all methods, in an arena of their own.
        separate_methods: Give every method arenas that no other method uses, so that one set of arenas can hold what
            several methods have computed. Otherwise methods take turns: they use arenas of the same numbers, and only
            what outlives a call has bytes of its own.
        alignment: Every offset and size is a multiple of this many bytes.
        in_place: Let a result overwrite an argument that nothing needs any more, where the operator catalogue says
            that the operator's kernel allows it. Only tensors of fixed shape take part.
        schedule: Put independent instructions into an order in which less is live at once. Results stay the same bit
            for bit; where that does not make the plan smaller, the order stays as well.
        arena_limits: Bytes there are for an arena, by its number; an arena that needs more is an error.
        policy: Which memories there are and what lies in which; a file of it, or the policy itself. What it says about
            the planner and about results in place goes before the other arguments; inputs, outputs and buffers are
            planned if it and they say so.

    Raises:
        UsageError: EK459, if the alignment is not a positive number; EK467, if limits are not numbers of bytes; EK486,
            if there are two planners, or limits besides those of the policy; EK457, if buffers are to be shared that
            are not planned.
        ModelError: As `load_memory_policy`.
    """

    def __init__(
        self,
        memory_planning_algo: MemoryAlgorithm | None = None,
        allow_lifetime_and_storage_overlap: bool = False,
        alloc_graph_input: bool = True,
        alloc_graph_output: bool = True,
        alloc_mutable_buffers: bool = True,
        share_mutable_buffers: bool = False,
        alignment: int = ALIGNMENT,
        *,
        in_place: bool = False,
        schedule: bool = False,
        separate_methods: bool = False,
        arena_limits: Mapping[int, int] | None = None,
        policy: MemoryPolicy | str | PathLike[str] | None = None,
    ) -> None:
        check_alignment(alignment)
        check_limits(arena_limits or {})
        self.memory_planning_algo: MemoryAlgorithm = portfolio if memory_planning_algo is None else memory_planning_algo
        self.allow_lifetime_and_storage_overlap = allow_lifetime_and_storage_overlap
        self.alloc_graph_input = alloc_graph_input
        self.alloc_graph_output = alloc_graph_output
        self.alloc_mutable_buffers = alloc_mutable_buffers
        self.share_mutable_buffers = share_mutable_buffers
        self.separate_methods = separate_methods
        self.alignment = alignment
        self.in_place = in_place
        self.schedule = schedule
        self.arena_limits = dict(arena_limits or {})
        self.policy: MemoryPolicy | None = None
        self._taken: Mapping[int, Mapping[str, int]] = {}
        if policy is not None:
            self._follow(policy, has_planner=memory_planning_algo is not None)
        self._reject_sharing()

    @property
    def share_views(self) -> bool:
        """Whether reshaping copies may share the memory of their source."""
        return self.policy is None or self.policy.share_views

    def _follow(self, policy: MemoryPolicy | str | PathLike[str], *, has_planner: bool) -> None:
        """Take over what a policy says about the program as a whole."""
        found = policy if isinstance(policy, MemoryPolicy) else load_memory_policy(Path(policy))
        check_policy(found)
        doubled = "a planner" if has_planner and found.planner else "limits" if self.arena_limits else None
        if doubled:
            raise UsageError(
                code="EK486",
                message=f"{doubled} of the planning pass and a memory policy that says something else about it",
            )
        self.policy = found
        if found.planner:
            self.memory_planning_algo = ALGORITHMS[found.planner]
        self.in_place = self.in_place if found.in_place is None else found.in_place
        self.alloc_graph_input = self.alloc_graph_input and plans_all(found.inputs)
        self.alloc_graph_output = self.alloc_graph_output and plans_all(found.outputs)
        self.alloc_mutable_buffers = self.alloc_mutable_buffers and found.buffers != "provided"
        self.share_mutable_buffers = self.share_mutable_buffers or found.buffers == "shared"
        self.separate_methods = self.separate_methods or found.methods == "separate"

    def __call__(self, graph_module: GraphModule) -> PassResult:
        """Plan a graph without signature: no buffer is mutated, everything that is returned is an output."""
        return self.run(graph_module)

    def run(self, graph_module: GraphModule, graph_signature: ExportGraphSignature | None = None) -> PassResult:
        """Plan a graph and the graphs of its control flow, and check the plan.

        Args:
            graph_module: Graph whose nodes carry specs with integer shapes. Its specs and `meta` are written.
            graph_signature: Says which placeholders are inputs, constants and buffers, and what is mutated.

        Returns:
            The same graph module, and whether any spec or size differs from before.

        Raises:
            ModelError: EK451, EK452, if a shape is symbolic or has no upper bound; EK466, if an arena is beyond its
                limit.
            UsageError: EK453, EK460, EK487, if a request cannot be fulfilled.
            ContractError: EK454, EK456, EK458, if passes before left the graph unfit; EK455 or EK341 to EK349, if the
                algorithm violated its contract.
        """
        before = _snapshot(graph_module)
        planned = self._planned(graph_module, graph_signature)
        if self.schedule:
            plan_scheduled(
                GraphSchedule(graph_module, graph_signature, planned, self.alignment, in_place=self.in_place),
                lambda: self._plan(graph_module, graph_signature, planned),
            )
        else:
            self._plan(graph_module, graph_signature, planned)
        return PassResult(graph_module, _snapshot(graph_module) != before)

    def _plan(
        self, graph_module: GraphModule, graph_signature: ExportGraphSignature | None, planned: AllocationPolicy
    ) -> int:
        """Plan the graph in the order that it has, check the plan, and return the bytes of all arenas."""
        pools = None
        if self.policy is not None:
            name = next((name for name, each in ALGORITHMS.items() if each is self.memory_planning_algo), None)
            pools = PooledPlanner(self.policy, name or self.memory_planning_algo, self.alignment, self._taken)
        planner = GraphPlanner(self.memory_planning_algo, self.alignment, in_place=self.in_place, pools=pools)
        sizes = planner.plan(graph_module, graph_signature, planned)
        graph_module.meta["non_const_buffer_sizes"] = sizes
        devices = {} if pools is None else pools.devices_of(sizes)
        graph_module.meta["non_const_buffer_device"] = devices or None
        reject_overflow(graph_module, sizes, self.limits, self._taken)
        if not self.allow_lifetime_and_storage_overlap:
            alignment = self.alignment if pools is None else pools.alignments
            self._check(graph_module, graph_signature, sizes, planned, alignment)
        return sum(sizes)

    def beside(self, taken: Mapping[int, Mapping[str, int]]) -> MemoryPlanningPass:
        """Return a pass like this one whose limits leave out what other methods have taken already.

        Args:
            taken: Bytes that they have, by number of the arena and method.
        """
        found = copy(self)
        found._taken = taken
        return found

    @property
    def limits(self) -> Mapping[int, int]:
        """Bytes that there are for an arena, by its number."""
        pools = () if self.policy is None else self.policy.numbered_pools()
        return self.arena_limits or {number: pool.limit for number, pool in pools if pool.limit is not None}

    def check(self, program: ExportedProgram) -> None:
        """Check the plan of a program again, after the arenas of all methods have been arranged.

        Raises:
            ContractError: EK341 to EK349, it does not hold.
        """
        if self.allow_lifetime_and_storage_overlap:
            return
        module, signature = program.graph_module, program.graph_signature
        sizes = sizes_of(program)
        alignments = dict.fromkeys(range(len(sizes)), self.alignment)
        if self.policy is not None:
            named = {number: pool.alignment or self.alignment for number, pool in self.policy.numbered_pools()}
            alignments.update((arena, named.get(pool, 1)) for arena, pool in pool_of_arenas(program).items())
        planned = replace(self._planned(module, signature), mutable_buffers=self.alloc_mutable_buffers)
        self._check(module, signature, sizes, planned, alignments)

    def run_multimethod(self) -> None:
        """Do what concerns several methods, after all of them have been planned: nothing, but subclasses may."""

    def _planned(self, graph_module: GraphModule, graph_signature: ExportGraphSignature | None) -> AllocationPolicy:
        """Return which values of the caller are planned."""
        inputs: bool | Collection[str] = self.alloc_graph_input
        outputs: bool | Collection[int] = self.alloc_graph_output
        policy = self.policy
        interface = ProgramInterface(graph_module.graph, graph_signature)
        if policy is not None and isinstance(policy.inputs, dict):
            inputs = planned_inputs(policy, [node.name for node in interface.user_inputs])
        if policy is not None and isinstance(policy.outputs, dict):
            outputs = planned_outputs(policy, len(interface.user_results))
        # What is shared gets its place when all methods are planned.
        return AllocationPolicy(inputs, outputs, self.alloc_mutable_buffers and not self.share_mutable_buffers)

    def _check(
        self,
        graph_module: GraphModule,
        graph_signature: ExportGraphSignature | None,
        sizes: Sequence[int],
        planned: AllocationPolicy,
        alignment: int | Mapping[int, int],
    ) -> None:
        findings = check_memory_plan(
            graph_module,
            graph_signature,
            buffer_sizes=sizes,
            alignment=alignment,
            alloc_graph_input=planned.graph_input,
            alloc_graph_output=planned.graph_output,
            alloc_mutable_buffers=planned.mutable_buffers,
            in_place=self.in_place,
        )
        if findings:
            note = f"planned by plan-memory{{algorithm={algorithm_name(self.memory_planning_algo)}}}"
            raise ContractError(finding.model_copy(update={"notes": (*finding.notes, note)}) for finding in findings)

    def _reject_sharing(self) -> None:
        if self.share_mutable_buffers and not self.alloc_mutable_buffers:
            raise UsageError(
                code="EK457",
                message="mutable buffers are to be shared between methods, but not to be planned",
            )


def _snapshot(graph_module: GraphModule) -> list[Any]:
    """Return all that planning may change, in order of the nodes."""
    seen: list[Any] = [graph_module.meta.get(f"non_const_buffer_{what}") for what in ("sizes", "device")]
    for submodule in called_graphs(graph_module):
        for node in submodule.graph.nodes:
            seen.extend((spec, *_planned_fields(spec)) for spec in node_specs(node))
    return seen


def _planned_fields(spec: TensorSpec) -> tuple[Any, ...]:
    lifetime = tuple(spec.lifetime)
    return (lifetime, spec.mem_id, spec.mem_obj_id, spec.mem_offset, spec.alignment, spec.storage_base)
