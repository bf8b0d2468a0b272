"""Branches and loops around a few calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Value
from exirkit.fuzz.generation.operators.control_flow import BodyScope

from .loose import hide, loose_call, loose_calls


def branched(
    scope: Scope, operands: Sequence[Value], fill: Callable[[BodyScope, int], Value], *, is_exact: bool = False
) -> Value:
    """Return what one of two branches returns.

    Args:
        scope: Of the call.
        operands: Of both branches.
        fill: Fills a branch, the first or the second, and returns its result, which has the type of the first operand.
        is_exact: The results are.
    """
    condition = scope.new_input(torch.bool, (), scope.building.contents(torch.bool))
    hide(scope, condition)
    inner = [BodyScope(scope, [one.fact for one in operands]) for _ in range(2)]
    bodies = tuple(
        one.body(name, [fill(one, place)])
        for place, (name, one) in enumerate(zip(("more", "less"), inner, strict=True))
    )
    results = [(operands[0].dtype, operands[0].sizes)]
    return loose_calls(scope, "cond", (condition, list(operands)), results, is_exact=is_exact, bodies=bodies)[0]


def looped(
    scope: Scope,
    carried: Sequence[Value],
    extras: Sequence[Value],
    fill: Callable[[BodyScope], Sequence[Value]],
    *,
    is_exact: bool = False,
) -> list[Value]:
    """Return what a loop of up to three turns returns of what it carries.

    Args:
        scope: Of the call.
        carried: What it starts with.
        extras: What all turns see.
        fill: Fills a turn, whose operands are a counter, what is carried, and the extras; returns what is carried on.
        is_exact: The results are.
    """
    turns = scope.choices.integer(0, 3)
    start = loose_call(scope, "aten.full.default", ((), 0), torch.int64, (), (("dtype", torch.int64),))
    facts = [start.fact, *(one.fact for one in (*carried, *extras))]
    test, turn = BodyScope(scope, facts), BodyScope(scope, facts)
    goes_on = loose_call(test, "aten.lt.Scalar", (test.operands[0], turns), torch.bool, ())
    after = fill(turn)
    counted = loose_call(turn, "aten.add.Scalar", (turn.operands[0], 1), torch.int64, ())
    bodies = test.body("on", [goes_on]), turn.body("turn", [counted, *after])
    results = [(torch.int64, ()), *((one.dtype, one.sizes) for one in carried)]
    called = ([start, *carried], list(extras))
    return loose_calls(scope, "while_loop", called, results, is_exact=is_exact, bodies=bodies)[1:]
