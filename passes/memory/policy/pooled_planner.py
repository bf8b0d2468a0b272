"""A memory policy at work on one program: it chooses an arena for every value and plans each arena."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.export import ExportGraphSignature
from torch.fx import GraphModule

from exirkit.ir import ModelError, TensorSpec
from exirkit.passes.memory.algorithms import MemoryAlgorithm, arena_of, pinned_offset, result_of
from exirkit.passes.memory.graph.in_place import Chain
from exirkit.passes.memory.graph.specs import SpecRoles
from exirkit.passes.memory.graph.value_uses import value_uses
from exirkit.passes.memory.methods.arena_limits import left_of, taken_note
from exirkit.passes.memory.packing.pools import PooledPlan, PoolWish, plan_pools
from exirkit.passes.memory.problem import PlannedValue, PlanningProblem, Pool

from .model import MemoryPolicy
from .overflow import PoolMember, overflow
from .rules import GraphAnswers, PlacedValue, PlacementRules


@dataclass(slots=True)
class _GraphWishes:
    """What the policy says about one graph.

    Attributes:
        wishes: Of every value, and of every chain of values.
        members: What messages say about each of them.
    """

    wishes: dict[TensorSpec, PoolWish] = field(default_factory=dict)
    members: dict[TensorSpec, PoolMember] = field(default_factory=dict)


class PooledPlanner:
    """Plans the graphs of one program by a policy; made for one run.

    Args:
        policy: A policy that `check_policy` has found nothing wrong with.
        algorithm: The name of a planner, or a planning algorithm that plans arenas chosen by the portfolio.
        alignment: Alignment of pools that say nothing about it, in bytes.
        taken: Bytes of the pools that other methods have, by number of the pool and method.
    """

    def __init__(
        self,
        policy: MemoryPolicy,
        algorithm: str | MemoryAlgorithm,
        alignment: int,
        taken: Mapping[int, Mapping[str, int]],
    ) -> None:
        self._policy = policy
        self._rules = PlacementRules(policy)
        self._algorithm = algorithm
        self._order = [policy.mem_id(name) for name in policy.filling_order]
        self.alignments = {number: pool.alignment or alignment for number, pool in policy.numbered_pools()}
        self._default_alignment = alignment
        self._said = {number: pool.limit for number, pool in policy.numbered_pools() if pool.limit is not None}
        self._taken = taken
        self._limits = left_of(self._said, taken)
        self._bodies_are_out = False
        self._graph = _GraphWishes()
        self._plans: list[tuple[Any, PooledPlan]] = []

    def keep_bodies_out(self) -> None:
        """Plan branch and loop bodies outside of pools with a limit from now on, where they may lie elsewhere."""
        self._bodies_are_out = True

    def devices_of(self, sizes: Sequence[int]) -> dict[int, str]:
        """Return where the arenas are that are used and not in the memory of the CPU."""
        return {
            number: pool.device
            for number, pool in self._policy.numbered_pools()
            if pool.device != "cpu" and number < len(sizes) and sizes[number]
        }

    def alignment_of(self, mem_id: int) -> int:
        """Return the alignment of an arena in bytes."""
        return self.alignments.get(mem_id, self._default_alignment)

    def begin(
        self,
        graph_module: GraphModule,
        graph_signature: ExportGraphSignature | None,
        roles: SpecRoles,
        selected: Sequence[TensorSpec],
        *,
        inside: bool,
    ) -> None:
        """Ask the rules about every value of a graph, and set the arena that each one wishes for first.

        A value that is pinned to an offset stays in its arena.

        Raises:
            ModelError: EK223, a condition of a rule has no answer.
        """
        uses = value_uses(graph_module, graph_signature)
        answers = GraphAnswers(roles, uses, graph_signature, inside=inside)
        self._graph = graph = _GraphWishes()
        for spec in selected:
            value = PlacedValue(spec, uses[spec], answers)
            if pinned_offset(spec) is not None:
                pools: tuple[int, ...] = (arena_of(spec),)
                rule = "its offset is pinned"
            else:
                pools = tuple(self._policy.mem_id(name) for name in self._rules.way_of(value))
                if inside and self._bodies_are_out:
                    pools = tuple(number for number in pools if number not in self._limits) or pools
                found = self._rules.rule_of(value)
                rule = "no rule means it" if found is None else f"rule {found.name or found.pool!r}"
            graph.wishes[spec] = PoolWish(pools, value.use.traffic)
            graph.members[spec] = PoolMember(value.use.holder, spec, rule)
            spec.mem_id = pools[0]

    def join(self, chains: Iterable[Chain]) -> None:
        """Learn which values will lie in one place: they go together, to a pool that all of them wish for."""
        for chain in chains:
            wishes = [self._graph.wishes[member] for member in chain.members]
            pools = tuple(pool for pool in wishes[0].pools if all(pool in wish.pools for wish in wishes))
            self._graph.wishes[chain.spec] = PoolWish(pools, sum(wish.gain for wish in wishes))
            self._graph.members[chain.spec] = self._graph.members[chain.members[0]]

    def __call__(
        self,
        alignment: int,
        specs: Iterable[TensorSpec],
        graph_module: GraphModule,
        graph_signature: ExportGraphSignature | None,
        extra_padding: int = 0,
    ) -> Any:
        """Plan the values of a graph, like any planning algorithm; the alignments are those of the pools."""
        listed = list(specs)
        values = [
            PlannedValue(spec.nbytes(), spec.lifetime[0] or 0, spec.lifetime[1] or 0, pinned=pinned_offset(spec))
            for spec in listed
        ]
        wishes = [self._graph.wishes.get(spec) or PoolWish((arena_of(spec),)) for spec in listed]
        order = [*self._order, *sorted({wish.pools[0] for wish in wishes} - set(self._order))]
        pools = {number: self._pool(number, extra_padding) for number in order}
        named = self._algorithm if isinstance(self._algorithm, str) else "portfolio"
        plan = plan_pools(PlanningProblem(values, pools), wishes, order, named)
        if isinstance(self._algorithm, str):
            result: Any = result_of(plan.result, plan.problem.values, listed, extra_padding)
        else:
            for spec, value in zip(listed, plan.problem.values, strict=True):
                spec.mem_id = value.pool
            common = math.lcm(*(self.alignment_of(number) for number in order))
            result = self._algorithm(common, listed, graph_module, graph_signature, extra_padding)
        self._plans.append((result, plan))
        return result

    def cost_of(self, result: Any) -> tuple[int, ...]:
        """Return what is bad about a plan, the worst first: bytes beyond limits, traffic not served by a pool, size.

        Args:
            result: What this planner has returned for the graph begun last.
        """
        plan = self._plan_of(result)
        sizes: Sequence[int] = getattr(result, "bufsizes", result)
        served = dict.fromkeys(self._order, 0)
        for value, gain in zip(plan.problem.values, plan.gains, strict=True):
            served[value.pool] = served.get(value.pool, 0) - gain
        return (sum(plan.result.over_limit.values()), *(served[number] for number in self._order), sum(sizes))

    def refuse_overflow(self, result: Any, specs: Sequence[TensorSpec]) -> None:
        """Raise ModelError EK484 if what must lie in a pool is more than its limit.

        Args:
            result: What this planner has returned.
            specs: What it was asked to plan.
        """
        plan = self._plan_of(result)
        names = {number: pool.name for number, pool in self._policy.numbered_pools()}
        findings = []
        for number in sorted(plan.result.over_limit):
            inside = [place for place, value in enumerate(plan.problem.values) if value.pool == number]
            members = [self._graph.members.get(specs[place]) or PoolMember(None, specs[place], "") for place in inside]
            values = [plan.problem.values[place] for place in inside]
            pool = plan.problem.pools[number]
            finding = overflow(names[number], pool, plan.result.pool_nbytes[number], members, values)
            if number in self._taken:
                note = taken_note(self._said[number], self._taken[number])
                finding = finding.model_copy(update={"notes": (*finding.notes, note)})
            findings.append(finding)
        if findings:
            raise ModelError(findings)

    def _plan_of(self, result: Any) -> PooledPlan:
        found: PooledPlan = next(plan for known, plan in reversed(self._plans) if known is result)
        return found

    def _pool(self, number: int, extra_padding: int) -> Pool:
        limit = self._limits.get(number)
        room = None if limit is None else max(0, limit - extra_padding)
        return Pool(alignment=self.alignment_of(number), limit=room)
