"""Windows that overlap: copies of parts of a tensor, and the gradients of the greatest elements."""

from __future__ import annotations

import math

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.programs import Contents

from .loose import hide, loose_call, loose_calls, returned

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


def gradients_of_maxima(scope: Scope) -> None:
    """Give the greatest elements of windows their gradients, of which one element may get several."""
    choices = scope.choices
    sizes = (1, choices.integer(1, 2), choices.integer(2, 4), choices.integer(2, 4))
    # Without equal elements, of which executors could choose another one.
    numbers = tuple(choices.shuffled([place / 2 - 5 for place in range(math.prod(sizes))]))
    given = scope.new_input(torch.float32, sizes, Contents("numbers", numbers=numbers))
    padding = choices.pick(((0, 0), (0, 0), (1, 1), (0, 1)))
    step = choices.pick(((1, 1), (1, 1), (1, 2), (2, 2)))
    window = ((2, 2), step, padding, (1, 1), False)
    planes = tuple((size + 2 * pad - 2) // by + 1 for size, pad, by in zip(sizes[2:], padding, step, strict=True))
    made = (*sizes[:2], *planes)
    results = ((torch.float32, made), (torch.int64, made))
    name = "aten.max_pool2d_with_indices"
    greatest, places = loose_calls(scope, f"{name}.default", (given, *window), results, is_exact=True)
    gradient = scope.new_input(torch.float32, made, scope.building.contents(torch.float32))
    for value in (given, gradient):
        hide(scope, value)
    args = (gradient, given, *window, places)
    returned(scope, loose_call(scope, f"{name}_backward.default", args, torch.float32, sizes, is_exact=True))
    returned(scope, greatest)
