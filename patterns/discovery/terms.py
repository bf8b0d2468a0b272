"""Terms: small graphs as trees of calls over variables, what they compute, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch.fx import Graph

from exirkit.patterns.discovery.vocabulary import Literal, Template
from exirkit.patterns.operators.targets import Target


@dataclass(frozen=True, eq=False)
class Term:
    """A variable, or a call of a template; equal terms of one enumeration are one object.

    Attributes:
        name: Of the variable, or of nothing.
        template: Of the call; None for a variable.
        operands: The tensors that the call is given.
    """

    name: str
    template: Template | None = None
    operands: tuple[Term, ...] = ()

    @cached_property
    def size(self) -> int:
        """How many calls it is, shared ones once."""
        return sum(one.template is not None for one in self.parts)

    @cached_property
    def parts(self) -> tuple[Term, ...]:
        """The terms that it consists of, each once and behind its operands, and it itself last."""
        found = dict.fromkeys(part for one in self.operands for part in one.parts)
        return (*found, self)

    @cached_property
    def variables(self) -> frozenset[str]:
        """Names of its variables."""
        return frozenset(one.name for one in self.parts if one.template is None)

    @cached_property
    def occurrences(self) -> int:
        """How often variables stand in it."""
        return 1 if self.template is None else sum(one.occurrences for one in self.operands)

    @cached_property
    def text(self) -> str:
        """The term as an expression."""
        if self.template is None:
            return self.name
        shown = [
            str(one) if isinstance(one, str) else repr(one)
            for one in self._arguments([one.text for one in self.operands])
        ]
        return f"{self.template.name}({', '.join(shown)})"

    def _arguments(self, operands: list[str]) -> tuple[object, ...]:
        assert self.template is not None
        return self.template.filled(tuple(map(_Text, operands)))

    @cached_property
    def literals(self) -> frozenset[Literal]:
        """Numbers of its calls that a rule may leave open."""
        return frozenset(one for part in self.parts if part.template for one in part.template.literals.values())

    def operators(self) -> Iterator[str]:
        """Yield short names of its operators, outer ones first."""
        if self.template is not None:
            yield self.template.name.split(".")[1].removesuffix("_copy").strip("_").replace("_", "-")
            for one in self.operands:
                yield from one.operators()

    def statements(self, names: Mapping[Literal, str]) -> str:
        """Return the term as the rule language has it: what several calls use has a name, the last line returns.

        Args:
            names: Variables that are written instead of numbers.
        """
        used: dict[Term, int] = {}
        for part in self.parts:
            for one in part.operands:
                used[one] = used.get(one, 0) + 1
        written: dict[Term, str] = {}
        lines: list[str] = []
        for part in self.parts:
            if part.template is None:
                written[part] = part.name
                continue
            literals = part.template.literals
            given = enumerate(part._arguments([written[one] for one in part.operands]))
            shown = [names.get(literals[place], repr(one)) if place in literals else repr(one) for place, one in given]
            written[part] = f"{part.template.name}({', '.join(shown)})"
            if used.get(part, 0) > 1:
                lines.append(f"t{len(lines)} = {written[part]}")
                written[part] = f"t{len(lines) - 1}"
        return "\n".join([*lines, f"return {written[self]}"])

    def compute(self, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return what it computes of values of its variables."""
        found: dict[Term, torch.Tensor] = {}
        for part in self.parts:
            operands = tuple(found[one] for one in part.operands)
            found[part] = values[part.name] if part.template is None else call(part.template, operands)
        return found[self]


class _Text(str):
    """What is written as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def call(template: Template, operands: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Return the result of a call."""
    made: torch.Tensor = template.op(*template.filled(operands))
    return made


def matches(pattern: Term, term: Term) -> bool:
    """Whether a term is an instance of another one, in which variables stand for any terms of their shapes."""
    return next(_bindings([(pattern, term)], {}), None) is not None


def _bindings(pairs: list[tuple[Term, Term]], bound: dict[str, Term]) -> Iterator[dict[str, Term]]:
    """Yield what variables stand for so that all pairs are alike."""
    if not pairs:
        yield bound
        return
    (pattern, term), *rest = pairs
    if pattern.template is None:
        if bound.get(pattern.name, term) is term:
            yield from _bindings(rest, bound | {pattern.name: term})
        return
    if term.template != pattern.template:
        return
    orders = [term.operands, term.operands[::-1]] if pattern.template.is_commutative else [term.operands]
    for operands in orders:
        yield from _bindings([*zip(pattern.operands, operands, strict=True), *rest], bound)


class Costs:
    """What calls cost on a target.

    Args:
        target: Its description.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: dict[tuple[str, tuple[torch.Size, ...]], float] = {}

    def of_call(self, template: Template, operands: tuple[torch.Tensor, ...], result: torch.Tensor) -> float:
        """Return the nanoseconds of a call, of values without elements."""
        key = (template.text, tuple(one.shape for one in operands))
        if key not in self._known:
            graph = Graph()
            given = []
            for number, one in enumerate(operands):
                given.append(graph.placeholder(f"x{number}"))
                given[-1].meta["val"] = one
            node = graph.call_function(template.op, template.filled(tuple(given)))
            node.meta["val"] = result
            self._known[key] = self._target.cost_of(node)
        return self._known[key]
