"""What guards may ask where there is no program: a graph of which everything is as the pattern says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.syntax.terms import Alternatives, Call, Literal, OperatorCall, Symbol, Variable, children

from .pattern_execution import Shape


class TrialFacts:
    """Answers of a graph that was built for one rule: everything about it is as the pattern says."""

    def __init__(
        self, rule: CompiledRule, values: Mapping[str, Any], shape: Shape, options: Mapping[str, Any] | None = None
    ) -> None:
        self.rule = rule
        self.values = values
        self.shape = shape
        self.options = dict(options or {})

    def _names_of(self, x: Any) -> Iterator[str]:
        return (name for name, value in self.values.items() if value is x)

    def is_constant(self, x: Any) -> bool:
        """Whether a type says that it is constant."""
        return self.is_kind(x, "const")

    def value(self, x: Any) -> torch.Tensor | None:
        """Return the tensor itself."""
        return x if isinstance(x, torch.Tensor) else None

    def users(self, x: Any) -> int:
        """Return how often the pattern uses a value: as often as a graph of it alone."""
        for name in self._names_of(x):
            if name in self.rule.pattern.named:
                return max(1, _uses(self.rule, name, self.shape))
        return 1

    def is_kind(self, x: Any, kind: str) -> bool:
        """Whether the types of variables say so."""
        for name in self._names_of(x):
            variable = self.rule.variables.get(name)
            qualifiers = getattr(variable, "qualifiers", ())
            if kind in qualifiers or (kind == "const" and {"param", "buffer"} & set(qualifiers)):
                return True
        return kind in ("pure", "output") and any(name in self.rule.pattern.named for name in self._names_of(x))

    def operator_name(self, x: Any) -> str:
        """Return the operator of a named term."""
        from exirkit.patterns.operators.table import name_of

        for name in self._names_of(x):
            op = getattr(self.rule.pattern.named.get(name), "op", None)
            if op is not None:
                return name_of(op)
        return ""

    def call_behind(self, x: Any) -> tuple[str, Mapping[str, Any]]:
        """Return the operator of a named term, and what the pattern gives it."""
        from exirkit.patterns.operators.table import name_of

        for name in self._names_of(x):
            term = self.rule.pattern.named.get(name)
            if isinstance(term, Call):
                return name_of(term.op), {key: self._given(one) for key, one in term.arguments.items()}
        return "", {}

    def _given(self, term: Any) -> Any:
        if isinstance(term, Variable | Symbol):
            return self.values.get(term.name)
        return term.value if isinstance(term, Literal) else None

    def distance(self, a: Any, b: Any) -> int | None:
        """Return how many calls of the pattern are on the shortest way from one value to another."""
        names = set(self._names_of(a))
        named = self.rule.pattern.named
        goals = {id(named[name]) for name in names if name in named}
        ways = [self._way(named[name], names, goals) for name in self._names_of(b) if name in named]
        return min((one for one in ways if one is not None), default=None)

    def _way(self, term: Any, names: set[str], goals: set[int]) -> int | None:
        if id(term) in goals or (isinstance(term, Variable) and term.name in names):
            return 0
        ways = [self._way(child, names, goals) for child in children(term)]
        shortest = min((one for one in ways if one is not None), default=None)
        return None if shortest is None else shortest + isinstance(term, Call | OperatorCall)

    def is_written_between(self, a: Any, b: Any) -> bool:
        """Return False: patterns are functional."""
        return False

    def range_of(self, size: Any) -> tuple[Any, Any]:
        """Return the size itself."""
        return size, size

    def target_has(self, capability: str) -> bool:
        """Assume that the target can do it."""
        return True

    def option(self, name: str) -> Any:
        """Return an option of the trial."""
        return self.options.get(name)

    def is_legal(self, operator: str) -> bool:
        """Assume that it is."""
        return True

    def rules_behind(self, x: Any) -> tuple[str, ...]:
        """Return nothing: no rule made the values of a trial."""
        return ()


def _uses(rule: CompiledRule, name: str, shape: Shape) -> int:
    """Return how many calls use a named term, on one way through the pattern."""
    term = rule.pattern.named[name]
    seen: set[int] = set()
    count = 0
    pending: list[Any] = list(rule.pattern.roots)
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        below = list(children(one))
        if isinstance(one, Alternatives):
            below = [one.branches[shape.branches.get(id(one), 0)][1]]
            if below[0] is not term:
                pending += below
                continue
        count += any(child is term for child in below)
        pending += below
    return count
