"""Conditions on sizes, `len(S) == 2 and Ci == Cg * g`, turned into recipes: what each size is made from."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from exirkit.patterns.functions import layout, tensors
from exirkit.patterns.functions.words import WORDS, dtype_of, shape
from exirkit.patterns.syntax.expression_syntax import ExpressionError, parse_expression
from exirkit.patterns.syntax.expressions import CallCompiler, Compiled, ExpressionCompiler
from exirkit.patterns.syntax.undecided import UndecidedError, truth

from .sizes import Arithmetic, Measure, Name, Number, SizeExpression

_REGISTERED = (layout, tensors)
"""Their words are known once they are imported."""

Condition = Callable[[Mapping[str, Any]], object]


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
            ExpressionError: The text is no expression.
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


class _Words(CallCompiler):
    """The words about numbers and shapes; a generator knows no graph."""

    def call(self, node: ast.Call, compiler: ExpressionCompiler) -> Compiled:
        known = WORDS.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if known is None or known.needs_facts or node.keywords:
            raise ExpressionError("this cannot be called in `gen`", node)
        arguments = [compiler.compile(one) for one in node.args]
        compute = known.compute
        return lambda names: compute(*(one(names) for one in arguments))

    def attribute(self, node: ast.Attribute, compiler: ExpressionCompiler) -> Compiled:
        base = compiler.compile(node.value)
        if node.attr == "shape":
            return lambda names: shape(base(names))
        if node.attr == "dtype":
            return lambda names: dtype_of(base(names))
        raise ExpressionError("tensors have .shape and .dtype here", node)


def words_of_sizes() -> CallCompiler:
    """Return what compiles calls and attributes where no graph is known."""
    return _Words()


def condition(text: str) -> Condition:
    """Return the condition itself, over values and sizes.

    Raises:
        ExpressionError: The text is no expression of the language.
    """
    compiled = ExpressionCompiler(_Words()).compile(parse_expression(text))

    def holds(names: Mapping[str, Any]) -> bool:
        try:
            return truth(compiled(names)) is True
        except (ExpressionError, UndecidedError, TypeError, ValueError, ArithmeticError):
            return False

    return holds
