"""The shapes of the results of a kernel, found without running it on data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from exirkit.runtime_ref.kernels.kernel import Kernel

OutArguments = Mapping[str, Any]
Shapes = dict[str, Any]

# Methods with dynamic shapes ask about new ones for ever.
_MAX_KNOWN = 4096
_MOST_ONES = 1 << 14
"""Elements of the arguments that are computed with."""


class ShapeInference:
    """Answers for one method; layers that repeat are asked about once."""

    def __init__(self) -> None:
        self._known: dict[Any, Shapes | None] = {}

    def infer(
        self, kernel: Kernel, positional: Sequence[Any], keywords: Mapping[str, Any], outs: OutArguments
    ) -> Shapes | None:
        """Return the shape, or list of shapes, of each out argument, or None if only a real run can tell.

        Args:
            kernel: An OUT kernel.
            positional: Its positional arguments.
            keywords: Its named arguments without the out arguments.
            outs: The dtype, or list of dtypes, of each out argument.
        """
        key = (kernel.name, key_of(list(positional)), key_of(list(keywords.items())), key_of(list(outs.items())))
        if key not in self._known:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[key] = _run_without_data(kernel, positional, keywords, outs)
        return self._known[key]


def _run_without_data(
    kernel: Kernel, positional: Sequence[Any], keywords: Mapping[str, Any], outs: OutArguments
) -> Shapes | None:
    has_ones = kernel.is_faster_on_ones and _elements([*positional, *keywords.values()]) <= _MOST_ONES
    empty = empty_outs(outs, device="cpu" if has_ones else "meta")
    stand_in = _to_ones if has_ones else _to_meta
    try:
        kernel.call(
            *(stand_in(argument) for argument in positional),
            **{name: stand_in(argument) for name, argument in keywords.items()},
            **empty,
        )
    except Exception:
        # Not implemented, dependent on elements, or wrong arguments: the real kernel says which.
        return None
    return {name: [one.shape for one in out] if isinstance(out, list) else out.shape for name, out in empty.items()}


def key_of(argument: Any) -> Any:
    """Return all of an argument that the shape of a result can depend on, unless it depends on elements."""
    if isinstance(argument, torch.Tensor):
        return argument.shape, argument.dtype
    if isinstance(argument, list | tuple):
        return tuple(key_of(item) for item in argument)
    # 1, 1.0 and True are equal and hash alike.
    return type(argument), argument


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


def _to_ones(argument: Any) -> Any:
    """Return ones for a tensor: dividing by them is not an error, and they are good indices wherever 1 is one."""
    if isinstance(argument, torch.Tensor):
        return torch.ones(argument.shape, dtype=argument.dtype)
    if isinstance(argument, list):
        return [_to_ones(item) for item in argument]
    return argument


def _elements(arguments: Sequence[Any]) -> int:
    return sum(
        one.numel() if isinstance(one, torch.Tensor) else _elements(one) if isinstance(one, list) else 0
        for one in arguments
    )
