"""Which rule of a policy a value of a graph falls under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportGraphSignature
from torch.fx import Node

from exirkit.ir import ModelError, TensorSpec, is_pure, module_paths, named_arguments, underlying
from exirkit.passes.config.node_names import agree, full_names, operator_names
from exirkit.passes.memory.graph.specs import SpecRoles
from exirkit.passes.memory.graph.value_uses import ValueUse
from exirkit.patterns import DTYPES, Condition, SourceText, compile_condition

from .model import MemoryPolicy, PlacementRule
from .reading import CONDITION_NAMES


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
            and (not rule.value or agree(rule.value, facts.names_of(spec, use)))
            and (not rule.kind or not facts.kinds_of(spec).isdisjoint(rule.kind))
            and all(self._holds(condition, value) for condition in self._conditions)
        )

    def _holds(self, condition: Condition, value: PlacedValue) -> bool:
        x = value.use.holder
        try:
            return condition.holds(value.facts, x=x, nbytes=value.spec.nbytes(), traffic=value.use.traffic)
        except ModelError as error:
            note = f"the value is %{x.name}, {value.spec!r}"
            raise ModelError(
                one.model_copy(update={"notes": (*one.notes, note)}) for one in error.diagnostics
            ) from None


class GraphAnswers:
    """What conditions may ask about a lowered graph.

    Args:
        roles: What the specs of the graph are.
        uses: What the graph does with them.
        signature: Names of buffers and parameters.
        inside: Whether it is a branch or loop body: what goes in and out of it is no input and no output.
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

    def names_of(self, spec: TensorSpec, use: ValueUse) -> list[str]:
        """Return the names of a value: of its nodes, and of the buffer behind it."""
        target = self._targets.get(use.maker.name)
        names = dict.fromkeys([use.maker.name, use.holder.name, *([target] if target else [])])
        return list(names)

    def is_constant(self, x: Any) -> bool:
        """Whether a value is stored in the program; such values are never asked about by a policy."""
        spec = x.meta.get("spec") if isinstance(x, Node) else None
        return not isinstance(x, Node) or (isinstance(spec, TensorSpec) and spec in self._roles.constants)

    def value(self, x: Any) -> torch.Tensor | None:
        """Return nothing: what has a place in an arena is no constant."""
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
