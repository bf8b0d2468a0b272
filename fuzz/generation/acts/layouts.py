"""Layouts: copies of tensors with sizes of one, whose strides do not tell the order of dims, and results of calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch

from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.method.values import Value
from exirkit.fuzz.programs import Contents

from .loose import hide, loose_call, loose_calls, returned

_SHAPES = ((2, 1, 3, 2), (1, 3, 2, 2), (2, 3, 1, 1), (1, 1, 3, 2), (2, 1, 1, 3), (2, 3, 2, 2))
_FORMATS = (torch.contiguous_format, torch.channels_last, torch.preserve_format)


def relaid_unit_dims(scope: Scope) -> None:
    """Copy an image with one channel, pixel or row from layout to layout and dtype to dtype, and compute between."""
    choices = scope.choices
    contents = scope.building.contents(torch.float32)
    contents = replace(contents, layout="channels_last" if choices.chance(0.7) else "dense")
    value = scope.new_input(torch.float32, choices.pick(_SHAPES), contents)
    for _ in range(choices.integer(2, 4)):
        kind = choices.integer(0, 3)
        fact = value.fact._replace(is_dense=False)
        if kind < 2:
            named = (("memory_format", choices.pick(_FORMATS)),)
            value = scope.call("aten.clone.default", (value,), fact, named)
        elif kind == 2:
            dtype = torch.float64 if value.dtype == torch.float32 else torch.float32
            layout = (("memory_format", choices.pick(_FORMATS)),) if choices.chance(0.5) else ()
            value = scope.call(
                "aten._to_copy.default", (value,), fact._replace(dtype=dtype), (("dtype", dtype), *layout)
            )
        else:
            value = scope.call("aten.neg.default", (value,), fact._replace(low=-fact.high, high=-fact.low))
        if choices.chance(0.3):
            scope.must_use.append(value)


def laid_out_results(scope: Scope) -> None:
    """Return results of calls that keep the layout of their operands and are made of calls that may not."""
    choices = scope.choices
    sizes = (choices.integer(1, 2), choices.pick((1, 2, 4)), choices.integer(1, 4), choices.integer(1, 4))
    layouts: list[Literal["dense", "channels_last"]] = ["channels_last", choices.pick(("dense", "channels_last"))]
    first, second = (_laid_out(scope, torch.float32, sizes, one) for one in choices.shuffled(layouts))
    for _ in range(choices.integer(1, 3)):
        kind = choices.integer(0, 4)
        if kind == 0:
            pooled = (*sizes[:2], choices.integer(1, 3), choices.integer(1, 3))
            results = ((torch.float32, pooled), (torch.int64, pooled))
            name = "aten.adaptive_max_pool2d.default"
            returned(scope, loose_calls(scope, name, (first, pooled[2:]), results, is_exact=True)[0])
        elif kind == 1:
            pair = [_laid_out(scope, torch.int64, sizes, one) for one in choices.shuffled(layouts)]
            name = choices.pick(("aten.bitwise_left_shift.Tensor", "aten.bitwise_right_shift.Tensor"))
            returned(scope, loose_call(scope, name, tuple(pair), torch.int64, sizes))
        elif kind == 2:
            returned(scope, loose_call(scope, "aten.lerp.Scalar", (first, second, 0.5), torch.float32, sizes))
        elif kind == 3:
            returned(scope, loose_call(scope, "aten.mish.default", (first,), torch.float32, sizes))
        else:
            args = (first, [choices.integer(0, 3)])
            returned(scope, loose_call(scope, "aten.flip.default", args, torch.float32, sizes, is_exact=True))


def _laid_out(
    scope: Scope, dtype: torch.dtype, sizes: tuple[int, ...], layout: Literal["dense", "channels_last"]
) -> Value:
    if dtype.is_floating_point:
        contents = scope.building.contents(dtype)
    else:
        count = int(torch.Size(sizes).numel())
        contents = Contents("numbers", numbers=tuple(scope.choices.integer(0, 5) for _ in range(count)))
    value = scope.new_input(dtype, sizes, replace(contents, layout=layout))
    hide(scope, value)
    return value
