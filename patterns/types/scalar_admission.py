"""Whether numbers, lists, texts and dtypes are of a variable's type: yes, no, or other names must be known first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from exirkit.patterns.syntax.undecided import compare

from .literals import Literal, rounded, same_float
from .sizes import SizeExpression, equal, is_size, product, rank_of, recorded_value, sizes_of
from .variables import (
    AxesVariable,
    AxisVariable,
    BoolVariable,
    ChoiceVariable,
    DtypeVariable,
    FactorsVariable,
    FloatVariable,
    IntVariable,
    ListVariable,
    OperatorVariable,
    PartitionVariable,
    PermutationVariable,
    ScalarVariable,
    ShapeVariable,
    StringVariable,
    Variable,
)

PENDING = "?"
"""Key of bindings that says that a variable waits for other names."""

Decision = Callable[[Any, Mapping[str, Any]], bool | None]


def pending(variable: Variable, value: object) -> dict[str, object]:
    """Return the bindings that keep a value until other names decide about it."""
    return {PENDING: True, f"{PENDING}{variable.name}": (variable, value)}


def decide_scalar(variable: Variable) -> Decision:
    """Return the function that decides about values of a type; None is: not yet."""
    known: Decision | None = variable.__dict__.get("_decision")
    if known is None:
        known = _MAKERS[type(variable)](variable)
        variable.__dict__["_decision"] = known
    return known


def _int(variable: IntVariable) -> Decision:
    low, high = variable.low, variable.high
    if low is None and high is None:
        return lambda value, names: is_size(value)
    least, greatest = (None if end is None or end.names() else end.evaluate({}) for end in (low, high))
    if least is not None and greatest is not None:

        def between(value: Any, names: Mapping[str, Any]) -> bool | None:
            if type(value) is int:
                return bool(least <= value <= greatest)
            return _between(low, value, high, names) if is_size(value) else False

        return between

    def decide(value: Any, names: Mapping[str, Any]) -> bool | None:
        return _between(low, value, high, names) if is_size(value) else False

    return decide


def _between(
    low: SizeExpression | None, value: Any, high: SizeExpression | None, names: Mapping[str, Any]
) -> bool | None:
    for order, bound in ((">=", low), ("<=", high)):
        if bound is None:
            continue
        try:
            limit = bound.evaluate(names)
        except ArithmeticError:
            return False
        if limit is None:
            return None
        if compare(order, value, limit) is not True:
            return False
    return True


def _float(variable: FloatVariable) -> Decision:
    low, high = variable.low, variable.high

    def decide(value: Any, names: Mapping[str, Any]) -> bool:
        return isinstance(value, torch.SymFloat | float) and float_between(low, value, high)

    return decide


def float_between(low: float | None, value: Any, high: float | None) -> bool:
    """Whether a number is between bounds, of which float32 roundings count too; nan is only where there are none."""
    if low is None and high is None:
        return True
    if isinstance(value, float) and (
        (low is not None and value == rounded(low)) or (high is not None and value == rounded(high))
    ):
        return True
    is_above = low is None or compare(">=", value, low) is True
    return is_above and (high is None or compare("<=", value, high) is True)


def _scalar(variable: ScalarVariable) -> Decision:
    low, high = variable.low, variable.high
    kinds = (bool, int, float, torch.SymInt, torch.SymFloat)
    return lambda value, names: isinstance(value, kinds) and float_between(low, value, high)


def _bool(variable: BoolVariable) -> Decision:
    return lambda value, names: type(value) is bool


def _string(variable: StringVariable) -> Decision:
    choices = variable.choices
    return lambda value, names: isinstance(value, str) and (not choices or value in choices)


def _list(variable: ListVariable) -> Decision:
    def decide(value: Any, names: Mapping[str, Any]) -> bool | None:
        if not isinstance(value, list | tuple):
            return False
        if variable.count is not None:
            count = variable.count.evaluate(names)
            if count is None:
                return None
            if not equal(count, len(value)):
                return False
        known = [_element_holds(variable, recorded_value(one), names) for one in value]
        return False if False in known else None if None in known else True

    return decide


def _element_holds(variable: ListVariable, one: Any, names: Mapping[str, Any]) -> bool | None:
    low: Any = variable.low
    high: Any = variable.high
    if variable.element == "int":
        return _between(low, one, high, names) if is_size(one) else False
    if variable.element == "bool":
        return type(one) is bool
    return isinstance(one, float | torch.SymFloat) and float_between(low, one, high)


def _shape(variable: ShapeVariable) -> Decision:
    def decide(value: Any, names: Mapping[str, Any]) -> bool:
        sizes = sizes_of(value) if isinstance(value, list | tuple) else None
        return sizes is not None and all(compare(">=", size, 0) is True for size in sizes)

    return decide


def _choice(variable: ChoiceVariable) -> Decision:
    literals = [one for one in variable.choices if isinstance(one, Literal)]
    names_of = [one.name for one in variable.choices if not isinstance(one, Literal)]

    def decide(value: Any, names: Mapping[str, Any]) -> bool | None:
        if isinstance(value, torch.SymInt):
            if any(one.kind == "int" and equal(value, one.value) for one in literals):
                return True
        elif any(one.admits(value) for one in literals):
            return True
        known = [_same(recorded_value(names[name]), value) for name in names_of if name in names]
        if True in known:
            return True
        return None if len(known) < len(names_of) else False

    return decide


def _same(known: Any, value: Any) -> bool:
    """Whether values are the same in type and value; sizes that vary must be known to be equal."""
    if is_size(known) and is_size(value):
        return equal(known, value)
    if isinstance(known, list | tuple) and isinstance(value, list | tuple):
        return len(known) == len(value) and all(map(_same, known, value))
    if type(known) is not type(value):
        return False
    if isinstance(known, float):
        return same_float(known, value)
    return known is value if isinstance(known, torch.Tensor) else bool(known == value)


def _permutation(variable: PermutationVariable) -> Decision:
    def decide(value: Any, names: Mapping[str, Any]) -> bool | None:
        if not _plain_integers(value):
            return False
        rank = rank_of(names[variable.of]) if variable.of in names else None
        return None if rank is None else sorted(value) == list(range(rank))

    return decide


def _axes(variable: AxesVariable) -> Decision:
    def decide(value: Any, names: Mapping[str, Any]) -> bool | None:
        if not _plain_integers(value) or len(set(value)) != len(value):
            return False
        rank = rank_of(names[variable.of]) if variable.of in names else None
        return None if rank is None else all(0 <= axis < rank for axis in value)

    return decide


def _axis(variable: AxisVariable) -> Decision:
    def decide(value: Any, names: Mapping[str, Any]) -> bool | None:
        if type(value) is not int:
            return False
        rank = rank_of(names[variable.of]) if variable.of in names else None
        return None if rank is None else -rank <= value < rank

    return decide


def _plain_integers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(type(one) is int for one in value)


def _factors(variable: FactorsVariable) -> Decision:
    def decide(value: Any, names: Mapping[str, Any]) -> bool | None:
        if not _is_shape(value):
            return False
        sizes = sizes_of(names[variable.of]) if variable.of in names else None
        return None if sizes is None else equal(product(list(value)), product(sizes))

    return decide


def _is_shape(value: Any) -> bool:
    if not isinstance(value, list | tuple):
        return False
    return all(is_size(recorded_value(one)) and compare(">=", recorded_value(one), 0) is True for one in value)


def _partition(variable: PartitionVariable) -> Decision:
    def decide(value: Any, names: Mapping[str, Any]) -> bool | None:
        if not _is_shape(value) or not value:
            return False
        at = recorded_value(names.get(variable.at)) if isinstance(variable.at, str) else variable.at
        if at is None or variable.of not in names:
            return None
        sizes = sizes_of(names[variable.of])
        if sizes is None or type(at) is not int or not -len(sizes) <= at < len(sizes):
            return False
        total: Any = 0
        for one in value:
            total = total + recorded_value(one)
        return equal(total, sizes[at])

    return decide


def _dtype(variable: DtypeVariable) -> Decision:
    dtypes = variable.dtypes
    if dtypes is None:
        return lambda value, names: isinstance(value, torch.dtype)
    if dtypes.same_as is None:
        return lambda value, names: isinstance(value, torch.dtype) and value in dtypes.member_set

    def decide(value: Any, names: Mapping[str, Any]) -> bool | None:
        if not isinstance(value, torch.dtype):
            return False
        other = recorded_value(names.get(dtypes.same_as or ""))
        return None if other is None else value == getattr(other, "dtype", other)

    return decide


def _operator(variable: OperatorVariable) -> Decision:
    return lambda value, names: variable.admits_operator(value)


_MAKERS: dict[type[Variable], Callable[[Any], Decision]] = {
    IntVariable: _int,
    FloatVariable: _float,
    ScalarVariable: _scalar,
    BoolVariable: _bool,
    StringVariable: _string,
    ListVariable: _list,
    ShapeVariable: _shape,
    ChoiceVariable: _choice,
    PermutationVariable: _permutation,
    AxesVariable: _axes,
    AxisVariable: _axis,
    FactorsVariable: _factors,
    PartitionVariable: _partition,
    DtypeVariable: _dtype,
    OperatorVariable: _operator,
}
