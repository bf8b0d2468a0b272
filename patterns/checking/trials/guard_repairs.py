"""Repairs of samples, so that they satisfy guards that no size decides: `all_eq(c, 0)`, `s == t`, `low == -inf`."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from exirkit.patterns.types.literals import Literal as LiteralValue
from exirkit.patterns.types.literals import Reference
from exirkit.patterns.types.quantized import LimitVariable, ZeroPointVariable
from exirkit.patterns.types.scalars import ChoiceVariable, FloatVariable, IntVariable, ScalarVariable
from exirkit.patterns.types.tensors import TensorVariable

Repair = Callable[[dict[str, Any]], None]
"""Changes a sample so that one condition holds."""

_LIMITED = (ZeroPointVariable, LimitVariable)
_NUMBERS = (IntVariable, FloatVariable, ScalarVariable, *_LIMITED)


def repairs_of(guards: Iterable[str], variables: Mapping[str, Any]) -> dict[int, list[Repair]]:
    """Return what makes guards hold, by their numbers.

    Args:
        guards: Texts of conditions.
        variables: Types.
    """
    found: dict[int, list[Repair]] = {}
    for index, text in enumerate(guards):
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            continue
        made = [repair for one in _conjuncts(tree) if (repair := _repair(one, variables)) is not None]
        if made:
            found[index] = made
    return found


def _conjuncts(tree: ast.expr) -> list[ast.expr]:
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        return [one for part in tree.values for one in _conjuncts(part)]
    return [tree]


def _repair(tree: ast.expr, variables: Mapping[str, Any]) -> Repair | None:
    match tree:
        case ast.Call(func=ast.Name(id="all_eq"), args=[ast.Name(id=name), value], keywords=[]):
            number = _number(value)
            if isinstance(variables.get(name), TensorVariable) and number is not None:
                return _filling(name, number)
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq()], comparators=[ast.Name(id=other)]):
            return _equal(name, other, variables)
        case ast.Compare(
            left=ast.Name(id=name),
            ops=[ast.Eq()],
            comparators=[ast.BinOp(ast.Name(id=other), ast.Add() | ast.Sub() as op, ast.Constant(value=int() as step))],
        ) if isinstance(variables.get(name), _LIMITED):
            return _shifting(name, other, step if isinstance(op, ast.Add) else -step, variables[name])
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq()], comparators=[value]):
            number = _number(value)
            if number is not None and _may_be(variables.get(name), number):
                return _setting(name, number)
    return None


def _equal(name: str, other: str, variables: Mapping[str, Any]) -> Repair | None:
    """Return what makes two numbers one, by changing the one whose type allows it."""
    for changed, kept in ((name, other), (other, name)):
        variable = variables.get(changed)
        if isinstance(variable, ChoiceVariable) and Reference(kept) in variable.choices:
            return _copying(changed, kept)
    one, two = variables.get(name), variables.get(other)
    is_same = str(one) == str(two) or (type(one) is type(two) and isinstance(one, _LIMITED))
    limited = one if isinstance(one, _LIMITED) else None
    return _copying(name, other, limited) if isinstance(one, _NUMBERS) and is_same else None


def _may_be(variable: Any, number: float) -> bool:
    if isinstance(variable, ChoiceVariable):
        return any(isinstance(one, LiteralValue) and one.value == number for one in variable.choices)
    return isinstance(variable, _NUMBERS)


def _number(tree: ast.expr) -> float | int | bool | None:
    match tree:
        case ast.Constant(value=bool() | int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = _number(operand)
            return None if number is None else -number
        case ast.Name(id="inf"):
            return math.inf
    return None


def _filling(name: str, number: float) -> Repair:
    def fill(values: dict[str, Any]) -> None:
        old = values.get(name)
        if not isinstance(old, torch.Tensor):
            return
        filled = torch.full_like(old, number)
        # Both zeros are zero, and rules have to get both right.
        values[name] = filled.copysign(old) if number == 0 and old.is_floating_point() else filled

    return fill


def _setting(name: str, number: float) -> Repair:
    def put(values: dict[str, Any]) -> None:
        old = values.get(name)
        if isinstance(old, float) and not isinstance(number, bool):
            values[name] = float(number)
        elif isinstance(old, int) and type(number) is type(old):
            values[name] = number

    return put


def _shifting(name: str, other: str, step: int, variable: ZeroPointVariable | LimitVariable) -> Repair:
    def shift(values: dict[str, Any]) -> None:
        old = values.get(other)
        if type(old) is int and variable.decide(old + step, values) is True:
            values[name] = old + step

    return shift


def _copying(name: str, other: str, variable: ZeroPointVariable | LimitVariable | None = None) -> Repair:
    def copy(values: dict[str, Any]) -> None:
        if variable is not None and variable.decide(values.get(other), values) is False:
            # A zero point of other integers.
            return
        if values.get(other) is not None and values.get(name) is not None:
            values[name] = values[other]

    return copy
