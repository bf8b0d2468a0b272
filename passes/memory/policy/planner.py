"""A memory policy at work on one program: it chooses an arena for every value and plans each arena."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportGraphSignature
from torch.fx import GraphModule, Node

from exirkit.ir import (
    Diagnostic,
    Location,
    ModelError,
    TensorSpec,
    is_pure,
    locate,
    module_paths,
    named_arguments,
    underlying,
)
from exirkit.passes.config.policies import agree, full_names, operator_names
from exirkit.passes.memory.graph.specs import SpecRoles
from exirkit.passes.memory.graph.value_uses import Chain, ValueUse, value_uses
from exirkit.passes.memory.methods import left_of, taken_note
from exirkit.passes.memory.packing.pools import Claim, PooledPlan, PoolRequest, choose_claims, plan_pools
from exirkit.passes.memory.planners import MemoryAlgorithm, arena_of, pinned_offset, result_of
from exirkit.passes.memory.problem import PlannedValue, PlanningProblem, Pool, fullest_step
from exirkit.patterns import DTYPES, Condition, Range, SourceText, compile_condition, widest

from .model import CONDITION_NAMES, MemoryPolicy, PlacementRule


class PlacementRules:
    """The compiled rules of a policy.

    Args:
        policy: A policy that `check_policy` has found nothing wrong with.
    """

    def __init__(self, policy: MemoryPolicy) -> None:
        self._policy = policy
        self._rules = [_Compiled(rule) for rule in policy.rules]

    def way_of(self, value: PlacedValue) -> tuple[str, ...]:
        """Return the pools in which a value may lie, in their order.

        Raises:
            ModelError: EK223, a condition has no answer for the value.
        """
        for rule in self._rules:
            if rule.means(value):
                return self._policy.way_of(rule.rule.pool, rule.rule.spill)
        return self._policy.way_of(self._policy.default_pool)

    def rule_of(self, value: PlacedValue) -> PlacementRule | None:
        """Return the rule that decides about a value; None if none means it."""
        return next((rule.rule for rule in self._rules if rule.means(value)), None)


@dataclass(frozen=True, slots=True)
class PlacedValue:
    """A value of a graph as rules see it.

    Attributes:
        spec: Its spec, which owns its memory.
        use: What the graph does with it.
        facts: Answers about the graph.
    """

    spec: TensorSpec
    use: ValueUse
    facts: GraphAnswers


class _Compiled:
    def __init__(self, rule: PlacementRule) -> None:
        self.rule = rule
        self._ops, self._users = full_names(rule.op), full_names(rule.user)
        self._dtypes = {DTYPES[name] for name in rule.dtype}
        title = rule.name or rule.pool
        self._conditions: list[Condition] = [
            compile_condition(SourceText(text, f"rule {title!r} of the policy"), CONDITION_NAMES) for text in rule.where
        ]

    def means(self, value: PlacedValue) -> bool:
        rule, spec, use, facts = self.rule, value.spec, value.use, value.facts
        return (
            (not rule.op or agree(self._ops, operator_names(use.maker)))
            and (not rule.user or any(agree(self._users, operator_names(user)) for user in use.readers))
            and (not rule.dtype or spec.dtype in self._dtypes)
            and (rule.nbytes is None or rule.nbytes.admits(spec.nbytes()))
            and (not rule.module or agree(rule.module, module_paths(use.maker)))
            and (not rule.value or agree(rule.value, facts.names_of(use)))
            and (not rule.kind or not facts.kinds_of(spec).isdisjoint(rule.kind))
            and all(self._holds(condition, value) for condition in self._conditions)
        )

    def _holds(self, condition: Condition, value: PlacedValue) -> bool:
        x = value.use.holder
        try:
            return condition.holds(value.facts, x=x, nbytes=value.spec.nbytes(), traffic=value.use.traffic)
        except ModelError as error:
            error.annotate(f"the value is %{x.name}, {value.spec!r}")
            raise


class GraphAnswers:
    """What conditions may ask about a lowered graph.

    Args:
        roles: What the specs of the graph are.
        uses: What the graph does with them.
        signature: Names of buffers and parameters.
        inside: Whether it is a branch or loop body: what goes in and out of it is neither input nor output.
    """

    def __init__(
        self,
        roles: SpecRoles,
        uses: Mapping[TensorSpec, ValueUse],
        signature: ExportGraphSignature | None,
        *,
        inside: bool,
    ) -> None:
        self._roles = roles
        self._inside = inside
        self._users = {use.holder: use for use in uses.values()}
        self._specs = {use.holder: spec for spec, use in uses.items()}
        self._targets = (
            {} if signature is None else {spec.arg.name: spec.target for spec in signature.input_specs if spec.target}
        )

    def kinds_of(self, spec: TensorSpec) -> set[str]:
        """Return what a value is: `buffer`, `input`, `output` (or both of them), or else `intermediate`."""
        if spec in self._roles.state:
            return {"buffer"}
        kinds = set()
        if not self._inside and spec in self._roles.inputs:
            kinds.add("input")
        if not self._inside and spec in self._roles.outputs:
            kinds.add("output")
        return kinds or {"intermediate"}

    def names_of(self, use: ValueUse) -> list[str]:
        """Return the names of a value: of its nodes, and of the buffer behind it."""
        target = self._targets.get(use.maker.name)
        names = dict.fromkeys([use.maker.name, use.holder.name, *([target] if target else [])])
        return list(names)

    def is_constant(self, x: Any) -> bool:
        """Whether a value is stored in the program; such values are never asked about by a policy."""
        spec = x.meta.get("spec") if isinstance(x, Node) else None
        return not isinstance(x, Node) or (isinstance(spec, TensorSpec) and spec in self._roles.constants)

    def value(self, x: Any) -> torch.Tensor | None:
        """Return nothing: what has a place in an arena is not a constant."""
        return None

    def users(self, x: Any) -> int:
        """Return how many calls read a value; that it is an output counts as one."""
        use = self._users.get(x) if isinstance(x, Node) else None
        if use is None:
            return 1
        return len(use.readers) + (self._specs[x] in self._roles.outputs)

    def is_kind(self, x: Any, kind: str) -> bool:
        """Whether a node is an input, an output, a buffer that is written to ..."""
        if not isinstance(x, Node):
            return False
        if kind == "pure":
            return is_pure(x)
        if kind == "shared":
            return self.users(x) > 1
        spec = self._specs.get(x)
        kinds = set() if spec is None else self.kinds_of(spec)
        return kind in kinds or (kind == "mutable" and "buffer" in kinds)

    def operator_name(self, x: Any) -> str:
        """Return the name of the operator that makes a value, as rule books write it; empty for an input."""
        names = operator_names(x) if isinstance(x, Node) else ()
        if names:
            return names[0]
        return x.op if isinstance(x, Node) else ""

    def call_behind(self, x: Any) -> tuple[str, Mapping[str, Any]]:
        """Return the operator that makes a value, and its arguments by name."""
        op = underlying(x.target) if isinstance(x, Node) and x.op == "call_function" else None
        if op is None or not hasattr(op, "_schema"):
            return self.operator_name(x), {}
        return self.operator_name(x), named_arguments(x, op._schema)

    def distance(self, a: Any, b: Any) -> int | None:
        """Return nothing: a condition of a policy is about one value."""
        return None

    def is_written_between(self, a: Any, b: Any) -> bool:
        """Whether something between two values writes to a tensor: never, for there is one value."""
        return False

    def range_of(self, size: Any) -> tuple[Any, Any]:
        """Return the range of a size: memory is planned for one that is known, up to its upper bound."""
        return 0, float("inf")

    def value_range(self, x: Any) -> Range:
        """Return the range of a dtype: of the elements nothing is known here."""
        return widest(x.meta["val"].dtype if isinstance(x, Node) else x.dtype)

    def grid(self, x: Any) -> Any:
        """Raise an error: nothing is known of the elements.

        Raises:
            TypeError: Always.
        """
        raise TypeError("a condition of a policy knows no grid")

    def elements(self, x: Any) -> list[Any]:
        """Raise an error: nothing is known of the elements.

        Raises:
            TypeError: Always.
        """
        raise TypeError("a condition of a policy knows no elements")

    def target_has(self, capability: str) -> bool:
        """Whether the target can do something: nothing is known about it here."""
        return False

    def option(self, name: str) -> Any:
        """Return nothing: policies have no options."""
        return None

    def is_legal(self, operator_name: str) -> bool:
        """Whether the target has an operator: whatever is in a lowered graph is legal."""
        return True

    def rules_behind(self, x: Any) -> tuple[str, ...]:
        """Return the rules of rule books that made a node."""
        return tuple(x.meta.get("rewritten_by", ())) if isinstance(x, Node) else ()


# So many values are named.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class PoolMember:
    """What messages say about a value in a pool.

    Attributes:
        node: The node that holds it; None for the memory of called graphs.
        spec: Its spec.
        rule: Why it is in the pool.
    """

    node: Node | None
    spec: TensorSpec
    rule: str

    def described(self, nbytes: int) -> str:
        """Return what the value is, how large, and why it is there."""
        if self.node is None:
            return f"{nbytes} bytes of the graphs of a branch or loop"
        where = locate(self.node).source
        return f"%{self.node.name}: {nbytes} bytes, {self.rule}{f', {where}' if where else ''}"


def overflow(
    name: str, pool: Pool, needed: int, members: Sequence[PoolMember], values: Sequence[PlannedValue]
) -> Diagnostic:
    """Return EK484 for a pool.

    Args:
        name: Its name.
        pool: Its limit and alignment.
        needed: Bytes that the plan takes.
        members: What lies in it.
        values: Sizes and steps of these.
    """
    limit = pool.limit or 0
    step, total = fullest_step((value.first, value.last, value.nbytes) for value in values)
    live = [place for place, value in enumerate(values) if value.first <= step <= value.last]
    largest = sorted(live, key=lambda place: (-values[place].nbytes, place))[:_NAMED]
    notes = [f"{total} bytes are live at step {step}, the fullest one, in {len(live)} values that cannot move on:"]
    notes += [members[place].described(values[place].nbytes) for place in largest]
    if len(live) > _NAMED:
        notes.append(f"and {len(live) - _NAMED} smaller ones")
    outside = _what_has_to_leave(pool, values)
    left = [members[place].described(values[place].nbytes) for place in outside[:_NAMED]]
    if outside:
        more = f"; and {len(outside) - _NAMED} more" if len(outside) > _NAMED else ""
        notes.append(f"everything else would fit without {'; '.join(left)}{more}")
        hint = "let these spill (`spill: true` and a pool after this one in `spill`), or send them to another pool"
    else:
        hint = "what is live at once would fit: `planner: exact` may find a way to place it"
    node = next((members[place].node for place in [*outside, *largest] if members[place].node is not None), None)
    return Diagnostic.of(
        code="EK484",
        message=f"the pool {name!r} needs {needed} bytes, {needed - limit} more than the {limit} there are",
        location=Location() if node is None else locate(node),
        notes=tuple(notes),
        hint=hint,
    )


def _what_has_to_leave(pool: Pool, values: Sequence[PlannedValue]) -> list[int]:
    """Return the values without which the rest would fit at every step, few bytes of them; the largest first."""
    claims = [
        Claim(size := value.nbytes + -value.nbytes % pool.alignment, value.first, value.last, size)
        for value in values
        if value.nbytes
    ]
    listed = [place for place, value in enumerate(values) if value.nbytes]
    choice = choose_claims(claims, pool.limit or 0)
    kept = set() if choice is None else {listed[place] for place in choice.chosen}
    left = [place for place in listed if place not in kept]
    return sorted(left, key=lambda place: (-values[place].nbytes, place))


@dataclass(slots=True)
class _GraphRequests:
    """What the policy says about one graph.

    Attributes:
        requests: Of every value, and of every chain of values.
        members: What messages say about each of them.
    """

    requests: dict[TensorSpec, PoolRequest] = field(default_factory=dict)
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
        self._graph = _GraphRequests()
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
        """Ask the rules about every value of a graph, and set the arena that each one requests first.

        A value that is pinned to an offset stays in its arena.

        Raises:
            ModelError: EK223, a condition of a rule has no answer.
        """
        uses = value_uses(graph_module, graph_signature)
        answers = GraphAnswers(roles, uses, graph_signature, inside=inside)
        self._graph = graph = _GraphRequests()
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
            graph.requests[spec] = PoolRequest(pools, value.use.traffic)
            graph.members[spec] = PoolMember(value.use.holder, spec, rule)
            spec.mem_id = pools[0]

    def join(self, chains: Iterable[Chain]) -> None:
        """Learn which values will lie in one place: they go together, to a pool that all of them request."""
        for chain in chains:
            requests = [self._graph.requests[member] for member in chain.members]
            pools = tuple(pool for pool in requests[0].pools if all(pool in request.pools for request in requests))
            self._graph.requests[chain.spec] = PoolRequest(pools, sum(request.gain for request in requests))
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
        requests = [self._graph.requests.get(spec) or PoolRequest((arena_of(spec),)) for spec in listed]
        order = [*self._order, *sorted({request.pools[0] for request in requests} - set(self._order))]
        pools = {number: self._pool(number, extra_padding) for number in order}
        named = self._algorithm if isinstance(self._algorithm, str) else "portfolio"
        plan = plan_pools(PlanningProblem(values, pools), requests, order, named)
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

    def reject_overflow(self, result: Any, specs: Sequence[TensorSpec]) -> None:
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
