"""Sizes for the names in the types of a rule, by construction: each is picked once all it is made from is known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .constraints import Recipe, Recipes, element_of, length_of
from .sizes import (
    AnyDim,
    Arithmetic,
    BroadcastDim,
    Dim,
    Name,
    Number,
    SequenceDim,
    Size,
    SizeDim,
    SizeExpression,
)
from .variables import AxisVariable, DimsVariable, IntVariable, TensorListVariable, TensorVariable, Variable

MAX_LENGTH = 5


class Picker:
    """Picks what is free; how, a sample and an abstract evaluation say differently."""

    def size(self, name: str, low: int, high: int | None) -> int:
        """Return a size that is not below `low`, nor above `high`."""
        raise NotImplementedError

    def number(self, name: str, low: int, high: int | None) -> int:
        """Return an integer of that range."""
        raise NotImplementedError


class UnsolvedError(Exception):
    """These choices do not go together; others may."""


@dataclass
class Assignment:
    """Integers of one sample.

    Attributes:
        values: By name: sizes, lengths `len(S)`, elements `S[0]`, integer variables; and sequences as tuples.
        free: Sizes that were picked, not made from others, in their order; those may be made smaller.
    """

    values: dict[str, Any] = field(default_factory=dict)
    free: list[str] = field(default_factory=list)


class SizeProblem:
    """All integers that the types of a rule, and its `gen`, speak of.

    Args:
        variables: Types, linked.
        conditions: Texts of `gen`.
    """

    def __init__(self, variables: Mapping[str, Variable], conditions: Iterable[str] = ()) -> None:
        self.variables = variables
        self.shapes = {name: one for name, one in variables.items() if isinstance(one, DimsVariable)}
        signatures = {name: dims for name, one in variables.items() if (dims := _signature(one)) is not None}
        self.dims: dict[str, tuple[Dim, ...]] = {}
        self.sequences: list[str] = []
        sizes: list[str] = []
        for name, dims in {**signatures, **{name: one.dims for name, one in self.shapes.items()}}.items():
            self.dims[name] = _without_blanks(name, dims)
            for dim in self.dims[name]:
                if isinstance(dim, SizeDim):
                    sizes += [one for one in sorted(dim.size.unknowns()) if one not in sizes]
                elif isinstance(dim, SequenceDim | BroadcastDim) and dim.name not in (*self.sequences, *self.shapes):
                    self.sequences.append(str(dim.name))
        self.sizes = [name for name in sizes if name not in variables]
        self.integers = [name for name, one in variables.items() if isinstance(one, IntVariable)]
        ranks = {name: self._rank(dims) for name, dims in self.dims.items() if self._has_exact_rank(dims)}
        atoms = {*self.sizes, *self.integers, *map(length_of, self.sequences)}
        self.recipes = Recipes(atoms, {*self.sequences}, ranks)
        self._bound_integers()
        for one in variables.values():
            if isinstance(one, AxisVariable):
                self.recipes.learn(f"rank({one.of}) >= 1")
        for text in conditions:
            self.recipes.learn(text)

    def _has_exact_rank(self, dims: Sequence[Dim]) -> bool:
        return not any(isinstance(dim, BroadcastDim) for dim in dims)

    def _rank(self, dims: Sequence[Dim]) -> SizeExpression:
        fixed, lengths = 0, list[SizeExpression]()
        for dim in dims:
            if isinstance(dim, SequenceDim) and dim.name in self.shapes:
                lengths.append(self._rank(self.shapes[dim.name].dims))
            elif isinstance(dim, SequenceDim):
                lengths.append(Name(length_of(str(dim.name))))
            else:
                fixed += 1
        result: SizeExpression = lengths[0] if lengths else Number(fixed)
        for other in lengths[1:]:
            result = Arithmetic("+", result, other)
        return Arithmetic("+", result, Number(fixed)) if lengths and fixed else result

    def _bound_integers(self) -> None:
        for name in list(self.integers):
            variable = self.variables[name]
            assert isinstance(variable, IntVariable)
            low, high = (None if end is None else self.recipes.converted(end) for end in (variable.low, variable.high))
            if (low is None and variable.low is not None) or (high is None and variable.high is not None):
                # It asks for a number of elements, which is known when there are tensors.
                self.integers.remove(name)
                self.recipes.atoms.discard(name)
                continue
            recipe = self.recipes.of(name)
            recipe.is_number = True
            recipe.low += [] if low is None else [low]
            recipe.high += [] if high is None else [high]

    def free_lengths(self) -> dict[str, tuple[int, ...]]:
        """Return the lengths that sequences may have, of those that are not made from others."""
        found: dict[str, tuple[int, ...]] = {}
        for name in self.sequences:
            recipe = self.recipes.made.get(length_of(name), Recipe())
            if recipe.definition is None:
                options = recipe.options or range(MAX_LENGTH + 1)
                found[name] = tuple(one for one in options if _may_be(recipe, one))
        return found

    def solve(self, picker: Picker, lengths: Mapping[str, int], known: Mapping[str, Any]) -> Assignment:
        """Give every integer a value.

        Args:
            picker: Picks what is free.
            lengths: Lengths of sequences that are not made from others.
            known: Values of other variables.

        Raises:
            UnsolvedError: The choices contradict each other.
        """
        made = Assignment(dict(known))
        made.values.update({length_of(name): length for name, length in lengths.items()})
        for name in self.sequences:
            self._value(length_of(name), made, picker)
        elements = [element_of(name, index) for name in self.sequences for index in range(made.values[length_of(name)])]
        for atom in (*self.sizes, *elements, *self.integers):
            self._value(atom, made, picker)
        for name in self.sequences:
            length = made.values[length_of(name)]
            made.values[name] = tuple(made.values[element_of(name, index)] for index in range(length))
        for name, shape in self.shapes.items():
            made.values[name] = self.sizes_of(shape.dims, made.values)
        return made

    def sizes_of(self, dims: Sequence[Dim], values: Mapping[str, Any]) -> tuple[Size, ...]:
        """Return the shape of a signature without broadcasting.

        Raises:
            UnsolvedError: A size is negative, or cannot be computed.
        """
        sizes: list[Size] = []
        for dim in dims:
            if isinstance(dim, SequenceDim):
                sizes += values[str(dim.name)]
            elif isinstance(dim, SizeDim):
                sizes.append(self._evaluated(dim.size, values))
        if any(type(size) is int and size < 0 for size in sizes):
            raise UnsolvedError
        return tuple(sizes)

    def _evaluated(self, expression: SizeExpression, values: Mapping[str, Any]) -> Any:
        try:
            value = expression.evaluate(values)
        except ArithmeticError:
            raise UnsolvedError from None
        if value is None:
            raise UnsolvedError
        return value

    def _value(self, atom: str, made: Assignment, picker: Picker) -> None:
        if atom in made.values:
            return
        recipe = self.recipes.made.get(atom, Recipe())
        for name in recipe.needs():
            if name not in made.values and (name in self.recipes.atoms or "[" in name):
                self._value(name, made, picker)
        if recipe.definition is not None:
            value = self._evaluated(recipe.definition, made.values)
            if not recipe.is_number and type(value) is int and value < 0:
                raise UnsolvedError
            if atom.startswith("len(") and not (type(value) is int and value <= 16):
                raise UnsolvedError
            made.values[atom] = value
            return
        made.values[atom] = self._picked(atom, recipe, made, picker)

    def _picked(self, atom: str, recipe: Recipe, made: Assignment, picker: Picker) -> Any:
        lows = [self._evaluated(one, made.values) for one in recipe.low] + ([] if recipe.is_number else [0])
        highs = [self._evaluated(one, made.values) for one in recipe.high]
        low, high = max(lows, default=None), min(highs, default=None)
        if recipe.options is not None:
            options = [one for one in recipe.options if (low is None or one >= low) and (high is None or one <= high)]
            if not options:
                raise UnsolvedError
            return options[picker.number(atom, 0, len(options) - 1)]
        if low is None:
            low = -4 if high is None else high - 8
        if high is not None and high < low:
            raise UnsolvedError
        value: Any = (picker.number if recipe.is_number else picker.size)(atom, low, high)
        for one in recipe.multiple_of:
            divisor = self._evaluated(one, made.values)
            value = _multiple(value, divisor)
        avoided = {self._evaluated(one, made.values) for one in recipe.differs_from}
        while avoided and value in avoided:
            value += 1
        if high is not None and value > high:
            raise UnsolvedError
        if not recipe.is_number:
            made.free.append(atom)
        return value


def _multiple(value: Size, divisor: Size) -> Size:
    """Return the next multiple; a symbolic size becomes that many times the divisor, which is plain to see."""
    if not (type(value) is int and type(divisor) is int):
        return value * divisor
    return -(-value // divisor) * divisor if divisor else value


def _signature(one: Variable) -> tuple[Dim, ...] | None:
    if isinstance(one, TensorListVariable):
        one = one.element
    if not isinstance(one, TensorVariable):
        return None
    return (SequenceDim(),) if one.dims is None else one.dims


def _without_blanks(name: str, dims: Sequence[Dim]) -> tuple[Dim, ...]:
    """Give names to `_` and `...`, that no rule can write."""
    found: list[Dim] = []
    for index, dim in enumerate(dims):
        if isinstance(dim, AnyDim):
            found.append(SizeDim(Name(f"{name}.{index}")))
        elif isinstance(dim, SequenceDim) and dim.name is None:
            found.append(SequenceDim(f"{name}.{index}"))
        else:
            found.append(dim)
    return tuple(found)


def _may_be(recipe: Recipe, length: int) -> bool:
    """Whether a length is within the bounds that are literals."""
    lows = [one.evaluate({}) for one in recipe.low if not one.names()]
    highs = [one.evaluate({}) for one in recipe.high if not one.names()]
    avoided = [one.evaluate({}) for one in recipe.differs_from if not one.names()]
    return all(low <= length for low in lows) and all(length <= high for high in highs) and length not in avoided
