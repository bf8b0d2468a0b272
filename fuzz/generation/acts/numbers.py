"""Calls with numbers that compare equal or nearly so, and functions that undo each other where they overflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Value
from exirkit.fuzz.generation.operators.catalogue import shipped_operators
from exirkit.fuzz.programs import Contents

from .loose import hide, loose_call, returned

_PAIRS = (
    (0.0, -0.0),
    (0.0, -0.0),
    (math.inf, -math.inf),
    (2.0**24 + 1, 2.0**24),
    (1.0 + 2.0**-30, 1.0),
    (2.0**-140, 0.0),
)
"""Numbers that something takes for one: a table of numbers, a dtype, a hash."""

_NUMBERS = (-1.0, 3.0, 0.5, -2.0, 1.0, -3.0)
_WHOLE_PAIRS = ((2**53 + 1, 2**53), (2**31, 2**31 - 1), (2**31 + 1, 1), (-(2**31), -(2**31) - 1))
_ENDS = (2**63 - 1, -(2**63))
"""Integers to which nothing is added, as what comes out wraps around."""
_ADDING, _COMPARING = ("aten.add.Scalar", "aten.sub.Scalar"), ("aten.eq.Scalar", "aten.lt.Scalar", "aten.ge.Scalar")


def strange_numbers(scope: Scope) -> None:
    """Call operators with two numbers that are easily taken for one, and divide by what they give.

    Division shows the sign of a zero. Nothing else uses these values, of which intervals and grids say nothing.
    """
    if scope.choices.chance(0.2):
        _whole_numbers(scope)
        return
    dtype = torch.float64 if scope.choices.chance(0.2) else torch.float32
    contents = Contents("numbers", numbers=tuple(scope.choices.shuffled(_NUMBERS)))
    value = scope.new_input(dtype, (len(_NUMBERS),), contents)
    takers = [name for name in _TAKERS if scope.building.plan.policy.allows(name) and name in _known()]
    if not takers:
        return
    same = scope.choices.pick(takers)
    is_same = scope.choices.chance(0.4)
    for number in scope.choices.shuffled(scope.choices.pick(_PAIRS)):
        op = same if is_same else scope.choices.pick(takers)
        returned(scope, _divided(scope, _TAKERS[op](scope, op, value, number)))
    hide(scope, value)


def _whole_numbers(scope: Scope) -> None:
    choices = scope.choices
    value = scope.new_input(torch.int64, (3,), Contents("numbers", numbers=(1, -2, 5)))
    pair = choices.pick((*_WHOLE_PAIRS, _ENDS))
    for number in choices.shuffled(pair):
        op = choices.pick((*_COMPARING, "aten.clamp.default", *(() if pair is _ENDS else _ADDING * 2)))
        dtype = torch.bool if op in _COMPARING else torch.int64
        returned(scope, loose_call(scope, op, (value, number), dtype, value.sizes))
    hide(scope, value)


def _divided(scope: Scope, value: Value) -> Value:
    if value.dtype == torch.bool or scope.choices.chance(0.2):
        return value
    return loose_call(scope, "aten.reciprocal.default", (value,), value.dtype, value.sizes)


_Taker = Callable[[Scope, str, Value, float], Value]


def _beside(scope: Scope, op: str, value: Value, number: float) -> Value:
    return loose_call(scope, op, (value, number), value.dtype, value.sizes)


def _in_front(scope: Scope, op: str, value: Value, number: float) -> Value:
    return loose_call(scope, op, (number, value), value.dtype, value.sizes)


def _compared(scope: Scope, op: str, value: Value, number: float) -> Value:
    return loose_call(scope, op, (value, number), torch.bool, value.sizes)


def _masked(scope: Scope, op: str, value: Value, number: float) -> Value:
    mask = loose_call(scope, "aten.gt.Scalar", (value, 0), torch.bool, value.sizes)
    return loose_call(scope, op, (value, mask, number), value.dtype, value.sizes)


def _padded(scope: Scope, op: str, value: Value, number: float) -> Value:
    return loose_call(scope, op, (value, [1, 0], number), value.dtype, (len(_NUMBERS) + 1,))


def _full(scope: Scope, op: str, value: Value, number: float) -> Value:
    return loose_call(scope, op, ([2], number), torch.float32, (2,), (("dtype", torch.float32),))


_TAKERS: Mapping[str, _Taker] = {
    "aten.mul.Scalar": _beside,
    "aten.div.Scalar": _beside,
    "aten.pow.Scalar": _in_front,
    "aten.leaky_relu.default": _beside,
    "aten.fill.Scalar": _beside,
    "aten.lt.Scalar": _compared,
    "aten.eq.Scalar": _compared,
    "aten.masked_fill.Scalar": _masked,
    "aten.constant_pad_nd.default": _padded,
    "aten.full.default": _full,
}
"""Operators that take a number, and how."""

_EDGES = (100.0, 1.0, -200.0, 0.5, 30.0, -0.0, 3.0, -1.5)


def inverse_calls(scope: Scope) -> None:
    """Apply functions and those that undo them, or the same once more, to elements for which that is not so."""
    allows = scope.building.plan.policy.allows
    pairs = [pair for pair in _INVERSES if all(op in _known() and allows(op) for op, _ in pair)]
    # They are many, and calls on a few elements cost little beside the rest of a program.
    for chosen in scope.choices.shuffled(pairs)[: scope.choices.integer(2, 4)]:
        _undone(scope, chosen)
    sides = [pair for pair in _INVERSE_SIDES if all(op in _known() and allows(op) for op in pair)]
    if sides and scope.choices.chance(0.5):
        _undone_by_operand(scope, scope.choices.pick(sides))


def _undone_by_operand(scope: Scope, pair: tuple[str, str]) -> None:
    """Apply two functions of two operands, the second of which undoes the first where nothing is lost between them."""
    first, second = (
        scope.new_input(
            torch.float32, (len(_EDGES),), Contents("numbers", numbers=tuple(scope.choices.shuffled(numbers)))
        )
        for numbers in (_EDGES, _GREAT_AND_SMALL)
    )
    made = loose_call(scope, pair[0], (first, second), first.dtype, first.sizes)
    returned(scope, loose_call(scope, pair[1], (made, second), first.dtype, first.sizes))
    hide(scope, first)
    hide(scope, second)


def _undone(scope: Scope, chosen: tuple[_One, _One]) -> None:
    narrow = {one for _, more in chosen for one in more if isinstance(one, torch.dtype)}
    special = not narrow & {torch.int32, torch.int64} and scope.choices.chance(0.4)
    contents = (
        Contents("special", seed=scope.building.seed())
        if special
        else Contents("numbers", numbers=tuple(scope.choices.shuffled(_EDGES)))
    )
    source = value = scope.new_input(torch.float32, (len(_EDGES),), contents)
    for op, more in chosen:
        if op == _CAST:
            value = loose_call(scope, op, (value,), more[0], value.sizes, (("dtype", more[0]),))
        else:
            value = loose_call(scope, op, (value, *more), value.dtype, value.sizes)
        if scope.choices.chance(0.1):
            # Who replaces both keeps the one that something else uses.
            returned(scope, value)
    returned(scope, value)
    hide(scope, source)


_GREAT_AND_SMALL = (2.0**100, 0.0, 3.0, -7.0, 2.0**-100, 1.0, -0.0, -(2.0**30))
_INVERSE_SIDES = (
    ("aten.mul.Tensor", "aten.div.Tensor"),
    ("aten.div.Tensor", "aten.mul.Tensor"),
    ("aten.add.Tensor", "aten.sub.Tensor"),
    ("aten.sub.Tensor", "aten.add.Tensor"),
    ("aten.maximum.default", "aten.minimum.default"),
    ("aten.minimum.default", "aten.maximum.default"),
    ("aten.remainder.Tensor", "aten.add.Tensor"),
)

_CAST = "aten._to_copy.default"
_One = tuple[str, tuple[Any, ...]]


def _plain(name: str) -> _One:
    return f"aten.{name}.default", ()


def _cast(*dtypes: torch.dtype) -> tuple[_One, _One]:
    first, second = ((_CAST, (dtype,)) for dtype in dtypes)
    return first, second


_SQUARE: _One = ("aten.pow.Tensor_Scalar", (2,))

_INVERSES: tuple[tuple[_One, _One], ...] = (
    *((_plain(one), _plain(other)) for one, other in (("exp", "log"), ("log", "exp"), ("expm1", "log1p"))),
    *((_plain(one), _plain(other)) for one, other in (("log1p", "expm1"), ("tanh", "atanh"), ("atanh", "tanh"))),
    *((_plain(one), _plain(one)) for one in ("reciprocal", "neg", "abs", "relu", "sigmoid", "round")),
    (_plain("sqrt"), _SQUARE),
    (_SQUARE, _plain("sqrt")),
    *((("aten.mul.Scalar", (one,)), ("aten.div.Scalar", (one,))) for one in (3.0, 2.0**120)),
    (("aten.add.Scalar", (2.0**25,)), ("aten.sub.Scalar", (2.0**25,))),
    *(_cast(one, torch.float32) for one in (torch.float16, torch.bfloat16, torch.int32, torch.float64, torch.bool)),
)
"""Pairs of calls that a rule could take for nothing, or for one of them."""


@cache
def _known() -> frozenset[str]:
    return frozenset(operator.name for operator in shipped_operators() if operator.weight > 0)
