"""What the variables of one rule say about each other: names are checked, and shapes reach who mentions them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from .dtypes import DtypeClass
from .scanner import VariableSyntaxError, did_you_mean
from .sizes import BroadcastDim, Dims, Measure, Name, SequenceDim, SizeDim, SizeExpression, mentioned_names
from .variables import (
    AboutVariable,
    AxisVariable,
    ChoiceVariable,
    DimsVariable,
    DtypeVariable,
    IntVariable,
    Links,
    ListVariable,
    PartitionVariable,
    ScalarVariable,
    ShapeVariable,
    TensorListVariable,
    TensorVariable,
    Variable,
)

_NUMBERS = (IntVariable, ChoiceVariable, AxisVariable, ScalarVariable)
_SHAPED = (TensorVariable, TensorListVariable, ListVariable, ShapeVariable, DimsVariable, AboutVariable)


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
    numbers = {name: one for name, one in variables.items() if isinstance(one, _NUMBERS)}
    return {name: _linked(one, shapes, numbers) for name, one in variables.items()}


def _linked(one: Variable, shapes: Mapping[str, DimsVariable], numbers: Mapping[str, Variable]) -> Variable:
    own = _dims_of(one)
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


def _dims_of(one: Variable) -> Dims:
    if isinstance(one, TensorListVariable):
        return one.element.dims or ()
    if isinstance(one, TensorVariable | DimsVariable):
        return one.dims or ()
    return ()


class _Checker:
    def __init__(self, variables: Mapping[str, Variable], texts: Mapping[str, str]) -> None:
        self.variables = variables
        self.texts = texts
        self.sizes: set[str] = set()
        self.sequences: set[str] = set()
        for one in variables.values():
            for dim in _dims_of(one):
                if isinstance(dim, SizeDim):
                    self.sizes |= dim.size.unknowns()
                elif isinstance(dim, SequenceDim) and dim.name is not None:
                    self.sequences.add(dim.name)
        self.shapes = {name for name, one in variables.items() if isinstance(one, _SHAPED)} | self.sequences

    def check(self) -> None:
        for one in self.variables.values():
            self._check_dims(one)
            for expression in _expressions(one):
                self._check_expression(one, expression)
            self._check_references(one)
        self._check_order()

    def _check_dims(self, one: Variable) -> None:
        for dim in _dims_of(one):
            if isinstance(dim, SizeDim):
                for name in sorted(dim.size.unknowns()):
                    self._check_size(one, name)
            elif isinstance(dim, SequenceDim | BroadcastDim) and dim.name is not None:
                known = self.variables.get(dim.name)
                if known is not None and dim.name not in self.shapes:
                    self._fail(one, dim.name, f"{dim.name} is `{known}`, and no shape")
                if dim.name in self.sizes:
                    self._fail(one, dim.name, f"{dim.name} is one size elsewhere, and a shape here")

    def _check_size(self, one: Variable, name: str) -> None:
        known = self.variables.get(name)
        if known is not None and not isinstance(known, _NUMBERS):
            self._fail(one, name, f"{name} is `{known}`, and no size")
        if name in self.sequences:
            self._fail(one, name, f"{name} is a shape elsewhere, and one size here")

    def _check_expression(self, one: Variable, expression: SizeExpression) -> None:
        for part in _parts(expression):
            if isinstance(part, Measure) and part.name not in self.shapes:
                self._unknown(one, part.name, self.shapes, "no tensor or shape")
            if isinstance(part, Name):
                if part.name not in self.variables and part.name not in self.sizes:
                    self._unknown(one, part.name, {*self.variables, *self.sizes}, "no size or number")
                self._check_size(one, part.name)

    def _check_references(self, one: Variable) -> None:
        if isinstance(one, AboutVariable) and one.of not in self.shapes:
            self._unknown(one, one.of, self.shapes, "no tensor or shape")
        if isinstance(one, PartitionVariable) and isinstance(one.at, str):
            known = self.variables.get(one.at)
            if not isinstance(known, _NUMBERS):
                self._unknown(one, one.at, {n for n, v in self.variables.items() if isinstance(v, _NUMBERS)}, "no dim")
        if isinstance(one, ChoiceVariable):
            for name in sorted(one.depends_on):
                if name not in self.variables and name not in self.sizes:
                    self._unknown(one, name, {*self.variables, *self.sizes}, "neither a value nor a variable")
        same_as = next(iter(dtypes.same_as for dtypes in _dtype_classes(one)), None)
        if same_as is not None and not isinstance(self.variables.get(same_as), TensorVariable | DtypeVariable):
            known_tensors = {n for n, v in self.variables.items() if isinstance(v, TensorVariable | DtypeVariable)}
            self._unknown(one, same_as, known_tensors, "no tensor")

    def _check_order(self) -> None:
        done: set[str] = set()

        def visit(name: str, above: tuple[str, ...]) -> None:
            if name in above:
                circle = " -> ".join((*above[above.index(name) :], name))
                self._fail(self.variables[above[-1]], name, f"the types depend on each other: {circle}")
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


def _dtype_classes(one: Variable) -> Iterator[DtypeClass]:
    if isinstance(one, TensorVariable):
        yield one.dtypes
    if isinstance(one, TensorListVariable):
        yield one.element.dtypes
    if isinstance(one, DtypeVariable) and one.dtypes is not None:
        yield one.dtypes


def _expressions(one: Variable) -> Iterator[SizeExpression]:
    """Expressions whose names something else must give."""
    for field in ("low", "high", "count"):
        value = getattr(one, field, None)
        if isinstance(value, SizeExpression):
            yield value
    for dim in _dims_of(one):
        if isinstance(dim, SizeDim):
            yield from (part for part in _parts(dim.size) if isinstance(part, Measure))


def _parts(expression: SizeExpression) -> Iterator[SizeExpression]:
    yield expression
    for side in ("left", "right"):
        inner = getattr(expression, side, None)
        if isinstance(inner, SizeExpression):
            yield from _parts(inner)
