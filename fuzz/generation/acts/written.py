"""Values that are written in place: from operands of another dtype, through views, and by the bodies of calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from exirkit.fuzz.generation.method.extents import Extents, low_of
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import FLOATS, INTEGERS, Value
from exirkit.fuzz.generation.operators.control_flow import BodyScope

from .bodies import branched, looped
from .loose import hide, loose_call, loose_calls, returned

_SIZES = ((4,), (2, 3), (3, 2), (1, 4), (5,))
_OF_OPERANDS = (torch.float32, torch.int64, torch.float16, torch.int32)
_OF_TWO = ("aten.add_.Tensor", "aten.sub_.Tensor", "aten.copy_.default")
_OF_NUMBER = ("aten.add_.Scalar", "aten.mul_.Scalar", "aten.fill_.Scalar")
_OF_ONE = ("aten.neg_.default", "aten.relu_.default", "aten.zero_.default")
_OPERATORS = (*_OF_TWO * 2, *_OF_NUMBER, *_OF_ONE)


def written_in_place(scope: Scope) -> None:
    """Write to a value, or to a part of it, what has another dtype at times; return it and views of it."""
    choices = scope.choices
    dtype, sizes = choices.pick((*FLOATS, *INTEGERS)), choices.pick(_SIZES)
    # No float is written to what holds integers.
    others = (*FLOATS, *INTEGERS) if dtype.is_floating_point else INTEGERS
    base = _owned(scope, dtype, sizes)
    shown = _shown(scope, base)
    if choices.chance(0.3):
        shown += _parts(scope, base)
    for _ in range(choices.integer(1, 3)):
        written = _write(scope, choices.pick(shown), lambda target: _input(scope, choices.pick(others), target.sizes))
        shown.append(written)
    if choices.chance(0.2):
        # From here on the names of the value itself have another shape than is known of them.
        shown = [one for one in shown if one.sizes != base.sizes]
        base = _reshaped(scope, base)
    for one in {one.name: one for one in (base, *choices.shuffled(shown)[:2])}.values():
        returned(scope, one)


def written_by_bodies(scope: Scope) -> None:
    """Let one branch, both, or the body of a loop write to what they are given, which is read afterwards."""
    choices = scope.choices
    sizes = choices.pick(_SIZES)
    operands = [_owned(scope, choices.pick(_OF_OPERANDS), sizes) for _ in range(choices.integer(1, 2))]
    (_loop if choices.chance(0.3) else _branches)(scope, operands)
    for one in operands:
        returned(scope, one)


def _branches(scope: Scope, operands: Sequence[Value]) -> None:
    # Often only one of the branches writes, which the other one leaves as it is.
    writers = scope.choices.pick(((0,), (1,), (0, 1)))

    def fill(branch: BodyScope, place: int) -> Value:
        if place in writers:
            _write_operand(branch, branch.operands)
        first = branch.operands[0]
        return loose_call(branch, "aten.neg.default", (first,), first.dtype, first.sizes)

    returned(scope, branched(scope, operands, fill))


def _loop(scope: Scope, operands: Sequence[Value]) -> None:
    def fill(turn: BodyScope) -> Sequence[Value]:
        _write_operand(turn, turn.operands[1:])
        return ()

    looped(scope, (), operands, fill)


def _write_operand(body: BodyScope, operands: Sequence[Value]) -> None:
    shown = _shown(body, body.choices.pick(operands))
    _write(
        body,
        shown[-1],
        lambda target: loose_call(body, "aten.add.Scalar", (target, 2), target.dtype, target.sizes, is_exact=True),
    )


def _write(scope: Scope, target: Value, operand: Callable[[Value], Value]) -> Value:
    """Write to a value; return what the call returns, which is that value."""
    signed = target.dtype.is_signed
    op = scope.choices.pick([one for one in _OPERATORS if signed or one != "aten.neg_.default"])
    more: tuple[object, ...] = ()
    if op in _OF_TWO:
        more = (operand(target),)
    elif op in _OF_NUMBER:
        more = (scope.choices.pick((2, 1, 3, 0)),)
    return loose_call(scope, op, (target, *more), target.dtype, target.sizes, is_exact=True)


def _shown(scope: Scope, base: Value) -> list[Value]:
    """Return a value and up to two views, the second of the first."""
    found = [base]
    for _ in range(scope.choices.integer(0, 2)):
        found.append(_view(scope, found[-1]))
    return found


def _view(scope: Scope, value: Value) -> Value:
    dim = scope.choices.integer(0, value.rank - 1)
    sizes = list(map(low_of, value.sizes))
    before, behind = sizes[:dim], sizes[dim + 1 :]
    kind = scope.choices.integer(0, 3)
    if kind == 0 or (kind == 1 and value.rank == 1):
        start = scope.choices.integer(0, sizes[dim] - 1)
        cut = (*before, sizes[dim] - start, *behind)
        return loose_call(scope, "aten.slice.Tensor", (value, dim, start, sizes[dim]), value.dtype, cut, is_exact=True)
    if kind == 1:
        place = scope.choices.integer(0, sizes[dim] - 1)
        rest = (*before, *behind)
        return loose_call(scope, "aten.select.int", (value, dim, place), value.dtype, rest, is_exact=True)
    if kind == 2:
        longer = (*before, 1, sizes[dim], *behind)
        return loose_call(scope, "aten.unsqueeze.default", (value, dim), value.dtype, longer, is_exact=True)
    args = (value, 0, value.rank - 1)
    turned = (sizes[-1], *sizes[1:-1], sizes[0]) if value.rank > 1 else tuple(sizes)
    return loose_call(scope, "aten.transpose.int", args, value.dtype, turned, is_exact=True)


def _parts(scope: Scope, base: Value) -> list[Value]:
    """Return the parts of a value along one dim, from one call."""
    dim = scope.choices.integer(0, base.rank - 1)
    sizes = list(map(low_of, base.sizes))
    length = -(-sizes[dim] // 2)
    cuts = [length, sizes[dim] - length] if sizes[dim] > length else [length]
    results = [(base.dtype, (*sizes[:dim], cut, *sizes[dim + 1 :])) for cut in cuts]
    return loose_calls(scope, "aten.split.Tensor", (base, length, dim), results, is_exact=True)


def _reshaped(scope: Scope, base: Value) -> Value:
    """Change the shape of a value in place, and return a value that is computed of it."""
    sizes = (1, *map(low_of, base.sizes))
    shown = loose_call(scope, "aten.unsqueeze_.default", (base, 0), base.dtype, sizes, is_exact=True)
    return loose_call(scope, "aten.mul.Scalar", (shown, 2), base.dtype, sizes, is_exact=True)


def _owned(scope: Scope, dtype: torch.dtype, sizes: tuple[int, ...]) -> Value:
    """Return a copy of an input: a value that the method may write."""
    given = _input(scope, dtype, sizes)
    return loose_call(scope, "aten.clone.default", (given,), dtype, sizes, is_exact=True)


def _input(scope: Scope, dtype: torch.dtype, sizes: Extents) -> Value:
    """Return an input that no other call finds, of quarters or whole numbers that even bfloat16 holds."""
    value = scope.new_input(dtype, sizes, scope.building.contents(dtype))
    hide(scope, value)
    return value
