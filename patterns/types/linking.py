"""What the variables of one rule say about each other: names are checked, and shapes reach who mentions them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from .lists import AboutVariable, PartitionVariable
from .scalars import ChoiceVariable, DtypeVariable
from .scanner import VariableSyntaxError, did_you_mean
from .sizes import BroadcastDim, Measure, Name, SequenceDim, SizeDim, SizeExpression, mentioned_names
from .tensors import DimsVariable, TensorListVariable, TensorVariable
from .variable import Links, Variable


def link_variables(variables: Mapping[str, Variable], texts: Mapping[str, str] | None = None) -> dict[str, Variable]:
    """Return the variables, each with what the others say about the names in it.

    Args:
        variables: Types by name.
        texts: What they were parsed from, for the columns of errors.

    Raises:
        VariableSyntaxError: A name is used that nothing gives, or in two senses; `name` says in which variable.
    """
    checker = _Checker(variables, texts or {})
    checker.check()
    shapes = {name: one for name, one in variables.items() if isinstance(one, DimsVariable)}
    numbers = {name: one for name, one in variables.items() if one.IS_NUMBER}
    return {name: _linked(one, shapes, numbers) for name, one in variables.items()}


def _linked(one: Variable, shapes: Mapping[str, DimsVariable], numbers: Mapping[str, Variable]) -> Variable:
    own = one.signature
    if isinstance(one, TensorListVariable):
        element = _linked(one.element, shapes, numbers)
        assert isinstance(element, TensorVariable)
        one = replace(one, element=element)
    names = mentioned_names(own)
    near = {
        name: shape
        for name, shape in shapes.items()
        if shape is not one and (name in names or names & mentioned_names(shape.dims))
    }
    for shape in list(near.values()):
        names |= mentioned_names(shape.dims)
    counted = {name: number for name, number in numbers.items() if name in names}
    return replace(one, links=Links(near, counted)) if near or counted else one


class _Checker:
    def __init__(self, variables: Mapping[str, Variable], texts: Mapping[str, str]) -> None:
        self.variables = variables
        self.texts = texts
        self.sizes: set[str] = set()
        self.sequences: set[str] = set()
        for one in variables.values():
            for dim in one.signature:
                if isinstance(dim, SizeDim):
                    self.sizes |= dim.size.unknowns()
                elif isinstance(dim, SequenceDim) and dim.name is not None:
                    self.sequences.add(dim.name)
        self.shapes = {name for name, one in variables.items() if one.IS_SHAPED} | self.sequences

    def check(self) -> None:
        for one in self.variables.values():
            self._check_dims(one)
            for expression in _expressions(one):
                self._check_expression(one, expression)
            self._check_references(one)
        self._check_order()

    def _check_dims(self, one: Variable) -> None:
        for dim in one.signature:
            if isinstance(dim, SizeDim):
                for name in sorted(dim.size.unknowns()):
                    self._check_size(one, name)
            elif isinstance(dim, SequenceDim | BroadcastDim) and dim.name is not None:
                known = self.variables.get(dim.name)
                if known is not None and dim.name not in self.shapes:
                    self._fail(one, dim.name, f"{dim.name} is `{known}`, which is not a shape")
                if dim.name in self.sizes:
                    self._fail(one, dim.name, f"{dim.name} is one size elsewhere, and a shape here")

    def _check_size(self, one: Variable, name: str) -> None:
        known = self.variables.get(name)
        if known is not None and not known.IS_NUMBER:
            self._fail(one, name, f"{name} is `{known}`, which is not a size")
        if name in self.sequences:
            self._fail(one, name, f"{name} is a shape elsewhere, and one size here")

    def _check_expression(self, one: Variable, expression: SizeExpression) -> None:
        for part in _parts(expression):
            if isinstance(part, Measure) and part.name not in self.shapes:
                self._unknown(one, part.name, self.shapes, "not a tensor or shape")
            if isinstance(part, Name):
                if part.name not in self.variables and part.name not in self.sizes:
                    self._unknown(one, part.name, {*self.variables, *self.sizes}, "not a size or number")
                self._check_size(one, part.name)

    def _check_references(self, one: Variable) -> None:
        if isinstance(one, AboutVariable) and one.of not in self.shapes:
            self._unknown(one, one.of, self.shapes, "not a tensor or shape")
        if isinstance(one, PartitionVariable) and isinstance(one.at, str):
            known = self.variables.get(one.at)
            if known is None or not known.IS_NUMBER:
                self._unknown(one, one.at, {n for n, v in self.variables.items() if v.IS_NUMBER}, "not a dim")
        if isinstance(one, ChoiceVariable):
            for name in sorted(one.depends_on):
                if name not in self.variables and name not in self.sizes:
                    self._unknown(one, name, {*self.variables, *self.sizes}, "neither a value nor a variable")
        same_as = one.same_dtype_as
        if same_as is not None and not isinstance(self.variables.get(same_as), TensorVariable | DtypeVariable):
            known_tensors = {n for n, v in self.variables.items() if isinstance(v, TensorVariable | DtypeVariable)}
            self._unknown(one, same_as, known_tensors, "not a tensor")

    def _check_order(self) -> None:
        done: set[str] = set()

        def visit(name: str, above: tuple[str, ...]) -> None:
            if name in above:
                cycle = " -> ".join((*above[above.index(name) :], name))
                self._fail(self.variables[above[-1]], name, f"cyclic types: {cycle}")
            if name in done or name not in self.variables:
                return
            for other in sorted(_value_needs(self.variables[name])):
                visit(other, (*above, name))
            done.add(name)

        for name in self.variables:
            visit(name, ())

    def _unknown(self, one: Variable, name: str, known: set[str], what: str) -> None:
        self._fail(one, name, f"{name!r} is {what}", did_you_mean(name, sorted(known - {one.name})))

    def _fail(self, one: Variable, word: str, message: str, hint: str | None = None) -> None:
        found = re.search(rf"\b{re.escape(word)}\b", self.texts.get(one.name, ""))
        raise VariableSyntaxError(message, found.start() if found else 0, hint, one.name)


def _value_needs(one: Variable) -> frozenset[str]:
    """Names of variables whose values are needed before one can be chosen; shapes are solved together."""
    return frozenset() if isinstance(one, DimsVariable) else one.depends_on - frozenset(one.binds)


def _expressions(one: Variable) -> Iterator[SizeExpression]:
    """Expressions whose names something else must give."""
    yield from (each for each in one.expressions if isinstance(each, SizeExpression))
    for dim in one.signature:
        if isinstance(dim, SizeDim):
            yield from (part for part in _parts(dim.size) if isinstance(part, Measure))


def _parts(expression: SizeExpression) -> Iterator[SizeExpression]:
    yield expression
    for side in ("left", "right"):
        inner = getattr(expression, side, None)
        if isinstance(inner, SizeExpression):
            yield from _parts(inner)
