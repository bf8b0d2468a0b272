"""How far a value is from the one that it should be, and whether that is too far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from exirkit.fuzz.examination import difference_of_types
from exirkit.ir import pytree

_RTOL = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""Relative tolerances by dtype; integers and booleans are compared exactly."""

_ATOL = 1e-6

GapKind = Literal["equal", "within", "value", "nan", "infinity", "type"]


@dataclass(frozen=True)
class Tolerances:
    """How far a value may be off: `atol + rtol * (largest magnitude of the expected tensor)`.

    Attributes:
        rtol: Relative to the largest finite magnitude of the expected tensor; by default 1e-9 for float64, 1e-4 for
            float32, 1e-2 for float16, 5e-2 for bfloat16 and narrower floats. Not for integers and booleans.
        atol: Absolute, likewise; 1e-6 by default.
    """

    rtol: float | None = None
    atol: float | None = None

    def allowed(self, dtype: torch.dtype, magnitude: float) -> float:
        """Return the largest difference that elements of a dtype may have.

        Args:
            dtype: Of the tensor.
            magnitude: The largest finite magnitude of the expected tensor.
        """
        if not (dtype.is_floating_point or dtype.is_complex):
            return self.atol or 0.0
        rtol = _RTOL.get(dtype, 5e-2 if dtype.itemsize < 4 else 1e-4) if self.rtol is None else self.rtol
        return (_ATOL if self.atol is None else self.atol) + rtol * magnitude


@dataclass(frozen=True)
class ValueGap:
    """The difference of a value from the expected one.

    Attributes:
        kind: `equal`: bit for bit, or both NaN; `within` the tolerances; what differs otherwise.
        absolute: Largest absolute difference of finite elements.
        relative: That, divided by the largest finite magnitude of the expected tensor.
        allowed: What `absolute` may be.
        text: Where it is largest and what is there, or how the types differ.
    """

    kind: GapKind
    absolute: float = 0.0
    relative: float = 0.0
    allowed: float = 0.0
    text: str = ""

    @property
    def is_bad(self) -> bool:
        """Whether it is more than the tolerances allow."""
        return self.kind not in ("equal", "within")


def gap_of(got: Any, expected: Any, tolerances: Tolerances) -> ValueGap:
    """Compare a value with the expected one; of lists, the worst difference counts.

    Args:
        got: A tensor, a number, None, or a list of these.
        expected: Likewise.
        tolerances: What is near enough.
    """
    kind = difference_of_types(got, expected)
    if kind is not None:
        return ValueGap("type", text=kind[1])
    pairs = zip(_leaves(got), _leaves(expected), strict=True)
    found = [_gap_of_one(one, other, tolerances) for one, other in pairs]
    return max(found, key=_badness, default=ValueGap("equal"))


def _badness(gap: ValueGap) -> tuple[bool, float, float]:
    return gap.is_bad, gap.relative, gap.absolute


def _leaves(value: Any) -> list[Any]:
    return list(pytree.tree_leaves(value, is_leaf=lambda one: one is None))


def _gap_of_one(got: Any, expected: Any, tolerances: Tolerances) -> ValueGap:
    if isinstance(expected, torch.Tensor):
        return _gap_of_tensor(got.detach(), expected.detach(), tolerances)
    if isinstance(expected, bool | int | float) and isinstance(got, bool | int | float):
        wide = torch.float64 if isinstance(expected, float) else torch.int64
        return _gap_of_tensor(torch.tensor(got, dtype=wide), torch.tensor(expected, dtype=wide), tolerances)
    return ValueGap("equal") if got == expected else ValueGap("value", text=f"{got!r} instead of {expected!r}")


def _gap_of_tensor(got: torch.Tensor, expected: torch.Tensor, tolerances: Tolerances) -> ValueGap:
    if not expected.numel() or torch.equal(got, expected):
        return ValueGap("equal")
    dtype = expected.dtype
    wide = torch.complex128 if dtype.is_complex else torch.float64
    mine, theirs = got.to(wide), expected.to(wide)
    finite = torch.isfinite(mine) & torch.isfinite(theirs)
    odd = ~finite & ~((mine == theirs) | (mine.isnan() & theirs.isnan()))
    if bool(odd.any()):
        is_nan = bool((mine.isnan() != theirs.isnan())[odd].any())
        return ValueGap("nan" if is_nan else "infinity", float("inf"), float("inf"), 0.0, _shown(got, expected, odd))
    zero = torch.zeros((), dtype=torch.float64)
    # Differences of wide integers are exact where float64 is not; only their size is of interest.
    apart = torch.where(finite, (mine - theirs).abs(), zero)
    magnitude = float(torch.where(finite, theirs.abs(), zero).max())
    absolute = float(apart.max())
    allowed = tolerances.allowed(dtype, magnitude)
    if absolute == 0.0:
        # Integers beyond 2 ** 53 may differ although their float64 values do not.
        exact = dtype.is_floating_point or dtype.is_complex or bool((got == expected).all())
        return ValueGap("equal") if exact else ValueGap("value", text=_shown(got, expected, got != expected))
    relative = absolute / magnitude if magnitude else float("inf")
    text = _shown(got, expected, apart == absolute)
    return ValueGap("value" if absolute > allowed else "within", absolute, relative, allowed, text)


def _shown(got: torch.Tensor, expected: torch.Tensor, where: torch.Tensor) -> str:
    place = tuple(int(index) for index in where.nonzero()[0])
    return f"{_number(got[place])} instead of {_number(expected[place])} at {list(place)}"


def _number(element: torch.Tensor) -> str:
    number = element.item()
    return f"{number:.7g}" if isinstance(number, float | complex) else str(number)
