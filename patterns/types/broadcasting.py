"""Whether shapes `~S` fit the shape S, or, where nothing gives S, each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from .sizes import Dims, Size, SizeDim, equal, recorded_value


def part_key(shape: str, variable: str, place: int) -> str:
    """Return the key under which bindings keep the part of a tensor's shape that `~S` stands for."""
    return f"~{shape}.{variable}.{place}"


def parts_of(shape: str, names: Mapping[str, Any]) -> Iterator[Sequence[Size]]:
    """Yield what tensors matched so far have in the place of `~S`."""
    prefix = f"~{shape}."
    for key in names:
        if key.startswith(prefix):
            yield names[key]


def broadcasts(shape: str, dims: Dims | None, names: Mapping[str, Any]) -> bool:
    """Whether everything in the place of `~S` is known to broadcast.

    Args:
        shape: The name S.
        dims: Its signature, if a variable gives one.
        names: What is bound.
    """
    parts = list(parts_of(shape, names))
    if not parts:
        return True
    known = recorded_value(names.get(shape))
    if isinstance(known, list | tuple):
        return all(_fits(part, known) for part in parts)
    if dims is None or not all(isinstance(dim, SizeDim) for dim in dims):
        return _fit_each_other(parts)
    targets = [dim.size.evaluate(names) for dim in dims if isinstance(dim, SizeDim)]
    return all(_fits(part, targets) for part in parts) and _fit_each_other(parts)


def _fits(part: Sequence[Size], target: Sequence[Size | None]) -> bool:
    if len(part) > len(target):
        return False
    for size, wanted in zip(reversed(part), reversed(target), strict=False):
        if wanted is not None and not equal(size, 1) and not equal(size, wanted):
            return False
    return True


def _fit_each_other(parts: Sequence[Sequence[Size]]) -> bool:
    if len(parts) == 1:
        return True
    for column in zip_longest(*(reversed(part) for part in parts), fillvalue=1):
        widest: Size = 1
        for size in column:
            if equal(size, 1) or equal(size, widest):
                continue
            if not equal(widest, 1):
                return False
            widest = size
    return True
