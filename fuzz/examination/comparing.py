"""Comparing values: bit for bit, or within an error budget that a float64 computation sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

ERROR_FACTOR = 3.0
"""How much farther from the float64 result than eager torch a result may be."""

ULPS = 16.0
"""Units in the last place of the largest element that a result may be off in any case."""

MOST_MOVED = 16.0
"""How many times what is allowed a result may be off where rounding of operands moves it as far."""


Budget: TypeAlias = tuple[Any, Callable[[], Sequence[Any]]]
"""A result in float64, and what gives such results from operands that differ by rounding."""


def difference(got: Any, wanted: Any, *, is_signed_zero_free: bool = False) -> tuple[str, str] | None:
    """Compare two results bit for bit; NaN is NaN.

    Args:
        got: A tensor, number, None, or list of these.
        wanted: Likewise.
        is_signed_zero_free: Take 0.0 and -0.0 for equal.

    Returns:
        The kind of the difference and a text about it, or None.
    """
    if isinstance(wanted, list | tuple):
        return _difference_of_lists(got, wanted, is_signed_zero_free)
    if not isinstance(wanted, torch.Tensor):
        return _difference_of_numbers(got, wanted)
    kind = difference_of_types(got, wanted)
    if kind is not None or _equal(got, wanted):
        return kind
    bad = differing_elements(got, wanted, is_signed_zero_free=is_signed_zero_free)
    if not bool(bad.any()):
        return None
    return _kind_of_values(got, wanted, bad), _first_of(got, wanted, bad)


def difference_of_types(got: Any, wanted: Any) -> tuple[str, str] | None:
    """Compare dtype and shape of two results."""
    if isinstance(wanted, list | tuple):
        if not isinstance(got, list | tuple) or len(got) != len(wanted):
            return "arity", f"{_brief(got)} instead of {len(wanted)} results"
        found = (difference_of_types(one, other) for one, other in zip(got, wanted, strict=True))
        return next((each for each in found if each is not None), None)
    if not isinstance(wanted, torch.Tensor):
        is_other = type(got) is not type(wanted) and not (_is_number(got) and _is_number(wanted))
        return ("kind", f"{_brief(got)} instead of {_brief(wanted)}") if is_other else None
    if not isinstance(got, torch.Tensor):
        return "kind", f"{_brief(got)} instead of a tensor"
    if got.dtype != wanted.dtype:
        return "dtype", f"{got.dtype} instead of {wanted.dtype}"
    if got.shape != wanted.shape:
        return "shape", f"{list(got.shape)} instead of {list(wanted.shape)}"
    return None


def differing_elements(got: torch.Tensor, wanted: torch.Tensor, *, is_signed_zero_free: bool = False) -> torch.Tensor:
    """Return where two tensors of one type differ; NaN is NaN."""
    if not wanted.is_floating_point():
        return got != wanted
    # Signed zero differs in its bits only.
    bits = _BITS[wanted.element_size()]
    bad = _dense(got).view(bits) != _dense(wanted).view(bits)
    bad &= ~(got.isnan() & wanted.isnan())
    return bad & (got != wanted) if is_signed_zero_free else bad


def beyond_budget(
    got: Any, wanted: Any, exact: Any, shaken: Callable[[], Sequence[Any]] = list
) -> tuple[str, str] | None:
    """Compare a result with that of eager torch as closely as float64 says that can be asked.

    A result may be `ERROR_FACTOR` times as far from the float64 result as eager torch is, and `ULPS` units in the last
    place of the largest element beyond that. Eager torch is right to the last bit at times: a result that is farther
    away is compared with how far rounding moves it, up to `MOST_MOVED` times what is allowed else.

    Args:
        got: The result.
        wanted: That of eager torch.
        exact: That of the same computation in float64; None where there is none, and eager torch stands for it.
        shaken: Gives results in float64 from operands that differ by rounding.
    """
    kind = difference_of_types(got, wanted)
    if kind is not None:
        return kind
    if isinstance(wanted, list | tuple):
        references = exact if isinstance(exact, list | tuple) else [None] * len(wanted)
        found = (
            beyond_budget(*each, partial(_elements, shaken, place))
            for place, each in enumerate(zip(got, wanted, references, strict=True))
        )
        return next((each for each in found if each is not None), None)
    if not isinstance(wanted, torch.Tensor) or not wanted.is_floating_point():
        return difference(got, wanted)
    reference = wanted if exact is None or exact.shape != wanted.shape else exact
    mine, theirs, truth = got.double(), wanted.double(), reference.double()
    usual = torch.isfinite(mine) & torch.isfinite(theirs) & torch.isfinite(truth)
    odd = ~usual & differing_elements(got, wanted, is_signed_zero_free=True)
    if bool(odd.any()):
        return _kind_of_values(got, wanted, odd), _first_of(got, wanted, odd)
    if not bool(usual.any()):
        return None
    zero = torch.zeros((), dtype=torch.float64)
    mine, theirs, truth = (torch.where(usual, each, zero) for each in (mine, theirs, truth))
    largest = float(truth.abs().max())
    allowed = ERROR_FACTOR * float((theirs - truth).abs().max()) + ULPS * torch.finfo(wanted.dtype).eps * largest
    errors = (mine - truth).abs()
    bad = errors > max(allowed, torch.finfo(wanted.dtype).tiny)
    if bool(bad.any()) and float(errors.max()) <= MOST_MOVED * allowed:
        alike = [one.double() for one in shaken() if one.shape == reference.shape]
        moved = [float((one - reference.double())[usual].abs().max()) for one in alike]
        allowed = max([allowed, *(ERROR_FACTOR * one for one in moved)])
        bad = errors > allowed
    if not bool(bad.any()):
        return None
    return "beyond-budget", f"{_first_of(got, wanted, bad)}; {allowed:.3g} is allowed"


def _elements(shaken: Callable[[], Sequence[Any]], place: int) -> list[Any]:
    return [one[place] for one in shaken()]


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose bits can be examined: that of one element or none may have any stride."""
    if tensor.numel() > 1:
        return tensor.contiguous()
    return tensor.reshape(-1).as_strided((tensor.numel(),), (1,)).view(tensor.shape)


def _equal(got: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether a fast look already shows equality; it takes zeros of both signs for equal, so these are examined."""
    if not torch.equal(got, wanted):
        return False
    if not wanted.is_floating_point() or not wanted.numel():
        return True
    return torch.equal(got.signbit(), wanted.signbit())


def _difference_of_lists(got: Any, wanted: Any, is_signed_zero_free: bool) -> tuple[str, str] | None:
    kind = difference_of_types(got, wanted)
    if kind is not None:
        return kind
    found = (
        difference(one, other, is_signed_zero_free=is_signed_zero_free) for one, other in zip(got, wanted, strict=True)
    )
    return next((each for each in found if each is not None), None)


def _difference_of_numbers(got: Any, wanted: Any) -> tuple[str, str] | None:
    kind = difference_of_types(got, wanted)
    if kind is not None:
        return kind
    is_nan = isinstance(wanted, float) and isinstance(got, float) and math.isnan(wanted) and math.isnan(got)
    return None if is_nan or got == wanted else ("value", f"{got!r} instead of {wanted!r}")


def _kind_of_values(got: torch.Tensor, wanted: torch.Tensor, bad: torch.Tensor) -> str:
    if not wanted.is_floating_point():
        return "value"
    mine, theirs = got[bad].double(), wanted[bad].double()
    if bool((mine.isnan() != theirs.isnan()).any()):
        return "nan-position"
    if bool((mine.isinf() != theirs.isinf()).any()):
        return "infinity"
    if not bool((mine != theirs).any()):
        return "signed-zero"
    scale = max(float(theirs.abs().max()), torch.finfo(wanted.dtype).tiny)
    ratio = float((mine - theirs).abs().max()) / scale
    return "last-bits" if ratio < 64 * torch.finfo(wanted.dtype).eps else "value"


def _first_of(got: torch.Tensor, wanted: torch.Tensor, bad: torch.Tensor) -> str:
    place = tuple(int(index) for index in bad.nonzero()[0])
    count = int(bad.sum())
    others = f" and {count - 1} more of {bad.numel()}" if count > 1 else ""
    return f"{got[place].item()!r} instead of {wanted[place].item()!r} at {list(place)}{others}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _brief(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {value.dtype} {list(value.shape)}"
    if isinstance(value, list | tuple):
        return f"{len(value)} results"
    return repr(value)
