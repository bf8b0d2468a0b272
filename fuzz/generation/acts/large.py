"""Tensors of more bytes than other programs have: beyond 64 KiB in an arena, and beyond what lowering copies."""

from __future__ import annotations

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Value

from .loose import hide, loose_call, returned

_SIZES = ((8_200,), (91, 90), (4, 2_050))
"""Of float32: three of them take more than 64 KiB, of which offsets of 16 bits reach the first."""
_OF_ONE = ("aten.neg.default", "aten.abs.default", "aten.relu.default", "aten.clone.default")
_OF_TWO = ("aten.add.Tensor", "aten.sub.Tensor", "aten.maximum.default")


def large_values(scope: Scope) -> None:
    """Compute with several large tensors that live at once; return the ends, extremes or sums of what is made."""
    choices = scope.choices
    sizes = choices.pick(_SIZES)
    given = scope.new_input(torch.float32, sizes, scope.building.contents(torch.float32))
    hide(scope, given)
    living = [given]
    for _ in range(choices.integer(3, 5)):
        if choices.chance(0.5):
            args: tuple[Value, ...] = (living[-1],)
            op = choices.pick(_OF_ONE)
        else:
            args, op = (living[-1], choices.pick(living)), choices.pick(_OF_TWO)
        living.append(loose_call(scope, op, args, torch.float32, sizes, is_exact=True))
    # Each is used once more, so that they all are there at once.
    for value in choices.shuffled(living[1:]):
        _shown(scope, value, sizes)


def _shown(scope: Scope, value: Value, sizes: tuple[int, ...]) -> None:
    kind = scope.choices.integer(0, 2)
    if kind == 0:
        made = loose_call(scope, "aten.amax.default", (value,), value.dtype, (), is_exact=True)
    elif kind == 1:
        # Quarters whose sum has few digits, so that no order of additions rounds.
        made = loose_call(scope, "aten.sum.dim_IntList", (value, [0]), value.dtype, sizes[1:], is_exact=True)
    else:
        cut = (*sizes[:-1], 3)
        args = (value, len(sizes) - 1, sizes[-1] - 3, sizes[-1])
        part = loose_call(scope, "aten.slice.Tensor", args, value.dtype, cut, is_exact=True)
        made = loose_call(scope, "aten.neg.default", (part,), value.dtype, cut, is_exact=True)
    returned(scope, made)
