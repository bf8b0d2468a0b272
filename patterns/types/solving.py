"""Sizes for the names in the types of a rule, by construction: each is picked once all it is made from is known.

Conditions on sizes, `len(S) == 2 and Ci == Cg * g`, become recipes: what each size is made from.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from exirkit.patterns.syntax.expressions import parse_expression
from exirkit.patterns.types.values import UnsolvedError

from .lists import AxisVariable
from .scalars import IntVariable
from .sizes import (
    AnyDim,
    Arithmetic,
    BroadcastDim,
    Dim,
    Dims,
    Measure,
    Name,
    Number,
    SequenceDim,
    Size,
    SizeDim,
    SizeExpression,
)
from .tensors import DimsVariable, TensorListVariable, TensorVariable
from .variable import Variable


@dataclass
class Recipe:
    """How one integer is chosen.

    Attributes:
        definition: What it equals.
        low: Lower bounds.
        high: Upper bounds.
        multiple_of: What divides it.
        differs_from: What it is not.
        options: The only values.
        is_number: It is the value of a variable and may be negative, not a size.
    """

    definition: SizeExpression | None = None
    low: list[SizeExpression] = field(default_factory=list)
    high: list[SizeExpression] = field(default_factory=list)
    multiple_of: list[SizeExpression] = field(default_factory=list)
    differs_from: list[SizeExpression] = field(default_factory=list)
    options: tuple[int, ...] | None = None
    is_number: bool = False

    def needs(self) -> Iterator[str]:
        """Yield the names that must be known before."""
        if self.definition is not None:
            yield from sorted(self.definition.names())
        for expressions in (self.low, self.high, self.multiple_of, self.differs_from):
            for one in expressions:
                yield from sorted(one.names())


def length_of(sequence: str) -> str:
    """Return the name under which the length of a sequence is solved for."""
    return f"len({sequence})"


def element_of(sequence: str, index: int) -> str:
    """Return the name under which one size of a sequence is solved for."""
    return f"{sequence}[{index}]"


class Recipes:
    """Recipes for all integers of a rule.

    Args:
        atoms: Names of integers that may be chosen: sizes, lengths, integer variables.
        sequences: Names of sequences, whose sizes may be chosen one by one.
        ranks: Rank of each tensor, as an expression of lengths.
    """

    def __init__(self, atoms: set[str], sequences: set[str], ranks: Mapping[str, SizeExpression]) -> None:
        self.atoms = atoms
        self.sequences = sequences
        self.ranks = ranks
        self.made: dict[str, Recipe] = {}

    def of(self, atom: str) -> Recipe:
        """Return the recipe of an integer."""
        return self.made.setdefault(atom, Recipe())

    def learn(self, text: str) -> None:
        """Take what can be made by construction from a conjunction; the rest is for `condition`.

        Raises:
            ExpressionError: The text is not an expression.
        """
        self._learn(parse_expression(text))

    def _learn(self, node: ast.expr) -> None:
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for part in node.values:
                self._learn(part)
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
                self._learn_comparison(left, op, right)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", None) == "divides" and len(node.args) == 2:
            self._multiple(node.args[1], node.args[0])

    def _learn_comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> None:
        if isinstance(op, ast.In):
            self._options(left, right)
            return
        is_remainder = isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod)
        if isinstance(op, ast.Eq) and is_remainder and isinstance(right, ast.Constant) and right.value == 0:
            assert isinstance(left, ast.BinOp)
            self._multiple(left.left, left.right)
            return
        one, other = self.expression(left), self.expression(right)
        if one is None or other is None:
            return
        if isinstance(op, ast.Eq):
            _ = self._define(one, other) or self._define(other, one)
            return
        for this, that, order in ((one, other, op), (other, one, _mirrored(op))):
            atom = self._atom(this)
            if atom is not None and self._may_need(atom, that):
                self._bound(self.of(atom), that, order)
                return

    def _bound(self, recipe: Recipe, that: SizeExpression, order: ast.cmpop) -> None:
        one = Number(1)
        match order:
            case ast.Lt():
                recipe.high.append(Arithmetic("-", that, one))
            case ast.LtE():
                recipe.high.append(that)
            case ast.Gt():
                recipe.low.append(Arithmetic("+", that, one))
            case ast.GtE():
                recipe.low.append(that)
            case ast.NotEq():
                recipe.differs_from.append(that)

    def _define(self, one: SizeExpression, other: SizeExpression) -> bool:
        """Let an integer be made from an expression; a rank with further dims is solved for the length in it."""
        if isinstance(one, Arithmetic) and one.op == "+" and isinstance(one.right, Number):
            inner = Arithmetic("-", other, one.right)
            return self._define(one.left, inner)
        atom = self._atom(one)
        if atom is None or self.of(atom).definition is not None or not self._may_need(atom, other):
            return False
        if atom.startswith("len(") and not all(name.startswith("len(") for name in other.names()):
            return False
        self.of(atom).definition = other
        return True

    def _multiple(self, node: ast.expr, divisor: ast.expr) -> None:
        one, other = self.expression(node), self.expression(divisor)
        atom = None if one is None else self._atom(one)
        if atom is not None and other is not None and self._may_need(atom, other):
            self.of(atom).multiple_of.append(other)

    def _options(self, left: ast.expr, right: ast.expr) -> None:
        one = self.expression(left)
        atom = None if one is None else self._atom(one)
        if atom is None or not isinstance(right, ast.List | ast.Tuple):
            return
        values = [each.value for each in right.elts if isinstance(each, ast.Constant) and type(each.value) is int]
        if len(values) == len(right.elts):
            self.of(atom).options = tuple(value for value in values if isinstance(value, int))

    def _atom(self, one: SizeExpression) -> str | None:
        if not isinstance(one, Name):
            return None
        base = one.name.partition("[")[0]
        is_element = base != one.name and base in self.sequences
        return one.name if one.name in self.atoms or is_element else None

    def _may_need(self, atom: str, other: SizeExpression) -> bool:
        """Whether an integer can wait for an expression without waiting for itself."""
        waiting, seen = sorted(other.names()), {""}
        while waiting:
            name = waiting.pop()
            if name == atom:
                return False
            if name not in seen:
                seen.add(name)
                waiting += list(self.made[name].needs()) if name in self.made else []
        return True

    def expression(self, node: ast.expr) -> SizeExpression | None:
        """Return an integer expression, lengths and elements as names; None if it is something else."""
        match node:
            case ast.Constant(value=int() as value) if type(value) is int:
                return Number(value)
            case ast.Name(id=name):
                return Name(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.expression(operand)
                return None if inner is None else Arithmetic("-", Number(0), inner)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                one, other = self.expression(left), self.expression(right)
                return None if one is None or other is None else Arithmetic(_OPERATORS[type(op)], one, other)
            case ast.Call(func=ast.Name(id="len" | "rank"), args=[ast.Name(id=name)]):
                return self.length(name)
            case ast.Call(func=ast.Name(id="len"), args=[ast.Attribute(value=ast.Name(id=name), attr="shape")]):
                return self.length(name)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int() as index)):
                return Name(element_of(name, index)) if name in self.sequences and index >= 0 else None
        return None

    def length(self, name: str) -> SizeExpression | None:
        """Return the rank of a tensor, or the length of a sequence, in terms of what is solved for."""
        if name in self.ranks:
            return self.ranks[name]
        return Name(length_of(name)) if name in self.sequences else None

    def converted(self, expression: SizeExpression) -> SizeExpression | None:
        """Return an expression of a type with its lengths and ranks as names; None if it asks for more."""
        if isinstance(expression, Measure):
            return self.length(expression.name) if expression.kind != "numel" else None
        if isinstance(expression, Arithmetic):
            left, right = self.converted(expression.left), self.converted(expression.right)
            return None if left is None or right is None else Arithmetic(expression.op, left, right)
        return expression


_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_MIRRORED: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.Gt(),
    ast.LtE: ast.GtE(),
    ast.Gt: ast.Lt(),
    ast.GtE: ast.LtE(),
}


def _mirrored(op: ast.cmpop) -> ast.cmpop:
    return _MIRRORED.get(type(op), op)


# Solving

MAX_LENGTH = 5


class Picker:
    """Picks what is free; how, a sample and an abstract evaluation say differently."""

    def size(self, name: str, low: int, high: int | None) -> int:
        """Return a size that is not below `low`, nor above `high`."""
        raise NotImplementedError

    def number(self, name: str, low: int, high: int | None) -> int:
        """Return an integer of that range."""
        raise NotImplementedError


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
        # A symbol has no hash; asking whether it equals a number would be a guard, so its example is asked.
        while avoided and (value.node.hint if isinstance(value, torch.SymInt) else value) in avoided:
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


def _signature(one: Variable) -> Dims | None:
    tensor = one.element if isinstance(one, TensorListVariable) else one
    if not isinstance(tensor, TensorVariable):
        return None
    return (SequenceDim(),) if tensor.dims is None else tensor.dims


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
