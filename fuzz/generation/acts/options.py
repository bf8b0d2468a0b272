"""Calls whose optional arguments are left out, given, or given as what they mean when they are left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from exirkit.fuzz.generation.method.scope import Scope

from .loose import hide, loose_call, loose_calls, returned

_SIZES = ((3, 2), (2, 3, 2), (1, 4), (2, 1, 3), (4,))


def options(scope: Scope) -> None:
    """Compute variances of few numbers, or pool without a stride."""
    for _ in range(scope.choices.integer(1, 2)):
        scope.choices.pick(_CALLS)(scope)


def _variance(scope: Scope) -> None:
    """Compute a variance whose correction takes away all numbers, or leaves one, at times."""
    choices = scope.choices
    sizes = choices.pick(_SIZES)
    given = scope.new_input(torch.float32, sizes, scope.building.contents(torch.float32))
    hide(scope, given)
    most = 1 if choices.chance(0.6) else len(sizes)
    dims = sorted(choices.shuffled(range(len(sizes)))[: choices.integer(0 if most > 1 else 1, most)])
    reduced = dims or range(len(sizes))
    keeps = choices.chance(0.3)
    count = int(torch.Size(sizes[dim] for dim in reduced).numel())
    kwargs: dict[str, Any] = {"keepdim": True} if keeps else {}
    if choices.chance(0.8):
        kwargs["correction"] = max(count + choices.integer(-1, 1), 0)
    kept = [1 if dim in reduced else size for dim, size in enumerate(sizes) if keeps or dim not in reduced]
    args = (given, dims) if dims or choices.chance(0.3) else (given,)
    name = choices.pick(("var", "std", "var_mean"))
    results = [(torch.float32, tuple(kept))] * (2 if name == "var_mean" else 1)
    for value in loose_calls(scope, f"aten.{name}.correction", args, results, tuple(kwargs.items())):
        returned(scope, value)


def _pool(scope: Scope) -> None:
    """Pool planes, rows or volumes by windows of a power of two, of which one follows the other unless told."""
    choices = scope.choices
    rank = choices.integer(1, 3)
    window = [choices.pick((1, 2)) for _ in range(rank)]
    sizes = [choices.integer(2, 4) for _ in range(rank)]
    stride = choices.pick((None, [], window, [1] * rank))
    step = stride or window
    given = scope.new_input(torch.float32, (1, choices.integer(1, 2), *sizes), scope.building.contents(torch.float32))
    hide(scope, given)
    made = [(size - wide) // by + 1 for size, wide, by in zip(sizes, window, step, strict=True)]
    name = choices.pick((f"aten.avg_pool{rank}d.default", f"aten.max_pool{rank}d.default"))
    args = (given, window) if stride is None else (given, window, stride)
    returned(scope, loose_call(scope, name, args, torch.float32, (*given.sizes[:2], *made), is_exact=True))


_CALLS: tuple[Callable[[Scope], None], ...] = (_variance, _pool)
