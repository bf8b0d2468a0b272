"""Conditions of `gen` and guards, for trials: as predicates, and as equations that give lists their value.

A list that a condition fixes, `p == swap_last(rank(k))` or `st == [P, Q]`, is computed, not drawn until it fits.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from exirkit.patterns.functions import graph, tensors
from exirkit.patterns.functions.words import WORDS, dtype_of, shape
from exirkit.patterns.syntax.expressions import (
    CallCompiler,
    Compiled,
    ExpressionCompiler,
    ExpressionError,
    UndecidedError,
    parse_expression,
    truth,
)

from .lists import FactorsVariable, ListVariable, PermutationVariable, ShapeVariable
from .sizes import SizeExpression
from .variable import Variable

_REGISTERED = (graph, tensors)
"""Their builtins are known once they are imported."""

Condition = Callable[[Mapping[str, Any]], object]


class _Builtins(CallCompiler):
    """The builtins about numbers and shapes; `gen` has no graph."""

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


def condition(text: str) -> Condition:
    """Return the condition itself, over values and sizes.

    Raises:
        ExpressionError: The string is not an expression of the language.
    """
    compiled = ExpressionCompiler(_Builtins()).compile(parse_expression(text))

    def holds(names: Mapping[str, Any]) -> bool:
        try:
            return truth(compiled(names)) is True
        except (ExpressionError, UndecidedError, TypeError, ValueError, ArithmeticError):
            return False

    return holds


@dataclass(frozen=True)
class Equation:
    """A list, and what it equals.

    Attributes:
        variable: Its type.
        compute: The other side.
    """

    variable: Variable
    compute: Compiled

    def apply(self, values: dict[str, Any], names: Mapping[str, Any]) -> None:
        """Put the list into a draw, if it is one that the type allows there; otherwise leave what was drawn."""
        old = values.get(self.variable.name)
        if not isinstance(old, list):
            return
        try:
            found = self.compute(names)
        except (ExpressionError, UndecidedError, TypeError, ValueError, ArithmeticError, LookupError):
            return
        if not isinstance(found, list | tuple) or not all(type(one) is int for one in found):
            return
        if self._is_allowed(list(found), old, names):
            values[self.variable.name] = list(found)

    def _is_allowed(self, found: list[int], old: list[int], names: Mapping[str, Any]) -> bool:
        if isinstance(self.variable, FactorsVariable):
            return True
        if isinstance(self.variable, ShapeVariable):
            return min(found, default=0) >= 0
        if len(found) != len(old):
            return False
        if isinstance(self.variable, PermutationVariable):
            return sorted(found) == list(range(len(found)))
        assert isinstance(self.variable, ListVariable), "equations are about these"
        low, high = (_value(end, names) for end in (self.variable.low, self.variable.high))
        return all((low is None or one >= low) and (high is None or one <= high) for one in found)


def _value(end: SizeExpression | float | None, names: Mapping[str, Any]) -> Any:
    return end if end is None or isinstance(end, int | float) else end.evaluate(names)


def equations_of(texts: Iterable[str], variables: Mapping[str, Variable]) -> list[Equation]:
    """Return the equations among the parts of conditions.

    Args:
        texts: Conditions.
        variables: Types.

    Raises:
        ExpressionError: A string is not an expression.
    """
    found: list[Equation] = []
    for text in texts:
        for left, right in _equalities(parse_expression(text)):
            equation = _equation(left, right, variables) or _equation(right, left, variables)
            if equation is not None:
                found.append(equation)
    return found


def _equalities(tree: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    match tree:
        case ast.BoolOp(op=ast.And(), values=parts):
            return [one for part in parts for one in _equalities(part)]
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return [(left, right)]
    return []


def _equation(left: ast.expr, right: ast.expr, variables: Mapping[str, Variable]) -> Equation | None:
    variable = variables.get(left.id) if isinstance(left, ast.Name) else None
    if not isinstance(variable, ListVariable | FactorsVariable | PermutationVariable | ShapeVariable):
        return None
    if any(isinstance(one, ast.Name) and one.id == variable.name for one in ast.walk(right)):
        return None
    try:
        return Equation(variable, ExpressionCompiler(_Builtins()).compile(right))
    except ExpressionError:
        return None
