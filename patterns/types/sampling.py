"""Trials for a rule: values of all its variables that agree with each other, made by construction."""

from __future__ import annotations

import itertools
import math
import random
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from exirkit.patterns.types.conditions import Condition, condition, equations_of
from exirkit.patterns.types.literals import Choice, Literal, Reference
from exirkit.patterns.types.parser import link_variables
from exirkit.patterns.types.quantized import ParameterTensor, put_ties
from exirkit.patterns.types.scalars import ChoiceVariable, DtypeVariable, FloatVariable, IntVariable, ScalarVariable
from exirkit.patterns.types.sizes import AnyDim, BroadcastDim, Size, product
from exirkit.patterns.types.solving import Assignment, Picker, SizeProblem
from exirkit.patterns.types.tensors import DimsVariable, TensorListVariable, TensorMaker, TensorVariable
from exirkit.patterns.types.values import PROFILES, UnsolvedError, ValueMaker, drawn_length, make_tensor
from exirkit.patterns.types.variable import Variable

_LENGTH_WEIGHTS = (3, 4, 5, 4, 2, 2)


@dataclass(frozen=True)
class Cell:
    """One combination of discrete choices.

    Attributes:
        dtypes: Dtype of each tensor, and value of each dtype variable, that is free.
        lengths: Length of each sequence that is free.
        absent: Variables that are none.
        choices: What each bool, text and `one_of` is.
    """

    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    choices: Mapping[str, Choice] = field(default_factory=dict)


class CellSpace:
    """All combinations that the types of a rule allow."""

    def __init__(self, variables: Mapping[str, Variable], problem: SizeProblem) -> None:
        self.dtypes = {name: dtypes for name, one in variables.items() if (dtypes := one.dtype_options())}
        self.lengths = problem.free_lengths()
        self.optional = tuple(name for name, one in variables.items() if one.allows_none)
        self.choices = {name: options for name, one in variables.items() if (options := one.choice_options())}

    def random(self, rng: random.Random) -> Cell:
        """Return a combination; tensors have one dtype more often than chance would have it."""
        shared = None
        if self.dtypes and rng.random() < 0.4:
            shared = rng.choice(rng.choice(tuple(self.dtypes.values())))
        dtypes = {
            name: shared if shared is not None and shared in options else rng.choice(options)
            for name, options in self.dtypes.items()
        }
        lengths = {
            name: rng.choices(options, [_LENGTH_WEIGHTS[min(one, len(_LENGTH_WEIGHTS) - 1)] for one in options])[0]
            for name, options in self.lengths.items()
            if options
        }
        absent = frozenset(name for name in self.optional if rng.random() < 0.35)
        return Cell(dtypes, lengths, absent, {name: rng.choice(options) for name, options in self.choices.items()})

    def count(self) -> int:
        """Return the number of combinations."""
        total = 1
        for options in self._axes():
            total *= len(options[1])
        return total

    def cells(self, limit: int) -> Iterator[Cell]:
        """Yield all combinations, or at most `limit` of them, in which every single choice, and most pairs, occur."""
        axes = self._axes()
        if self.count() <= limit:
            for picks in itertools.product(*(options for _, options in axes)):
                yield self._cell(axes, picks)
            return
        rng = random.Random(0)
        seen: set[tuple[int, ...]] = set()
        widest = max(len(options) for _, options in axes)
        for index in range(limit):
            # First every choice of every axis, then chance.
            indices = tuple(
                (index + offset) % len(options) if index < widest else rng.randrange(len(options))
                for offset, (_, options) in enumerate(axes)
            )
            if indices not in seen:
                seen.add(indices)
                yield self._cell(axes, [options[at] for at, (_, options) in zip(indices, axes, strict=True)])

    def _axes(self) -> list[tuple[tuple[str, str], Sequence[Any]]]:
        axes: list[tuple[tuple[str, str], Sequence[Any]]] = []
        axes += [(("dtype", name), options) for name, options in self.dtypes.items()]
        axes += [(("length", name), options) for name, options in self.lengths.items() if options]
        axes += [(("absent", name), (False, True)) for name in self.optional]
        axes += [(("choice", name), options) for name, options in self.choices.items()]
        return axes

    def _cell(self, axes: Sequence[tuple[tuple[str, str], Sequence[Any]]], picks: Sequence[Any]) -> Cell:
        by_kind: dict[str, dict[str, Any]] = {"dtype": {}, "length": {}, "absent": {}, "choice": {}}
        for ((kind, name), _), pick in zip(axes, picks, strict=True):
            by_kind[kind][name] = pick
        absent = frozenset(name for name, is_absent in by_kind["absent"].items() if is_absent)
        return Cell(by_kind["dtype"], by_kind["length"], absent, by_kind["choice"])


# Trials for a rule: values of all its variables that agree with each other, made by construction


MAX_ELEMENTS = 4096
_MOST_TRIES = 500
_MOST_CELLS = 200
SIZES = (0, 1, 2, 3, 5, 7, 8)
"""Sizes that trials use where nothing asks for others."""

_WEIGHTS = {"normal": (1, 3, 6, 6, 5, 4, 3), "special": (2, 4, 6, 5, 4, 3, 2), "boundary": (5, 8, 5, 4, 3, 2, 3)}
_ALIAS_SHARE = 0.1
_MOST_IN_LIST = 4
_MOST_RETRIES = 200


class RandomPicker(Picker):
    """Picks sizes from a few, and other integers evenly.

    Args:
        rng: Source of chance.
        profile: `boundary` has more sizes of 0 and 1, and ends of ranges.
        limits: Names whose sizes must not be larger.
    """

    def __init__(self, rng: random.Random, profile: str, limits: Mapping[str, int] | None = None) -> None:
        self.rng = rng
        self.profile = profile
        self.limits = limits or {}

    def size(self, name: str, low: int, high: int | None) -> int:
        """Return one of the usual sizes, or if none fits one near the lower bound."""
        if name in self.limits:
            high = max(low, self.limits[name] if high is None else min(high, self.limits[name]))
        weighted = zip(SIZES, _WEIGHTS[self.profile], strict=True)
        choices = [(size, weight) for size, weight in weighted if low <= size and (high is None or size <= high)]
        if not choices or (high is not None and high > SIZES[-1] and self.rng.random() < 0.2):
            return self.rng.randint(low, low + 4 if high is None else min(high, low + 64))
        return self.rng.choices([size for size, _ in choices], [weight for _, weight in choices])[0]

    def number(self, name: str, low: int, high: int | None) -> int:
        """Return any integer of the range."""
        top = low + 12 if high is None else high
        if self.profile == "boundary" and self.rng.random() < 0.5:
            return self.rng.choice((low, top))
        return self.rng.randint(low, top)


@dataclass
class Draft:
    """What one draw made.

    Attributes:
        values: By variable.
        names: Sizes, sequences and values together.
        cell: The discrete choices, after those that contradict others were given up.
    """

    values: dict[str, Any]
    names: Mapping[str, Any]
    cell: Cell
    assignment: Assignment


class Draw:
    """Draws values for all variables.

    Args:
        variables: Types in the order of their dependencies.
        problem: Their sizes.
        rng: Source of chance.
        profile: Which values.
        max_elements: Most elements of a tensor.
    """

    may_alias = True
    is_symbolic = False
    has_values = True

    def __init__(
        self, variables: Mapping[str, Variable], problem: SizeProblem, rng: random.Random, profile: str,
        max_elements: int,
    ) -> None:  # fmt: skip
        self.variables = variables
        self.problem = problem
        self.rng = rng
        self.profile = profile
        self.max_elements = max_elements

    def draft(self, cell: Cell, make_tensor: TensorMaker) -> Draft:
        """Return values for a combination of choices.

        Raises:
            UnsolvedError: There are none, or they are hard to find.
        """
        cell = replace(cell, absent=self._absent(cell))
        values: dict[str, Any] = {name: None for name in self.variables if name in cell.absent}
        self._draw_numbers(cell, values)
        assignment = self.assign(cell, values)
        names: MutableMapping[str, Any] = ChainMap(values, assignment.values)
        self.fill(cell, values, names, make_tensor)
        return Draft(values, names, cell, assignment)

    def fill(self, cell: Cell, values: dict[str, Any], names: Mapping[str, Any], make_tensor: TensorMaker) -> None:
        """Make the tensors, and then all that is not known yet."""
        maker = ValueMaker(self.rng, self.profile, names, is_symbolic=self.is_symbolic)
        made: dict[tuple[str, torch.dtype, tuple[Size, ...]], torch.Tensor] = {}
        for name, variable in self.variables.items():
            if name in values or isinstance(variable, ParameterTensor):
                continue
            if isinstance(variable, TensorVariable):
                values[name] = self._tensor(variable, cell, names, made, make_tensor)
            elif isinstance(variable, TensorListVariable):
                values[name] = self._tensors(variable, cell, names, make_tensor)
        for name, variable in self.variables.items():
            if name in values:
                continue
            if isinstance(variable, ParameterTensor):
                values[name] = self._parameter(variable, cell, names, make_tensor)
            else:
                values[name] = self._other(variable, cell, names, maker)

    # What is missing

    def _absent(self, cell: Cell) -> frozenset[str]:
        """Give up to leave out what a value that is present needs."""
        if not cell.absent:
            return cell.absent
        absent = set(cell.absent)
        changed = True
        while changed:
            changed = False
            for name, variable in self.variables.items():
                if name in absent or isinstance(variable, ChoiceVariable | DimsVariable):
                    continue
                for needed in self._needed(variable, absent):
                    absent.discard(needed)
                    changed = True
        return frozenset(absent)

    def _needed(self, variable: Variable, absent: set[str]) -> list[str]:
        dims = self.problem.dims.get(variable.name, ())
        broadcast = {dim.name for dim in dims if isinstance(dim, BroadcastDim)}
        needed: list[str] = []
        for name in sorted(variable.depends_on - broadcast):
            if name in absent:
                needed.append(name)
            binders = [other for other, one in self.variables.items() if name in one.binds]
            if name not in self.variables and binders and all(other in absent for other in binders):
                needed.append(binders[0])
        return needed

    # Numbers and sizes

    def _draw_numbers(self, cell: Cell, values: dict[str, Any]) -> None:
        """Draw what needs no tensor, since sizes may be made from it."""
        maker = ValueMaker(self.rng, self.profile, values)
        for name, variable in self.variables.items():
            if name in values or not variable.depends_on <= values.keys():
                continue
            if isinstance(variable, FloatVariable | ScalarVariable) or name in cell.choices:
                values[name] = self._other(variable, cell, values, maker)
            elif isinstance(variable, IntVariable) and not self._is_solved_for(name):
                values[name] = maker.make(variable)

    def _is_solved_for(self, name: str) -> bool:
        """Whether an integer is made from sizes, or has bounds besides those of its type."""
        recipe = self.problem.recipes.made.get(name)
        if recipe is None:
            return False
        return recipe.definition is not None or recipe.options is not None or bool(
            recipe.multiple_of or recipe.differs_from or len(recipe.low) > 1 or len(recipe.high) > 1
        )  # fmt: skip

    def assign(self, cell: Cell, values: dict[str, Any]) -> Assignment:
        """Choose all sizes; integers that are solved for with them are added to the values."""
        known = {name: value for name, value in values.items() if type(value) is int}
        seed = self.rng.getrandbits(64)
        limits: dict[str, int] = {}
        for _ in range(_MOST_RETRIES):
            picker = RandomPicker(random.Random(seed), self.profile, limits)
            made = self.problem.solve(picker, cell.lengths, known)
            largest = self._largest(cell, made.values)
            if largest <= self.max_elements:
                for name in self.problem.integers:
                    values.setdefault(name, made.values[name])
                return made
            widest = max(made.free, key=lambda name: int(made.values[name]), default=None)
            if widest is None or made.values[widest] <= 1:
                raise UnsolvedError
            limit = max(1, math.ceil(made.values[widest] / 2))
            if limits.get(widest) == limit:
                # A lower bound holds it up: the same limits give the same sizes, however often they are tried.
                raise UnsolvedError
            limits[widest] = limit
        raise UnsolvedError

    def _largest(self, cell: Cell, values: Mapping[str, Any]) -> int:
        """Return the number of elements of the largest tensor."""
        counts = [0]
        for name, dims in self.problem.dims.items():
            if name not in cell.absent:
                plain = [dim for dim in dims if not isinstance(dim, BroadcastDim)]
                broadcast = [values[dim.name] for dim in dims if isinstance(dim, BroadcastDim)]
                sizes = [*self.problem.sizes_of(plain, values), *(size for one in broadcast for size in one)]
                counts.append(int(product(sizes)))
        return max(counts)

    # Tensors

    def _tensor(
        self, variable: TensorVariable, cell: Cell, names: Mapping[str, Any],
        made: dict[tuple[str, torch.dtype, tuple[Size, ...]], torch.Tensor], make_tensor: TensorMaker,
    ) -> torch.Tensor:  # fmt: skip
        dtype = self._dtype(variable, cell, names)
        sizes = self._sizes(variable.name, names)
        if not self.may_alias:
            return make_tensor(variable, dtype, sizes)
        key = (str(variable), dtype, sizes)
        if key in made and self.rng.random() < _ALIAS_SHARE:
            return made[key]
        made[key] = make_tensor(variable, dtype, sizes)
        return made[key]

    def _parameter(
        self, variable: ParameterTensor, cell: Cell, names: Mapping[str, Any], make_tensor: TensorMaker
    ) -> torch.Tensor:
        dtype, sizes = cell.dtypes[variable.name], variable.drawn_sizes(names, self.rng)
        if not self.has_values:
            return make_tensor(variable, dtype, sizes)
        return variable.drawn(dtype, [int(size) for size in sizes], names, self.rng, self.profile)

    def _tensors(
        self, variable: TensorListVariable, cell: Cell, names: Mapping[str, Any], make_tensor: TensorMaker
    ) -> list[torch.Tensor]:
        count = (
            drawn_length(self.rng, variable.least, _MOST_IN_LIST)
            if variable.count is None
            else variable.count.evaluate(names)
        )
        if type(count) is not int or not variable.least <= count <= 64:
            raise UnsolvedError
        dims = variable.element.dims or ()
        blanks = {f"{variable.name}.{index}" for index, dim in enumerate(dims) if isinstance(dim, AnyDim)}
        dtype = self._dtype(variable.element, cell, names)
        found = []
        for _ in range(count):
            own = ChainMap({blank: self.rng.choice((1, 2, 3, 5)) for blank in sorted(blanks)}, names)  # type: ignore[arg-type]
            found.append(make_tensor(variable.element, dtype, self._sizes(variable.name, own)))
        return found

    def _dtype(self, variable: TensorVariable, cell: Cell, names: Mapping[str, Any]) -> torch.dtype:
        same_as = variable.dtypes.same_as
        if same_as is None:
            return cell.dtypes[variable.name]
        other = self.variables[same_as]
        if isinstance(other, TensorVariable):
            return self._dtype(other, cell, names)
        value = names.get(same_as, cell.dtypes.get(same_as))
        if not isinstance(value, torch.dtype):
            raise UnsolvedError
        return value

    def _sizes(self, name: str, names: Mapping[str, Any]) -> tuple[Size, ...]:
        sizes: list[Size] = []
        for dim in self.problem.dims[name]:
            if isinstance(dim, BroadcastDim):
                sizes += self._part(names[dim.name])
            else:
                sizes += self.problem.sizes_of((dim,), names)
        return tuple(sizes)

    def _part(self, whole: Sequence[Size]) -> list[Size]:
        """Return a shape that broadcasts to another: dims in front are left out, others become 1."""
        if self.rng.random() < 0.45:
            return list(whole)
        kept = list(whole[self.rng.randint(0, len(whole)) :]) if self.rng.random() < 0.4 else list(whole)
        return [1 if self.rng.random() < 0.35 else size for size in kept]

    # All else

    def _other(self, variable: Variable, cell: Cell, names: Mapping[str, Any], maker: ValueMaker) -> Any:
        choice = cell.choices.get(variable.name)
        if isinstance(choice, Literal):
            return choice.value
        if isinstance(choice, Reference):
            return names[choice.name]
        if isinstance(variable, DimsVariable):
            return list(names[variable.name])
        if isinstance(variable, DtypeVariable):
            same_as = variable.dtypes.same_as if variable.dtypes is not None else None
            return cell.dtypes[variable.name] if same_as is None else _dtype_of(names[same_as])
        return maker.make(variable)


def _dtype_of(value: Any) -> torch.dtype:
    return value if isinstance(value, torch.dtype) else value.dtype


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


class Sampler:
    """Makes samples.

    Args:
        variables: Types of the variables of a rule.
        gen: Conditions besides the types: texts such as `len(S) == 2 and Ci == Cg * g`, of which sizes are made, and
            functions of values and sizes, for which samples are tried again.
        profile: Values where `sample` is not given any: `normal`, `special` or `boundary`.
        max_elements: Most elements of one tensor.

    Raises:
        VariableSyntaxError: The types do not go together.
        ExpressionError: A text in `gen` is not a condition.
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
            found = self._try(rng, chosen, cell)
            if found is not None:
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

        found = self.drawn(draw, cell or self.space.random(rng), make)
        if found is not None:
            put_ties(self.variables, found.values, rng)
        return found

    def drawn(self, draw: Draw, cell: Cell, make: TensorMaker) -> Sample | None:
        """Return what one draw gives for a combination of choices; None if it contradicts itself or a condition."""
        try:
            draft = draw.draft(cell, make)
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
