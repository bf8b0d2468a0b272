"""A family of 120 rules of different structure, written for every engine that the benchmark compares.

Each rule fuses a small expression into an operator of its own, whose definition is that expression: right by
construction, and nothing that a rule makes can match another rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import torch
from torch import fx

ATEN = torch.ops.aten
UNARY = (
    ATEN.relu.default, ATEN.sigmoid.default, ATEN.tanh.default, ATEN.neg.default, ATEN.abs.default, ATEN.exp.default,
)  # fmt: skip
BELOW = (ATEN.add.Tensor, ATEN.mul.Tensor, ATEN.sub.Tensor, ATEN.maximum.default)
ABOVE = (ATEN.add.Tensor, ATEN.mul.Tensor, ATEN.sub.Tensor, ATEN.minimum.default)
COMMUTATIVE = frozenset({ATEN.add.Tensor, ATEN.mul.Tensor, ATEN.maximum.default, ATEN.minimum.default})


@dataclass(frozen=True)
class Term:
    """A call in a pattern; arguments are variables (`x`, `y`), calls, numbers and tuples of numbers."""

    op: Any
    args: tuple[Any, ...]

    def calls(self) -> Iterator[Term]:
        """Yield this call and those below it."""
        yield self
        for arg in self.args:
            if isinstance(arg, Term):
                yield from arg.calls()

    def build(self, variable: Callable[[str], Any], call: Callable[[Term, tuple[Any, ...]], Any]) -> Any:
        """Fold the expression from below: `variable` gives a value for a name, `call` one for a call."""
        made = [
            arg.build(variable, call)
            if isinstance(arg, Term)
            else variable(arg)
            if isinstance(arg, str)
            else list(arg)
            if isinstance(arg, tuple)
            else arg
            for arg in self.args
        ]
        return call(self, tuple(made))

    def text(self) -> str:
        """Return the expression in the rule language."""

        def call(term: Term, args: tuple[Any, ...]) -> str:
            return f"aten.{term.op.__name__}({', '.join(map(str, args))})"

        return str(self.build(str, call))


@dataclass(frozen=True)
class FusionRule:
    """One rule.

    Attributes:
        name: Of the rule, and of the operator that takes the place of the expression.
        term: The expression.
    """

    name: str
    term: Term

    @property
    def variables(self) -> tuple[str, ...]:
        """Its inputs, in the order of the operator's arguments."""
        names = [arg for call in self.term.calls() for arg in call.args if isinstance(arg, str)]
        return tuple(sorted(names))

    @property
    def fused(self) -> Any:
        """The operator; it exists once the book has been loaded."""
        return getattr(torch.ops.bench, self.name).default


@cache
def family() -> tuple[FusionRule, ...]:
    """Return the 120 rules, shuffled once and for all: the first 30 are of all kinds."""
    terms = [Term(above, (Term(below, ("x",)),)) for above, below in product(UNARY, UNARY)]
    terms += [Term(above, (Term(below, ("x", "y")),)) for above, below in product(UNARY, BELOW)]
    terms += [Term(above, (Term(below, ("x",)), "y")) for above, below in product(ABOVE, UNARY)]
    for unary in UNARY:
        terms += [
            Term(unary, (Term(ATEN.hardtanh.default, ("x", low, high)),)) for low, high in ((0.0, 6.0), (-2.0, 2.0))
        ]
        terms += [Term(unary, (Term(ATEN.permute_copy.default, ("x", (1, 0))),))]
        terms += [Term(ATEN.permute_copy.default, (Term(unary, ("x",)), (1, 0)))]
        for binary in (ATEN.sub.Tensor, ATEN.maximum.default):
            terms += [Term(unary, (Term(ATEN._softmax.default, (Term(binary, ("x", "y")), -1, False)),))]
    random.Random(20261121).shuffle(terms)
    return tuple(FusionRule(f"fused_{index:03d}", term) for index, term in enumerate(terms))


def book_text(rules: tuple[FusionRule, ...]) -> str:
    """Return a rule book with these rules and the operators that they make."""
    lines = ["rulebook: 1", "namespace: bench", "ops:"]
    for rule in rules:
        schema = ", ".join(f"Tensor {name}" for name in rule.variables)
        lines += [f'  bench.{rule.name}: {{schema: "({schema}) -> Tensor", define: "return {rule.term.text()}"}}']
    lines.append("rules:")
    for rule in rules:
        types = ", ".join(f'{name}: "f32 [*S]"' for name in rule.variables)
        inside, root = _statements(rule.term)
        guards = ", ".join(f"users({name}) == 1" for name in inside)
        lines += [
            f"- id: {rule.name}",
            f"  vars: {{{types}}}",
            "  match: |",
            *(f"    {name} = {text}" for name, text in inside.items()),
            f"    return {root}",
            f"  where: [{guards}]",
            f'  replace: "return bench.{rule.name}({", ".join(rule.variables)})"',
        ]
    return "\n".join(lines) + "\n"


def _statements(term: Term) -> tuple[dict[str, str], str]:
    """Return the calls inside by their names, so that conditions can speak of them, and the root."""
    inside: dict[str, str] = {}

    def call(one: Term, args: tuple[Any, ...]) -> str:
        text = f"aten.{one.op.__name__}({', '.join(map(str, args))})"
        if one is term:
            return text
        name = f"inner{len(inside)}"
        inside[name] = text
        return name

    return inside, str(term.build(str, call))


def traced(rule: FusionRule, *, is_fused: bool) -> fx.Graph:
    """Return what tracing the pattern, or the replacement, as a function of its variables gives."""
    graph = fx.Graph()
    inputs = {name: graph.placeholder(name) for name in rule.variables}
    if is_fused:
        graph.output(graph.call_function(rule.fused, tuple(inputs.values())))
    else:
        graph.output(rule.term.build(inputs.__getitem__, lambda term, args: graph.call_function(term.op, args)))
    return graph


def is_float32_of_one_size(values: list[Any]) -> bool:
    """The condition of every rule, as the filters of the other engines ask it: the types of our variables."""
    return all(
        isinstance(value, torch.Tensor) and value.dtype is torch.float32 and value.shape == values[0].shape
        for value in values
    )
