"""From the strings of types to the linked types of a rule: `parse_variable("x", "const f32 [*B, K] | none")`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from exirkit.patterns.types.bodies import BodyVariable, OperandsVariable
from exirkit.patterns.types.lists import (
    AboutVariable,
    AxesVariable,
    AxisVariable,
    FactorsVariable,
    ListVariable,
    PartitionVariable,
    PermutationVariable,
    ShapeVariable,
)
from exirkit.patterns.types.quantized import (
    LimitVariable,
    ParameterTensor,
    QuantizedVariable,
    ScaleVariable,
    ZeroPointVariable,
)
from exirkit.patterns.types.scalars import (
    BoolVariable,
    ChoiceVariable,
    DtypeVariable,
    FloatVariable,
    IntVariable,
    OperatorVariable,
    ScalarVariable,
    StringVariable,
)
from exirkit.patterns.types.scanner import QUALIFIERS, Token, TypeScanner, VariableSyntaxError, did_you_mean, is_dtype
from exirkit.patterns.types.sizes import (
    BroadcastDim,
    Measure,
    Name,
    SequenceDim,
    SizeDim,
    SizeExpression,
    mentioned_names,
)
from exirkit.patterns.types.tensors import DimsVariable, TensorListVariable, TensorVariable
from exirkit.patterns.types.variable import Links, Variable

TYPES: tuple[type[Variable], ...] = (
    TensorVariable,
    TensorListVariable,
    IntVariable,
    FloatVariable,
    ScalarVariable,
    BoolVariable,
    StringVariable,
    ListVariable,
    ShapeVariable,
    ChoiceVariable,
    PermutationVariable,
    AxesVariable,
    AxisVariable,
    FactorsVariable,
    PartitionVariable,
    DimsVariable,
    DtypeVariable,
    OperatorVariable,
    QuantizedVariable,
    ScaleVariable,
    ZeroPointVariable,
    LimitVariable,
    ParameterTensor,
    BodyVariable,
    OperandsVariable,
)
"""All types, in the order of the reference page."""

_BY_KEYWORD = {keyword: kind for kind in TYPES for keyword in kind.KEYWORDS}
TypeScanner.keywords = tuple(_BY_KEYWORD)
_NONE = ("none", "None")


def parse_variable(name: str, text: str) -> Variable:
    """Return the type that a string describes.

    Args:
        name: Name of the variable.
        text: Its type, `f32 [*B, K]`.

    Raises:
        VariableSyntaxError: It is not a type; the error has the column.
    """
    scanner = TypeScanner(name, text)
    allows_none = False
    if scanner.token.text in _NONE and scanner.peek().text in ("|", "or"):
        scanner.take()
        scanner.take()
        allows_none = True
    variable = _parse_type(scanner)
    while scanner.accept("|", "or"):
        token = scanner.token
        if scanner.name("none after '|'") not in _NONE:
            scanner.fail(f"only none may follow '|', not {token.text!r}", token, hint=_union_hint(token, variable))
        allows_none = True
    if scanner.token.kind != "end":
        scanner.fail(f"unexpected {scanner.token.shown}", hint=_surplus_hint(scanner.token, variable))
    return replace(variable, allows_none=allows_none) if allows_none else variable


def _parse_type(scanner: TypeScanner) -> Variable:
    token = scanner.token
    if token.kind == "end":
        scanner.fail("expected a type", hint='such as "f32 [*S]", "int in [0, 3]" or "bool"')
    if token.text == "scalar" and is_dtype(scanner.peek().text):
        scanner.take()
        return ScalarVariable.of_dtype(scanner)
    if QuantizedVariable.starts(scanner):
        return QuantizedVariable.parse_qualified(scanner)
    kind = _BY_KEYWORD.get(token.text)
    if kind is None or (token.text == "bool" and scanner.bool_is_dtype()):
        return TensorVariable.parse_tensor(scanner)
    return kind.parse(scanner, scanner.take())


def _union_hint(token: Token, variable: Variable) -> str | None:
    if is_dtype(token.text) and isinstance(variable, TensorVariable):
        return "write the dtypes before the dims: f16|f32 [*S]"
    return did_you_mean(token.text, ["none"])


def _surplus_hint(token: Token, variable: Variable) -> str | None:
    if token.kind == "name":
        words = ["in", "none", "layouts", "of", "at", *QUALIFIERS]
        if isinstance(variable, TensorVariable) and token.text in QUALIFIERS:
            return "qualifiers stand before the dtype"
        return did_you_mean(token.text, words, 0.5)
    if token.text == "?":
        return "a value that may be missing is written '| none'"
    return None


# What the variables of one rule say about each other: names are checked, and shapes reach who mentions them


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
        if isinstance(one, BodyVariable) and one.like is not None and one.like not in self.variables:
            self._unknown(one, one.like, set(self.variables), "not a tensor or a list")
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
