"""Copies of parts of a tensor that are given by steps between elements, and the place where they begin."""

from __future__ import annotations

import math

from exirkit.fuzz.generation.method.scope import Scope

from .loose import hide, returned

_COPY = "aten.as_strided_copy.default"
_SIZES = ((6,), (3, 4), (2, 3, 2))
_STEPS = (1, 2, 3, 0, 4)


def strided_windows(scope: Scope) -> None:
    """Copy windows that overlap, are turned or repeat elements, most of which do not begin at the first element."""
    choices, policy = scope.choices, scope.building.plan.policy
    if not policy.allows(_COPY):
        return
    dtype = scope.dtype_of(policy.dtypes)
    value = scope.new_input(dtype, choices.pick(_SIZES), scope.building.contents(dtype))
    count = math.prod(int(size) for size in value.sizes if isinstance(size, int))
    for _ in range(choices.integer(1, 2)):
        sizes, steps, reach = [], [], 0
        for _ in range(choices.integer(1, 3)):
            step = choices.pick(_STEPS)
            longest = (count - 2 - reach) // step + 1 if step else 2
            sizes.append(choices.integer(1, min(max(longest, 1), 3)))
            steps.append(step)
            reach += step * (sizes[-1] - 1)
        start = choices.integer(1, count - 1 - reach)
        fact = value.fact._replace(sizes=tuple(sizes), is_dense=True)
        made = scope.call(_COPY, (value, tuple(sizes), tuple(steps), start), fact)
        hide(scope, made)
        returned(scope, made)
