"""What guards may ask where there is no program: a graph of which everything is as the pattern says."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from exirkit.ir import FakeTensor
from exirkit.patterns.checking.pattern_execution import Shape, terms_on_way
from exirkit.patterns.checking.trials.attributes import attribute_of
from exirkit.patterns.functions.grids import Grid, listed_elements
from exirkit.patterns.functions.ranges import Range, range_of_elements, widest
from exirkit.patterns.functions.words import tensor_facts
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.propagation.domains import GRIDS, RANGES
from exirkit.patterns.syntax.attributes import Attribute
from exirkit.patterns.syntax.terms import Call, Literal, OperatorCall, Symbol, Variable, children


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
            if kind in qualifiers or (kind in ("const", "stored") and {"const", "param", "buffer"} & set(qualifiers)):
                return True
        return kind in ("pure", "output") and any(name in self.rule.pattern.named for name in self._names_of(x))

    def attribute_of(self, name: str, attribute: Attribute) -> dict[str, Any] | None:
        """Return the fields of an attribute of a named call, or None if it has none."""
        return attribute_of(self.rule, self.shape, self.values, name, attribute)

    def operator_name(self, x: Any) -> str:
        """Return the operator of a named term."""
        for name in self._names_of(x):
            op = getattr(self.rule.pattern.named.get(name), "op", None)
            if op is not None:
                return name_of(op)
        return ""

    def call_behind(self, x: Any) -> tuple[str, Mapping[str, Any]]:
        """Return the operator of a named term, and what the pattern gives it."""
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

    def value_range(self, x: Any) -> Range:
        """Return the range of a tensor, or a wider one: a graph knows the least one or less."""
        if not isinstance(x, torch.Tensor) or x.is_meta or isinstance(x, FakeTensor):
            return widest(tensor_facts(x).dtype)
        found = range_of_elements(x)
        return RANGES.weaker(found, x, random.Random(f"{self.rule.id}:{found}"))

    def grid(self, x: Any) -> Any:
        """Return the grid that a tensor was drawn on; now and then none, as a graph may not know it.

        Raises:
            TypeError: It was drawn on none.
        """
        found = GRIDS.of_tensor(x) if isinstance(x, torch.Tensor) else None
        if not isinstance(found, Grid):
            raise TypeError("no grid is known of the tensor")
        return found

    def elements(self, x: Any) -> list[Any]:
        """Return the elements of a tensor that is known while the program is lowered.

        Raises:
            TypeError: Its type does not say that it is.
        """
        return listed_elements(x if self.is_constant(x) else None)

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
    return sum(any(child is term for child in below) for _, below in terms_on_way(rule.pattern, shape))
