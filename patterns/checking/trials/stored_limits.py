"""Values of stored tensors at which other dtypes end, so that trials show what a narrower one cannot hold."""

from __future__ import annotations

import random

import torch

_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def with_limit(value: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Return a tensor of which one element is at, or just beyond, what a narrower dtype can hold.

    Args:
        value: Any tensor; one without elements, or of a dtype that no other one is narrower than, is returned as it is.
        rng: Chooses element and limit.
    """
    limits = _integer_limits(value.dtype) if not value.is_floating_point() else _float_limits(value.dtype)
    if not value.numel() or not limits:
        return value
    changed = value.clone(memory_format=torch.contiguous_format)
    changed.view(-1)[rng.randrange(value.numel())] = rng.choice(limits)
    return changed


def _integer_limits(dtype: torch.dtype) -> list[int]:
    if dtype == torch.bool or dtype.is_complex:
        return []
    own = torch.iinfo(dtype)
    ends = [end for one in _INTEGERS for end in (torch.iinfo(one).min, torch.iinfo(one).max)]
    near = [end + step for end in ends for step in (-1, 0, 1)]
    return sorted({one for one in near if own.min <= one <= own.max})


def _float_limits(dtype: torch.dtype) -> list[float]:
    """Return the ends of narrower floating-point dtypes, and numbers with one digit more than they have."""
    found: list[float] = []
    for one in _FLOATS:
        info = torch.finfo(one)
        if torch.finfo(dtype).eps < info.eps:
            found += [
                sign * end for sign in (1, -1) for end in (info.max, info.max * 1.5, info.tiny, info.tiny / 2**30)
            ]
            found += [1 + info.eps, 1 + info.eps / 2]
    return [one for one in found if abs(one) <= torch.finfo(dtype).max]
