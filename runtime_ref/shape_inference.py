"""The shapes of the results of a kernel, found without running it on data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

OutArguments = Mapping[str, Any]
Shapes = dict[str, Any]


def infer_shapes(
    call: Callable[..., Any], positional: Sequence[Any], keywords: Mapping[str, Any], outs: OutArguments
) -> Shapes | None:
    """Return the shape, or list of shapes, of each out argument, or None if only a real run can tell.

    Args:
        call: A kernel that resizes empty out tensors.
        positional: Its positional arguments.
        keywords: Its named arguments without the out arguments.
        outs: The dtype, or list of dtypes, of each out argument.
    """
    empty = empty_outs(outs, device="meta")
    try:
        call(
            *(_to_meta(argument) for argument in positional),
            **{name: _to_meta(argument) for name, argument in keywords.items()},
            **empty,
        )
    except Exception:
        # Not implemented, dependent on elements, or wrong arguments: the real kernel says which.
        return None
    return {name: [one.shape for one in out] if isinstance(out, list) else out.shape for name, out in empty.items()}


def empty_outs(outs: OutArguments, *, device: str = "cpu") -> dict[str, Any]:
    """Return an empty tensor for each out argument."""
    return {
        name: [torch.empty(0, dtype=one, device=device) for one in dtype]
        if isinstance(dtype, list)
        else torch.empty(0, dtype=dtype, device=device)
        for name, dtype in outs.items()
    }


def _to_meta(argument: Any) -> Any:
    if isinstance(argument, torch.Tensor):
        return torch.empty_strided(argument.shape, argument.stride(), dtype=argument.dtype, device="meta")
    if isinstance(argument, list):
        return [_to_meta(item) for item in argument]
    return argument
