"""When a number of a program is the one that a rule says, as written there and as lowering writes it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.fx import Node

from exirkit.patterns.types.literals import Literal as LiteralChoice
from exirkit.patterns.types.scalars import ChoiceVariable, FloatVariable, IntVariable
from exirkit.patterns.types.variable import Variable

from .state import State
from .values import constant_behind, same_literal

_FLOATS = (torch.float16, torch.float32, torch.bfloat16)


def literal_agrees(wanted: Any, value: Any, state: State) -> bool:
    """Whether a value of a program is a literal of a rule.

    Type and value must be equal. Two things that lowering does are allowed for: a number becomes a tensor of no
    dimension, which rounds it to the dtype of that tensor; and beside a tensor of floats it makes no difference
    whether a number is an integer or an equal float.

    Args:
        wanted: The literal.
        value: Argument of a call: a node, or a value.
        state: Of the search; `beside` has the arguments among which the value stands.
    """
    if not isinstance(value, Node):
        if same_literal(wanted, value):
            return True
        return _is_number(wanted) and _is_number(value) and _equal_beside_floats(wanted, value, value, state)
    constant = constant_behind(value, state.facts)
    if constant is None:
        return same_literal(wanted, value.meta.get("val"))
    return _is_constant(wanted, constant, value, state)


def scalar_shown(variable: Variable, value: Any, state: State) -> Any:
    """Return the number that a variable for numbers is bound to.

    A constant of no dimension is the number in it, as short as its dtype allows: 0.1 and not 0.10000000149. Beside a
    tensor of floats an integer is a float for a variable of that type, and the reverse.
    """
    number = value
    if isinstance(value, Node):
        constant = constant_behind(value, state.facts)
        if constant is None:
            recorded = value.meta.get("val")
            return value if isinstance(recorded, torch.Tensor) else recorded
        number = _shortest(constant, value, state)
    if isinstance(variable, ChoiceVariable):
        return _chosen(variable, number, value, state)
    if isinstance(variable, FloatVariable) and type(number) is int:
        return float(number) if _float_beside(state.beside, value) is not None and _is_exact(number) else number
    if isinstance(variable, IntVariable) and type(number) is float and number.is_integer():
        is_plain = _float_beside(state.beside, value) is not None and not _is_negative_zero(number)
        return int(number) if is_plain else number
    return number


def same_number(known: Any, number: Any, value: Any, state: State) -> bool:
    """Whether a number that a name stands for already is met again.

    Args:
        known: The number of the name.
        number: What is met, as `scalar_shown` returns it.
        value: What is met, as it stands in the program.
        state: Of the search.
    """
    if not _is_number(known) or not _is_number(number):
        return False
    return literal_agrees(known, value, state) or (type(known) is type(number) and same_literal(known, number))


def _chosen(variable: ChoiceVariable, number: Any, value: Any, state: State) -> Any:
    for one in variable.choices:
        if isinstance(one, LiteralChoice) and literal_agrees(one.value, value, state):
            return one.value
    return number


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


def _is_constant(wanted: Any, constant: torch.Tensor, value: Node, state: State) -> bool:
    """Whether a literal and a tensor of no dimension are one number."""
    found = constant.item()
    if not _is_number(wanted) or not _is_number(found):
        return same_literal(wanted, found)
    if type(found) is int:
        return same_literal(wanted, found) or _equal_beside_floats(wanted, found, value, state)
    beside = _float_beside(state.beside, value)
    if type(wanted) is int and (beside is None or not _is_exact(wanted)):
        return False
    return _is_rounded(wanted, found, constant.dtype, beside)


def _is_rounded(wanted: int | float, found: float, dtype: torch.dtype, beside: torch.dtype | None) -> bool:
    """Whether a literal is a number once it is rounded to the dtype of the constant, which computes no less exactly."""
    if not rounds_to(wanted, found, dtype):
        return False
    if beside is None or torch.promote_types(dtype, beside) == dtype:
        return True
    return rounds_to(wanted, found, beside)


def rounds_to(wanted: int | float, found: float, dtype: torch.dtype) -> bool:
    """Whether a number, rounded to a dtype, is another one."""
    return _is_same(_rounded(wanted, dtype), found)


def _rounded(number: int | float, dtype: torch.dtype) -> float:
    return float(torch.tensor(float(number), dtype=torch.float64).to(dtype).item())


def _is_same(one: float, other: float) -> bool:
    if math.isnan(one):
        return math.isnan(other)
    return one == other and math.copysign(1.0, one) == math.copysign(1.0, other)


def _is_negative_zero(number: float) -> bool:
    return number == 0 and math.copysign(1.0, number) < 0


def _is_exact(number: int) -> bool:
    return abs(number) <= 1 << 53


def _equal_beside_floats(wanted: Any, found: Any, value: Any, state: State) -> bool:
    """Whether an integer and a float are equal, and stand where that is all that counts."""
    if type(wanted) is type(found) or wanted != found or not _is_exact(int(found)):
        return False
    if any(type(one) is float and _is_negative_zero(one) for one in (wanted, found)):
        return False
    return _float_beside(state.beside, value) is not None


def _shortest(constant: torch.Tensor, value: Node, state: State) -> Any:
    beside = _float_beside(state.beside, value)
    is_coarse = beside is not None and torch.promote_types(constant.dtype, beside) != constant.dtype
    return constant.item() if is_coarse else shortest_number(constant)


def shortest_number(constant: torch.Tensor) -> Any:
    """Return the number in a tensor of no dimension, with no more digits than its dtype tells apart."""
    found = constant.item()
    if type(found) is not float or constant.dtype not in _FLOATS or not math.isfinite(found):
        return found
    for digits in range(1, 10):
        short = float(f"{found:.{digits}g}")
        if _rounded(short, constant.dtype) == found:
            return short
    return found


def _float_beside(arguments: Any, value: Any) -> torch.dtype | None:
    """Return the dtype that the other tensors of a call have together, or None if none of them has floats."""
    together: torch.dtype | None = None
    for one in _flat(arguments):
        recorded = one.meta.get("val") if isinstance(one, Node) and one is not value else None
        if isinstance(recorded, torch.Tensor) and (recorded.dtype.is_floating_point or recorded.dtype.is_complex):
            together = recorded.dtype if together is None else torch.promote_types(together, recorded.dtype)
    return together


def _flat(arguments: Any) -> Iterable[Any]:
    values = arguments.values() if isinstance(arguments, Mapping) else arguments or ()
    for one in values:
        if isinstance(one, list | tuple):
            yield from one
        else:
            yield one
