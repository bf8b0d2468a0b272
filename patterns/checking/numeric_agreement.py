"""Whether two results are equal under a rule's numeric contract, and what is different if not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from exirkit.patterns.books.model import Equivalence

# However much tolerance a rule declares: results that differ by this part of their size are not the same thing.
_NEVER_SAME = 0.2
_ROUNDINGS = 8
_LAST_BITS = 4
_AS_BAD = 8.0


def disagreement(
    expected: Sequence[Any],
    found: Sequence[Any],
    contract: Equivalence,
    precise: Sequence[Any] | None = None,
    shaken: Sequence[Any] | None = None,
) -> str | None:
    """Return the first difference between the results of a pattern and of its replacement, or None.

    Args:
        expected: Results of the pattern.
        found: Results of the replacement.
        contract: What counts as equal.
        precise: Results of the pattern in float64; being near those is as good, since the pattern rounds as well.
        shaken: Likewise, of values with other last bits: results cannot be more precise than the values.
    """
    if len(expected) != len(found):
        return f"{len(found)} results in place of {len(expected)}"
    for index, (one, other) in enumerate(zip(expected, found, strict=True)):
        exact = None if precise is None else precise[index]
        problem = _different(one, other, contract, exact, None if shaken is None else shaken[index])
        if problem is not None:
            return problem if len(expected) == 1 else f"result {index}: {problem}"
    return None


def _different(expected: Any, found: Any, contract: Equivalence, precise: Any, shaken: Any) -> str | None:
    if not isinstance(expected, torch.Tensor):
        return None if type(expected) is type(found) and expected == found else f"{found!r} in place of {expected!r}"
    if isinstance(found, int | float | bool):
        found = torch.tensor(found, dtype=expected.dtype)
    if not isinstance(found, torch.Tensor):
        return f"a {type(found).__name__} in place of a tensor"
    if expected.dtype != found.dtype:
        return f"dtype {_name(found.dtype)} in place of {_name(expected.dtype)}"
    if expected.shape != found.shape:
        return f"sizes {list(found.shape)} in place of {list(expected.shape)}"
    if contract.strides and _steps(expected) != _steps(found):
        return f"strides {list(found.stride())} in place of {list(expected.stride())}"
    if contract.rng == "any" or not expected.numel():
        return None
    return _different_values(expected.detach(), found.detach(), contract, precise, shaken)


def _steps(tensor: torch.Tensor) -> list[int]:
    """Return the strides that mean something: those of dims with more than one element."""
    return [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1 and tensor.numel()]


def _different_values(
    expected: torch.Tensor,
    found: torch.Tensor,
    contract: Equivalence,
    precise: torch.Tensor | None,
    shaken: torch.Tensor | None = None,
) -> str | None:
    if not expected.dtype.is_floating_point and not expected.dtype.is_complex:
        return _different_integers(expected, found, contract.lsb or 0)
    if expected.dtype.is_complex:
        return _different_values(torch.view_as_real(expected), torch.view_as_real(found), contract, None)
    wrong = _wrong(expected, found, contract)
    if precise is not None and bool(wrong.any()):
        # The replacement may round as badly as the pattern does, not worse.
        slack = _AS_BAD * max(_apart(expected, precise), 0.0 if shaken is None else _apart(shaken, precise))
        wrong &= _wrong(precise.to(expected.dtype), found, contract, slack)
        # What overflows in one order of computing and not in another is beyond any contract.
        wrong &= ~(precise.double().abs() >= torch.finfo(expected.dtype).max / 4) | torch.isinf(precise)
    if bool(wrong.any()):
        return _worst(expected, found, wrong)
    return None if contract.is_exact else _hidden(expected, found)


def _apart(one: torch.Tensor, precise: torch.Tensor) -> float:
    return float(torch.nan_to_num((one.double() - precise.double()).abs(), nan=0.0, posinf=0.0).max())


def _wrong(expected: torch.Tensor, found: torch.Tensor, contract: Equivalence, slack: float = 0.0) -> torch.Tensor:
    """Return where values differ by more than the contract allows, and `slack`."""
    same = (expected == found) | (torch.isnan(expected) & torch.isnan(found))
    if contract.lhs_nan == "any":
        same |= torch.isnan(expected)
    if contract.mode == "exact":
        return ~(same & ((torch.signbit(expected) == torch.signbit(found)) | torch.isnan(expected)))
    one, other = expected.double(), found.double()
    rtol, atol = tolerance(contract, expected.dtype)
    eps = torch.finfo(expected.dtype).eps
    if contract.is_exact:
        # Kernels round their last bits differently for other layouts of the same values.
        bound = _LAST_BITS * eps * one.abs()
    else:
        finite = one[torch.isfinite(one)]
        scale = min(float(finite.abs().max()), 1e30) if finite.numel() else 0.0
        bound = max(rtol, _ROUNDINGS * eps) * one.abs() + max(atol, _ROUNDINGS * eps * scale) + slack
    near = torch.isfinite(one) & torch.isfinite(other) & ((one - other).abs() <= bound)
    return ~(same | near)


def _hidden(expected: torch.Tensor, found: torch.Tensor) -> str | None:
    """Return what differs although the contract allows it, because it allows anything."""
    one, other = expected.double(), found.double()
    finite = torch.isfinite(one) & torch.isfinite(other)
    if not bool(finite.any()):
        return None
    apart, size = float((one - other).abs()[finite].mean()), float(one[finite].abs().mean())
    rounding = 1e4 * torch.finfo(expected.dtype).eps * max(1.0, size)
    if apart > _NEVER_SAME * size and apart > rounding:
        return f"{_worst(expected, found, expected != found)}; the tolerance of the contract is as large as the values"
    return None


def tolerance(contract: Equivalence, dtype: torch.dtype) -> tuple[float, float]:
    """Return relative and absolute tolerance for a dtype."""
    return _of_dtype(contract.rtol, dtype), _of_dtype(contract.atol, dtype)


def _of_dtype(declared: Any, dtype: torch.dtype) -> float:
    if isinstance(declared, dict):
        return float(declared.get(_name(dtype), declared.get("default", 0.0)) or 0.0)
    return float(declared) if declared is not None else 0.0


def _different_integers(expected: torch.Tensor, found: torch.Tensor, steps: int) -> str | None:
    if expected.dtype == torch.bool or steps == 0:
        wrong = expected != found
    else:
        wrong = (expected.to(torch.int64) - found.to(torch.int64)).abs() > steps
    return _worst(expected, found, wrong) if bool(wrong.any()) else None


def _worst(expected: torch.Tensor, found: torch.Tensor, wrong: torch.Tensor) -> str:
    count = int(wrong.sum())
    one, other = expected.double(), found.double()
    apart = torch.nan_to_num((one - other).abs(), nan=float("inf"))
    flat = torch.where(wrong, apart, torch.full_like(apart, -1.0)).flatten()
    at = int(flat.argmax())
    values = f"{found.flatten()[at].item()!r} in place of {expected.flatten()[at].item()!r}"
    return f"{count} of {expected.numel()} values differ: {values}"


_SHORT = {
    torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64", torch.int8: "i8",
    torch.uint8: "u8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.bool: "bool",
}  # fmt: skip


def _name(dtype: torch.dtype) -> str:
    return _SHORT.get(dtype, str(dtype).removeprefix("torch."))
