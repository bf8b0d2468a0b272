"""Trials for a rule: values of all its variables that agree with each other, made by construction."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from .cells import Cell, CellSpace
from .constraints import Condition, condition
from .drawing import Draft, Draw
from .equations import equations_of
from .linking import link_variables
from .sizes import Size
from .solving import SizeProblem, UnsolvedError
from .values import PROFILES, make_tensor
from .variables import TensorVariable, Variable

MAX_ELEMENTS = 4096
_MOST_TRIES = 500
_MOST_CELLS = 200


class SamplingError(Exception):
    """No values were found that are of all types and keep to the conditions."""


@dataclass(frozen=True)
class Sample:
    """Values for all variables of a rule.

    Attributes:
        values: Tensor, number, list ... by name of the variable; None for what is left out.
        symbols: Sizes by name, sequences as tuples.
        cell: The discrete choices.
        variables: The types, linked.
    """

    values: dict[str, Any]
    symbols: dict[str, Any]
    cell: Cell = field(default_factory=Cell)
    variables: Mapping[str, Variable] = field(default_factory=dict, repr=False)

    def with_value(self, name: str, value: object) -> Sample:
        """Return a sample in which one value is another."""
        return replace(self, values={**self.values, name: value})


class Sampler:
    """Makes samples.

    Args:
        variables: Types of the variables of a rule.
        gen: Conditions besides the types: texts such as `len(S) == 2 and Ci == Cg * g`, of which sizes are made, and
            functions of values and sizes, for which samples are tried again.
        profile: Values where `sample` is not told which: `normal`, `special` or `boundary`.
        max_elements: Most elements of one tensor.

    Raises:
        VariableSyntaxError: The types do not go together.
        ExpressionError: A text in `gen` is no condition.
    """

    def __init__(
        self,
        variables: Mapping[str, Variable],
        *,
        gen: str | Condition | Iterable[str | Condition] | None = None,
        profile: str = "normal",
        max_elements: int = MAX_ELEMENTS,
    ) -> None:
        self.variables = link_variables(variables)
        given = [] if gen is None else [gen] if isinstance(gen, str) or callable(gen) else list(gen)
        texts = [one for one in given if isinstance(one, str)]
        self.conditions: list[Condition] = [condition(one) if isinstance(one, str) else one for one in given]
        self.problem = SizeProblem(self.variables, texts)
        self.equations = equations_of(texts, self.variables)
        self.space = CellSpace(self.variables, self.problem)
        self.profile = _known_profile(profile)
        self.max_elements = max_elements
        self.tries = 0
        self.accepted = 0
        self.ordered = _in_order(self.variables)

    def sample(self, rng: random.Random, profile: str | None = None, cell: Cell | None = None) -> Sample:
        """Return values; the same state of `rng` gives the same ones.

        Args:
            rng: Source of chance.
            profile: Which values.
            cell: Discrete choices to keep to.

        Raises:
            SamplingError: None were found.
        """
        chosen = self.profile if profile is None else _known_profile(profile)
        for _ in range(_MOST_TRIES):
            self.tries += 1
            found = self._try(rng, chosen, cell)
            if found is not None:
                self.accepted += 1
                return found
        raise SamplingError(f"no values in {_MOST_TRIES} tries; types or `gen` contradict each other")

    def sample_instantiations(self, limit: int = _MOST_CELLS) -> Iterator[Cell]:
        """Yield the combinations of dtypes, lengths, missing values and choices, at most `limit` of them."""
        yield from self.space.cells(limit)

    def _try(self, rng: random.Random, profile: str, cell: Cell | None) -> Sample | None:
        draw = Draw(self.ordered, self.problem, rng, profile, self.max_elements)

        def make(variable: TensorVariable, dtype: torch.dtype, sizes: tuple[Size, ...]) -> torch.Tensor:
            return make_tensor(
                dtype, [int(size) for size in sizes], rng, profile=profile, domain=variable.domain,
                is_constant="const" in variable.qualifiers or "param" in variable.qualifiers,
                layouts=variable.layouts,
            )  # fmt: skip

        try:
            draft = draw.draft(cell or self.space.random(rng), make)
        except UnsolvedError:
            return None
        for equation in self.equations:
            equation.apply(draft.values, draft.names)
        if not all(holds(draft.names) for holds in self.conditions):
            return None
        return self.finished(draft)

    def finished(self, draft: Draft) -> Sample:
        """Return a draw with its values in the order of the rule, and without names that no rule can write."""
        values = {name: draft.values[name] for name in self.variables}
        made = draft.assignment.values
        symbols = {name: value for name, value in made.items() if name.isidentifier() and name not in values}
        return Sample(values, symbols, draft.cell, self.variables)


def _known_profile(profile: str) -> str:
    if profile not in PROFILES:
        raise ValueError(f"there is no profile {profile!r}; profiles are {', '.join(PROFILES)}")
    return profile


def _in_order(variables: Mapping[str, Variable]) -> dict[str, Variable]:
    """Return the variables so that each follows those whose values it needs."""
    ordered: dict[str, Variable] = {}

    def visit(name: str) -> None:
        if name in variables and name not in ordered:
            for other in sorted(variables[name].depends_on):
                if other != name:
                    visit(other)
            ordered[name] = variables[name]

    for name in variables:
        visit(name)
    return ordered
