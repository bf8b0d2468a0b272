"""Truth with a third value: what sizes that vary cannot decide is unknown, and asking never fixes a size."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any, Final

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Undecided(Enum):
    """The third bool."""

    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        raise UndecidedError("the sizes of the program do not decide this")

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Final = Undecided.UNKNOWN
Truth = bool | Undecided


class UndecidedError(Exception):
    """A branch depends on a condition that the sizes do not decide."""


def truth(value: Any) -> Truth:
    """Return what a value means as a condition."""
    if isinstance(value, torch.SymBool):
        return _decide(value)
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return compare("!=", value, 0)
    if isinstance(value, Undecided):
        return value
    if isinstance(value, torch.Tensor):
        raise TypeError("a tensor is no condition; say all_eq, all_in or finite")
    return bool(value)


def every(values: Iterable[Any]) -> Truth:
    """Return whether all values hold; what comes after one that does not is not examined."""
    return _folded(values, decisive=False)


def some(values: Iterable[Any]) -> Truth:
    """Return whether one of the values holds; what comes after one that does is not examined."""
    return _folded(values, decisive=True)


def _folded(values: Iterable[Any], *, decisive: bool) -> Truth:
    result: Truth = not decisive
    for value in values:
        known = truth(value)
        if known is decisive:
            return decisive
        if known is UNKNOWN:
            result = UNKNOWN
    return result


def negated(value: Any) -> Truth:
    """Return `not value`."""
    known = truth(value)
    return known if isinstance(known, Undecided) else known is False


_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compare(order: str, left: Any, right: Any) -> Truth:
    """Compare two values, sequences element by element; sizes that vary are compared without a guard."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple) and order in ("==", "!="):
        equal = _same_elements(left, right)
        return equal if order == "==" else negated(equal)
    if isinstance(left, SYMBOLIC) or isinstance(right, SYMBOLIC):
        return _compare_symbolic(order, left, right)
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        raise TypeError("tensors are not compared; say all_eq, all_in or same_shape")
    return truth(_ORDERS[order](left, right))


def _same_elements(left: Any, right: Any) -> Truth:
    if len(left) != len(right):
        return False
    result: Truth = True
    for one, other in zip(left, right, strict=True):
        if type(one) is int and type(other) is int:
            # Most are, and there are many.
            if one != other:
                return False
            continue
        same = compare("==", one, other)
        if same is False:
            return False
        if same is UNKNOWN:
            result = UNKNOWN
    return result


def _compare_symbolic(order: str, left: Any, right: Any) -> Truth:
    numbers = (int, float, bool, *SYMBOLIC)
    if not (isinstance(left, numbers) and isinstance(right, numbers)):
        if order in ("==", "!="):
            return order == "!="
        raise TypeError(f"{type(left).__name__} and {type(right).__name__} have no order")
    return _decide(_ORDERS[order](left, right))


def _decide(condition: Any) -> Truth:
    if isinstance(condition, bool):
        return condition
    if surely_true(condition):
        return True
    if surely_true(torch.sym_not(condition)):
        return False
    return UNKNOWN


def surely_true(condition: Any) -> bool:
    """Whether a condition holds for all sizes that a program promises, without fixing any.

    torch takes a size from 1 to 2 for 2, because it decides everything for sizes from 2 on. What follows from that does
    not hold.
    """
    if isinstance(condition, torch.SymBool) and any(map(_has_one_value, _ranges(condition))):
        return False
    return bool(statically_known_true(condition))


def _ranges(condition: torch.SymBool) -> list[Any]:
    known = condition.node.shape_env.var_to_range
    return [known[symbol] for symbol in condition.node.expr.free_symbols if symbol in known]


def _has_one_value(values: Any) -> bool:
    return bool(values.lower == values.upper)
