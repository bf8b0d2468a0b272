"""Whether what is recorded of a call is what its operator gives, told from a few numbers for its symbolic sizes.

Fake tensors with symbolic sizes compare expressions, which takes milliseconds a call, and cannot tell `s0*2//2` from
`s0`. Kernels without data take microseconds. Two expressions that differ agree at the least, the greatest and uneven
sizes of a program only if they were made to; where anything differs, or no kernel can tell, fake tensors are asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import sympy
import torch
from torch._subclasses import FakeTensorMode
from torch.utils import _pytree as pytree

from exirkit.ir import Sizes, has_meta_value, meta_value, sample_sizes, symbols_within, underlying, with_sizes

_NOWHERE: tuple[Sizes, ...] = ({},)
_NO_LIMIT = 1 << 62


class Agreement(Enum):
    """What is known of a call."""

    UNKNOWN = "fake tensors have to be asked"
    SIZES = "dtype and sizes are as recorded; strides may differ"
    ALL = "dtype, sizes and strides are as recorded"


def agreement(
    mode: FakeTensorMode, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], recorded: Any
) -> Agreement:
    """Compare what is recorded of a call with what its operator gives.

    Args:
        mode: Fake tensor mode of the program, which knows the ranges of its symbols.
        target: What the call runs.
        args: Arguments as in a graph; nodes have recorded values.
        kwargs: Keyword arguments as in a graph.
        recorded: Value of the call.
    """
    if not has_meta_value(underlying(target)) or not _holds_tensors(recorded):
        return Agreement.UNKNOWN
    points = _points(mode, (args, kwargs, recorded))
    found = Agreement.ALL
    for point in points:
        try:
            said, given = with_sizes((recorded, (tuple(args), dict(kwargs))), point)
        except ZeroDivisionError:
            return Agreement.UNKNOWN
        value = meta_value(target, *given)
        if value is None or not _same(said, value, _same_sizes):
            return Agreement.UNKNOWN
        if not _same(said, value, _same_strides):
            found = Agreement.SIZES
    return found if points else Agreement.UNKNOWN


def _holds_tensors(value: Any) -> bool:
    leaves = pytree.tree_leaves(value)
    return bool(leaves) and all(isinstance(one, torch.Tensor) for one in leaves)


def _points(mode: FakeTensorMode, values: Any) -> Sequence[Sizes]:
    """Return sizes to try; none if the ranges of some symbol are not known."""
    symbols = list(dict.fromkeys(symbols_within(values)))
    if not symbols:
        return _NOWHERE
    known = mode.shape_env.var_to_range if mode.shape_env is not None else {}
    limits = {one: (known[one].lower, known[one].upper) for one in symbols if one in known}
    if len(limits) < len(symbols) or not all(isinstance(low, sympy.Integer) for low, _ in limits.values()):
        return ()
    return sample_sizes(
        {
            one: (int(low), int(high) if isinstance(high, sympy.Integer) else _NO_LIMIT)
            for one, (low, high) in limits.items()
        }
    )


def _same(said: Any, given: Any, same: Any) -> bool:
    if isinstance(said, torch.Tensor):
        return isinstance(given, torch.Tensor) and bool(same(said, given))
    if not isinstance(given, list | tuple) or len(said) != len(given):
        return False
    return all(_same(one, other, same) for one, other in zip(said, given, strict=True))


def _same_sizes(said: torch.Tensor, given: torch.Tensor) -> bool:
    return said.dtype == given.dtype and said.shape == given.shape


def _same_strides(said: torch.Tensor, given: torch.Tensor) -> bool:
    return said.stride() == given.stride()
