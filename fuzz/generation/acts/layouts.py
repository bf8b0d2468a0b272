"""Copies in another layout of tensors with sizes of one, whose strides do not tell the order of dims."""

from __future__ import annotations

from dataclasses import replace

import torch

from exirkit.fuzz.generation.method.scope import Scope

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
