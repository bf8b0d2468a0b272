"""Whether a pattern might match calls that a rule makes, whatever stands around them: never too strict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.facts import operators_with, traits_of
from exirkit.patterns.syntax.expression_syntax import ExpressionError
from exirkit.patterns.syntax.terms import (
    Alternatives,
    Anything,
    Call,
    Item,
    Literal,
    OperatorCall,
    Optional,
    Sequence,
    Splat,
    Through,
    Variable,
    walk,
)
from exirkit.patterns.syntax.undecided import UndecidedError, truth
from exirkit.patterns.types.scalars import OperatorVariable
from exirkit.patterns.types.tensors import TensorVariable

from .abstract_instances import Leaf, MadeCall, MadeItem, Open


def may_match(term: Any, made: Any, variables: Mapping[str, Any]) -> bool:
    """Whether a term might match what was made; leaves may turn out to be anything.

    Args:
        term: Part of a pattern.
        made: A call, a result, a leaf, a literal or a tuple of those.
        variables: Types of the pattern's variables.
    """
    if isinstance(made, Leaf | Open) or isinstance(term, Anything):
        return not (isinstance(made, Leaf) and isinstance(term, Literal) and term.value is None)
    if isinstance(term, Call):
        return isinstance(made, MadeCall) and made.may_be(term.op) and _arguments(term, made, variables)
    if isinstance(term, Item):
        is_item = isinstance(made, MadeItem) and made.index == term.index
        return is_item and may_match(term.base, made.base, variables)
    if isinstance(term, Alternatives):
        return any(may_match(branch, made, variables) for _, branch in term.branches)
    if isinstance(term, Optional):
        passing = next(iter(term.inner.arguments.values()))
        return may_match(term.inner, made, variables) or may_match(passing, made, variables)
    return _of_kind(term, made, variables)


def _of_kind(term: Any, made: Any, variables: Mapping[str, Any]) -> bool:
    match term:
        case Through():
            return _through(term, made, variables)
        case OperatorCall():
            return _operator_call(term, made, variables)
        case Sequence():
            return _sequence(term, made, variables)
        case Literal():
            return _literal(term.value, made)
        case Variable():
            return _variable(variables.get(term.name), made)
    return True


def guards_may_hold(rule: CompiledRule, made: Any) -> bool:
    """Whether no guard about numbers alone is certainly false, where the whole pattern matches what was made."""
    (root, *others) = rule.pattern.roots
    if others or any(isinstance(one, Alternatives | Optional | Through | Splat) for one in walk(root)):
        return True
    names = _bound(root, made)
    for guard in rule.guards:
        if guard.needs and guard.needs <= names.keys():
            try:
                if truth(guard.compiled(names)) is False:
                    return False
            except (ExpressionError, UndecidedError, TypeError, LookupError):
                continue
    return True


def _bound(term: Any, made: Any) -> dict[str, Any]:
    """Return the values of variables that stand at places of literals."""
    if isinstance(term, Variable):
        is_plain = isinstance(made, int | float | bool | str) or made is None
        return {term.name: made} if is_plain else {}
    found: dict[str, Any] = {}
    if isinstance(term, Item) and isinstance(made, MadeItem):
        found.update(_bound(term.base, made.base))
    if isinstance(term, Call) and isinstance(made, MadeCall):
        for name, argument in term.arguments.items():
            if not isinstance(argument, Call) or not traits_of(term.op).commutes:
                found.update(_bound(argument, made.arguments.get(name)))
    return found


def _arguments(term: Call, made: MadeCall, variables: Mapping[str, Any]) -> bool:
    orders: list[Mapping[str, str]] = [{}]
    for left, right, _ in traits_of(term.op).commutes:
        if left in term.arguments and right in term.arguments:
            orders.append({left: right, right: left})
    return any(
        all(
            may_match(argument, made.arguments.get(order.get(name, name), Open()), variables)
            for name, argument in term.arguments.items()
        )
        for order in orders
    )


def _through(term: Through, made: Any, variables: Mapping[str, Any]) -> bool:
    seen = made
    while True:
        if may_match(term.inner, seen, variables):
            return True
        if not isinstance(seen, MadeCall) or seen.op not in term.ops:
            return False
        seen = next(iter(seen.arguments.values()), Open())


def _operator_call(term: OperatorCall, made: Any, variables: Mapping[str, Any]) -> bool:
    family = variables.get(term.variable)
    if not isinstance(made, MadeCall) or not isinstance(family, OperatorVariable):
        return False
    if made.family is None and not family.admits_operator(made.op):
        return False
    pairs = zip(term.arguments, made.arguments.values(), strict=False)
    return all(may_match(argument, value, variables) for argument, value in pairs)


def _sequence(term: Sequence, made: Any, variables: Mapping[str, Any]) -> bool:
    if not isinstance(made, tuple):
        return False
    if any(isinstance(item, Splat) for item in term.items):
        return len(made) >= len(term.items) - 1
    if len(made) != len(term.items):
        return False
    return all(may_match(item, one, variables) for item, one in zip(term.items, made, strict=True))


def _literal(wanted: Any, made: Any) -> bool:
    if isinstance(made, MadeCall):
        # A number may be matched by a constant of no dims.
        return isinstance(wanted, int | float | bool) and made.op in operators_with("creates")
    if isinstance(made, MadeItem):
        return False
    if isinstance(wanted, list | tuple) and isinstance(made, tuple):
        # `[2]` may mean `[2, 2]`.
        return len(wanted) != len(made) or all(map(_literal, wanted, made))
    if type(wanted) is int and type(made) is int and (wanted < 0) != (made < 0):
        # A dim may be counted from either end.
        return True
    return isinstance(made, Open) or (type(wanted) is type(made) and bool(wanted == made or wanted != wanted))


def _variable(variable: Any, made: Any) -> bool:
    is_result = isinstance(made, MadeCall | MadeItem)
    if isinstance(variable, TensorVariable):
        # Any result may be constant in some program, and numbers may stand for tensors.
        return is_result or isinstance(made, int | float | bool) or (made is None and variable.allows_none)
    return not is_result
