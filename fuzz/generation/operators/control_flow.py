"""Calls of operators that call functions: `cond`, `map`, `scan` and `while_loop`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import torch

from exirkit.fuzz.generation.method.extents import Affine, Extent, Extents, greatest_count, high_of, is_static, low_of
from exirkit.fuzz.generation.method.guards import calm, fitting, number_for, tamed, within
from exirkit.fuzz.generation.method.scope import Scope, preferred
from exirkit.fuzz.generation.method.values import DTYPES, Fact, Value, fits, is_float
from exirkit.fuzz.programs import Argument, Body, Contents, Ref

from .catalogue import Operator
from .registry import PROPOSERS

BODY_FAMILIES = ("unary", "binary", "scalar", "reduce", "shape", "product", "clamp", "choose", "softmax", "cast")
"""Families whose calls need nothing from outside of a function."""

_DEEPEST = 2
_MOST_TURNS = 4
_MOST_CARRIED = 3
_MOST_RESULTS = 3

# What functions call in their turn.
_NESTED = ("cond", "cond", "map", "scan", "while_loop")


class UnknownSizeError(Exception):
    """A body is to make something whose size it cannot tell from those of its operands."""


class BodyScope(Scope):
    """A function in the making: it has its operands, and what it computes of them.

    Args:
        outer: Where it is called.
        operands: What each operand is.
    """

    def __init__(self, outer: Scope, operands: Sequence[Fact]) -> None:
        super().__init__(outer.building)
        self.depth: int = getattr(outer, "depth", 0) + 1
        self.operands = [Value(self.building.name("a"), fact, "input") for fact in operands]
        for operand in self.operands:
            self.building.note(operand)
        self.values = list(self.operands)
        sizes = {size for fact in operands for size in fact.sizes if isinstance(size, Affine) and len(size.terms) == 1}
        self.extents = sorted(sizes, key=str)

    def fresh(
        self,
        dtype: torch.dtype,
        sizes: Extents,
        low: float = -2,
        high: float = 2,
        bits: int = 2,
        *,
        stored: bool = False,
    ) -> Value:
        """Return a tensor of one number: functions have no inputs of their own."""
        del bits, stored
        if not all(map(self.knows, sizes)):
            raise UnknownSizeError
        number = number_for(dtype, self.choices.pick([each for each in (1, 0, 2) if low <= each <= high]))
        number = min(int(number), 1) if dtype == torch.bool else number
        fact = Fact(dtype, sizes, number, number, 0)
        return self.call("aten.full.default", (list(sizes), number), fact, (("dtype", dtype),))

    def knows(self, size: Extent) -> bool:
        """Return whether the sizes of operands tell each symbol of a size."""
        known = {name for extent in self.extents for name, _ in extent.terms}
        return isinstance(size, int) or all(name in known for name, _ in size.terms)

    def new_input(self, dtype: torch.dtype, sizes: Extents, contents: Contents) -> Value:
        """Return something fresh."""
        return self.fresh(dtype, sizes, contents.low, contents.high)

    def body(self, prefix: str, outputs: Sequence[Value]) -> Body:
        """Return the function that gives some values."""
        written: tuple[Argument, ...] = tuple(Ref(value.name) for value in outputs)
        for value in outputs:
            value.uses += 1
        names = tuple(operand.name for operand in self.operands)
        return Body(self.building.name(prefix), names, tuple(self.steps), written)


Catalogue = tuple[Sequence[Operator], Sequence[float]]


def propose_control_flow(scope: Scope, kind: str, catalogue: Catalogue) -> None:
    """Add a call of one of the operators, with functions of a few calls.

    Args:
        scope: Where it is called.
        kind: Name of the operator.
        catalogue: Operators for the functions, and the sums of their weights.
    """
    _KINDS[kind](scope, catalogue)


def _fill(scope: BodyScope, catalogue: Catalogue) -> Value:
    """Add a few calls to a function and return the last of their results."""
    operators, sums = catalogue
    if scope.choices.chance(0.25):
        _show_operand(scope)
    for _ in range(scope.choices.integer(1, 3)):
        operator = operators[scope.choices.weighted(sums)]
        with suppress(UnknownSizeError):
            PROPOSERS[operator.family](scope, operator)
    if scope.depth < _DEEPEST and scope.choices.chance(0.3):
        _KINDS[scope.choices.pick(_NESTED)](scope, catalogue)
    results = [value for value in scope.values if value.source == "result"]
    return results[-1] if results else scope.values[-1]


def _show_operand(scope: BodyScope) -> None:
    """Let the next call take a view of what a function is given: its elements in a row."""
    fine = [one for one in scope.operands if one.rank > 1 and is_static(one.sizes) and one.fact.is_dense]
    if not fine:
        return
    value = scope.choices.pick(fine)
    count = greatest_count(value.sizes)
    fact = value.fact._replace(sizes=(count,))
    scope.must_use.append(scope.call("aten.view.default", (value, [count]), fact, root=value))


def _owned(scope: Scope, value: Value) -> Value:
    """Return a copy: functions return memory of their own, row by row."""
    keyword = (("memory_format", torch.contiguous_format),)
    return scope.call("aten.clone.default", (value,), value.fact._replace(is_dense=True), keyword)


def _operands(scope: Scope, count: int) -> list[Value]:
    found = [scope.pick(DTYPES, accept=lambda value: greatest_count(value.sizes) < 500)]
    while len(found) < count:
        found.append(scope.pick(DTYPES, accept=lambda value: greatest_count(value.sizes) < 500))
    return list(dict.fromkeys(found))


def _predicate(scope: Scope) -> Value:
    """Return a condition: one element, without dims but for some."""
    value = _truth(scope)
    if scope.choices.chance(0.85):
        return value
    return scope.call("aten.unsqueeze.default", (value, 0), value.fact._replace(sizes=(1,)), root=value)


def _truth(scope: Scope) -> Value:
    known = [value for value in scope.values if value.dtype == torch.bool and not value.rank and value.is_exact]
    if known and scope.choices.chance(0.5):
        return scope.choices.pick(known)
    value = scope.pick(DTYPES, accept=preferred(scope, True))
    if value.dtype != torch.bool:
        fact = value.fact._replace(dtype=torch.bool, low=0, high=1, bits=0)
        value = scope.call("aten.gt.Scalar", (value, number_for(value.dtype, 0)), fact)
    if not value.rank:
        return value
    return scope.call("aten.any.default", (value,), value.fact._replace(sizes=(), is_dense=True))


def _union(one: Fact, other: Fact) -> Fact:
    bits = None if one.bits is None or other.bits is None else max(one.bits, other.bits)
    return one._replace(
        low=min(one.low, other.low),
        high=max(one.high, other.high),
        bits=bits,
        is_undecided=one.is_undecided or other.is_undecided,
    )


def _cond(scope: Scope, catalogue: Catalogue) -> None:
    predicate = _predicate(scope)
    operands = _operands(scope, scope.choices.integer(1, 3))
    facts = [value.fact for value in operands]
    one, other = BodyScope(scope, facts), BodyScope(scope, facts)
    firsts, seconds = [_branch_result(one, catalogue)], list[Value]()
    seconds = [_matching(other, _branch_result(other, catalogue), firsts[0])]
    while len(firsts) < _MOST_RESULTS and scope.choices.chance(0.4):
        # Of another dtype and shape than the first, most times; or what a branch was given, or returns already.
        firsts.append(_returned(one, scope.choices.pick((*one.operands, *one.values, *firsts))))
        seconds.append(_matching(other, scope.choices.pick((*other.operands, *other.values)), firsts[-1]))
    bodies = one.body("more", firsts), other.body("less", seconds)
    facts = [_union(first.fact, second.fact) for first, second in zip(firsts, seconds, strict=True)]
    scope.call_several("cond", (predicate, operands), facts, bodies=bodies)


def _branch_result(scope: BodyScope, catalogue: Catalogue) -> Value:
    return _returned(
        scope, scope.choices.pick(scope.operands) if scope.choices.chance(0.25) else _fill(scope, catalogue)
    )


def _returned(scope: BodyScope, value: Value) -> Value:
    """Return what a function gives: what it computes or was given, as it is at times if it lies row by row.

    torch captures copies of what a function was given; without copies that do nothing, it is that itself.
    """
    is_own = value.source == "input" or value.root is None
    return value if value.fact.is_dense and is_own and scope.choices.chance(0.5) else _owned(scope, value)


def _matching(scope: BodyScope, source: Value, wanted: Value) -> Value:
    """Return a value of the dtype and the sizes of what the other branch returns."""
    if wanted.dtype != torch.bool and not fits(wanted.dtype, source.fact.low, source.fact.high):
        source = calm(scope, source, 64)
    return _returned(scope, fitting(scope, source, wanted.dtype, wanted.sizes))


def _slices(scope: Scope) -> Value:
    value = scope.pick(DTYPES, (1, 4), lambda each: low_of(each.sizes[0]) > 0 and greatest_count(each.sizes) < 500)
    if low_of(value.sizes[0]) > 0 and high_of(value.sizes[0]) < 16:
        return value
    return scope.fresh(value.dtype, (3, 2))


def _map(scope: Scope, catalogue: Catalogue) -> None:
    value = _slices(scope)
    extras = _operands(scope, 1) if scope.choices.chance(0.5) else []
    inner = BodyScope(scope, [_slice_of(value), *(extra.fact for extra in extras)])
    made = _owned(inner, _fill(inner, catalogue))
    body = inner.body("turn", (made,))
    fact = made.fact._replace(sizes=(value.sizes[0], *made.sizes))
    scope.call_several("map", ([value], extras), (fact,), bodies=(body,))


def _slice_of(value: Value) -> Fact:
    """Return what is known of a slice, which may lie anywhere in the memory of what it is a slice of."""
    return value.fact._replace(sizes=value.sizes[1:], is_dense=False)


def _carried(scope: Scope) -> list[Value]:
    """Return something exact of few bits, for the start of what is carried from turn to turn, and more of its form."""
    value = scope.pick((torch.float32, torch.int64, torch.int32), (0, 3), preferred(scope, True))
    if not value.is_exact or greatest_count(value.sizes) > 500:
        value = scope.fresh(value.dtype, (3,))
    found = [_owned(scope, tamed(scope, value, 2, 2))]
    while len(found) < _MOST_CARRIED and scope.choices.chance(0.5):
        fact = found[-1].fact
        found.append(scope.call("aten.neg.default", (found[-1],), fact._replace(low=-fact.high, high=-fact.low)))
    return found


def _carried_fact(value: Value) -> Fact:
    """Return what stays true of what is carried."""
    return value.fact._replace(low=-2, high=2, bits=2 if is_float(value.dtype) else 0)


def _following(scope: BodyScope, carried: Sequence[Value], catalogue: Catalogue) -> list[Value]:
    """Return what is carried into the next turn: computed, or what was carried into this one, in another order."""
    made = _fill(scope, catalogue)
    way = scope.choices.integer(0, 3)
    if way == 0:
        # They change places, or one is in two places.
        found = scope.choices.shuffled(carried)
        return [_returned(scope, one) for one in ([*found[:-1], found[0]] if scope.choices.chance(0.2) else found)]
    at = scope.choices.integer(0, len(carried) - 1)
    others = scope.choices.shuffled(carried) if way == 1 else list(carried)
    found = [
        _kept(scope, made if place == at else _changed(scope, one), one)
        if place == at or way == 2
        else _returned(scope, one)
        for place, one in enumerate(others)
    ]
    if scope.choices.chance(0.2):
        # What is computed is carried twice.
        found[scope.choices.integer(0, len(found) - 1)] = found[at]
    return found


def _changed(scope: BodyScope, value: Value) -> Value:
    fact = value.fact._replace(low=-value.fact.high, high=-value.fact.low)
    return scope.call("aten.neg.default", (value,), fact)


def _kept(scope: BodyScope, value: Value, wanted: Value) -> Value:
    """Return a value in the form of what is carried; where it does not fit, what was carried."""
    if not value.is_exact or (value.dtype != torch.bool and not fits(wanted.dtype, value.fact.low, value.fact.high)):
        value = wanted
    made = fitting(scope, value, wanted.dtype, wanted.sizes)
    if not made.is_exact:
        made = wanted
    return _owned(scope, within(scope, tamed(scope, made, 2, 2), -2, 2))


def _scan(scope: Scope, catalogue: Catalogue) -> None:
    starts, value = _carried(scope), _slices(scope)
    extras = _operands(scope, 1) if scope.choices.chance(0.3) else []
    facts = [_carried_fact(start) for start in starts]
    inner = BodyScope(scope, [*facts, _slice_of(value), *(extra.fact for extra in extras)])
    carried = inner.operands[: len(starts)]
    made = _returned(inner, _fill(inner, catalogue))
    following = _following(inner, carried, catalogue)
    # What a turn was given, a slice of what is gone through or what is carried, may be stacked as well.
    rows = [made, *([inner.choices.pick(inner.operands)] if scope.choices.chance(0.3) else [])]
    rows = [made, *(_owned(inner, row) for row in rows[1:])]
    body = inner.body("turn", (*following, *rows))
    stacked = [row.fact._replace(sizes=(value.sizes[0], *row.sizes)) for row in rows]
    scope.call_several("scan", (starts, [value], extras), (*facts, *stacked), bodies=(body,))


def _while_loop(scope: Scope, catalogue: Catalogue) -> None:
    starts = _carried(scope)
    extras = _operands(scope, 1) if scope.choices.chance(0.3) else []
    zero = scope.call("aten.full.default", ((), 0), Fact(torch.int64, (), 0, 0, 0), (("dtype", torch.int64),))
    turns = scope.choices.integer(0, _MOST_TURNS)
    count = Fact(torch.int64, (), 0, turns, 0)
    facts = [_carried_fact(start) for start in starts]
    # The count stands before what is carried with it, or behind.
    at = 0 if scope.choices.chance(0.5) else len(starts)
    given = [*facts[:at], count, *facts[at:], *(extra.fact for extra in extras)]
    test, turn = BodyScope(scope, given), BodyScope(scope, given)
    goes_on = test.call("aten.lt.Scalar", (test.operands[at], turns), count._replace(dtype=torch.bool, low=0, high=1))
    counted = turn.operands[at]
    carried = [one for one in turn.operands[: len(starts) + 1] if one is not counted]
    added = turn.call("aten.add.Scalar", (counted, 1), count._replace(low=1, high=turns + 1))
    turn.values.reverse()
    following = _following(turn, carried, catalogue)
    bodies = test.body("on", (goes_on,)), turn.body("turn", (*following[:at], added, *following[at:]))
    operands = [*starts[:at], zero, *starts[at:]]
    scope.call_several("while_loop", (operands, extras), (*facts[:at], count, *facts[at:]), bodies=bodies)


_KINDS: Mapping[str, Callable[[Scope, Catalogue], None]] = {
    "cond": _cond,
    "map": _map,
    "scan": _scan,
    "while_loop": _while_loop,
}
