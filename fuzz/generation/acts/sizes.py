"""Sizes other than sums of multiples of symbols, and views of tensors without elements."""

from __future__ import annotations

from collections.abc import Callable

import torch

from exirkit.fuzz.generation.method.extents import Affine, Extent, Extents, plus
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Value
from exirkit.fuzz.generation.operators.viewing import from_end, replaced
from exirkit.fuzz.programs import Size

from .loose import loose_call, returned


def stepped_size(scope: Scope) -> None:
    """Make tensors whose size falls or grows, also by steps, as a symbol grows.

    Sizes that go up and down are left out: torch takes the one of its example for all of them.
    """
    symbols = [one for one in scope.extents if one.constant == 0 and [count for _, count in one.terms] == [1]]
    if not symbols:
        return
    symbol = scope.choices.pick(symbols)
    text, greatest = scope.choices.pick(_STEPPED)(symbol)
    size = Size(text)
    if not any(sign in text for sign in ("//", "%", "(")) and scope.choices.chance(0.5):
        # torch's decomposition of expansions asks of other sizes whether they are one, and takes the answer for all.
        one = scope.new_input(torch.float32, (1,), scope.building.contents(torch.float32))
        made = _hidden(scope, scope.call("aten.expand.default", (one, [size]), one.fact._replace(sizes=(greatest,))))
    else:
        fact = _number_fact(scope, greatest)
        made = _hidden(scope, scope.call("aten.full.default", ([size], 2.0), fact.fact, (("dtype", torch.float32),)))
    for op in scope.choices.shuffled(("aten.neg.default", "aten.abs.default"))[: scope.choices.integer(1, 2)]:
        low, high = -made.magnitude, made.magnitude
        made = _hidden(scope, scope.call(op, (made,), made.fact._replace(low=low, high=high, is_dense=True)))
    scope.outputs_of_unknown_size.append(made)


def _number_fact(scope: Scope, size: int) -> Value:
    first = scope.values[0]
    return Value(first.name, first.fact._replace(dtype=torch.float32, sizes=(size,), low=0, high=2, bits=0), "result")


def _half(symbol: Affine) -> tuple[str, int]:
    return f"{symbol} // 2 + 1", symbol.high // 2 + 1


def _other_half(symbol: Affine) -> tuple[str, int]:
    return f"{symbol} - {symbol} // 2 + 1", symbol.high - symbol.high // 2 + 1


def _falling(symbol: Affine) -> tuple[str, int]:
    # Torch asks of some sizes whether they are one.
    return f"{symbol.high} - {symbol} + 2", symbol.high - symbol.low + 2


def _falling_by_steps(symbol: Affine) -> tuple[str, int]:
    return f"{symbol.high} - {symbol} + {symbol} // 2 + 2", symbol.high - symbol.low + symbol.low // 2 + 2


def _between(symbol: Affine) -> int:
    # Torch takes all sizes for 2 or more when it asks whether one is less than another.
    return max((symbol.low + symbol.high) // 2, 3)


def _at_least(symbol: Affine) -> tuple[str, int]:
    between = _between(symbol)
    return f"max({symbol}, {between}) + 1", max(symbol.high, between) + 1


def _at_most(symbol: Affine) -> tuple[str, int]:
    between = _between(symbol)
    return f"min({symbol}, {between}) + 2", between + 2


def _even(symbol: Affine) -> tuple[str, int]:
    return f"{symbol} - {symbol} % 2 + 1", symbol.high - symbol.high % 2 + 1


def _square(symbol: Affine) -> tuple[str, int]:
    return f"{symbol} ** 2 + 1", symbol.high**2 + 1


_STEPPED: tuple[Callable[[Affine], tuple[str, int]], ...] = (
    _falling, _half, _falling_by_steps, _other_half, _at_least, _at_most, _even, _square,
)  # fmt: skip


def empty_views(scope: Scope) -> None:
    """View a tensor without elements, of which another size may vary, in other shapes, and compute with what is shown.

    That a size follows from the others does not hold here: all numbers of elements are zero.
    """
    building, choices = scope.building, scope.choices
    extents = building.dynamic_sizes()
    other: Extent = extents[0] if extents and choices.chance(0.8) else 3
    options: tuple[Extents, ...] = ((other, 0), (0, other), (2, 0, other))
    sizes = choices.pick(options)
    dtype = choices.pick((torch.float32, torch.int64))
    value = _hidden(scope, scope.new_input(dtype, sizes, building.contents(dtype)))
    if choices.chance(0.5):
        value = _computed(scope, value)
    more: list[object]
    for _ in range(choices.integer(1, 2)):
        kind = choices.pick((1, 0, 1, 2))
        if kind == 0 or value.rank > 3:
            order = choices.shuffled(range(value.rank))
            sizes = tuple(value.sizes[dim] for dim in order)
            op, more = "aten.permute", [order]
        elif kind == 1:
            dim = choices.integer(0, value.rank)
            sizes = (*value.sizes[:dim], 1, *value.sizes[dim:])
            op, more = "aten.unsqueeze", [from_end(scope, dim, value.rank + 1)]
        else:
            at = value.sizes.index(0)
            sizes = replaced(value.sizes, at, 0, 5)
            op, more = "aten.view", [list(sizes)]
        made = scope.call(f"{op}.default", (value, *more), value.fact._replace(sizes=sizes, is_dense=False), root=value)
        value = _hidden(scope, made)
        if kind == 0:
            # Whether such a tensor can be viewed in another shape is a matter of its strides.
            value = _computed(scope, value)
    scope.outputs_of_unknown_size.append(_computed(scope, value))


_DECOMPOSED = (
    "aten.silu.default", "aten.hardswish.default", "aten.mish.default", "aten.softplus.default",
    "aten.log_sigmoid.default", "aten.selu.default", "aten.hardsigmoid.default", "aten.celu.default",
)  # fmt: skip


def calls_of_two_sizes(scope: Scope) -> None:
    """Make a call that is decomposed of two tensors whose sizes vary, each in its own way."""
    choices, extents = scope.choices, scope.building.dynamic_sizes()
    operators = [operator for operator in _DECOMPOSED if scope.building.plan.policy.allows(operator)]
    if not extents or not operators:
        return
    first = choices.pick(extents)
    second = choices.pick([*(one for one in extents if one is not first), plus(first, 1)])
    op, rows = choices.pick(operators), choices.pick(((), (), (2,)))
    for extent in choices.shuffled([first, second]):
        sizes = (*rows, extent)
        given = _hidden(scope, scope.new_input(torch.float32, sizes, scope.building.contents(torch.float32)))
        returned(scope, loose_call(scope, op, (given,), torch.float32, sizes))


def _computed(scope: Scope, value: Value) -> Value:
    fact = value.fact._replace(low=-value.magnitude, high=value.magnitude)
    return _hidden(scope, scope.call("aten.neg.default", (value,), fact))


def _hidden(scope: Scope, value: Value) -> Value:
    scope.values.remove(value)
    return value
