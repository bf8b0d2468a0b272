"""Kernels of arithmetic that the official runtime computes otherwise than torch, bit for bit as it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import torch

from exirkit.ir import parse_schema

from .kernel import Kernel, make_kernel
from .own import write_result

_BY_RECIPROCAL: Final = (torch.float32, torch.float64)


def arithmetic_kernels() -> Iterator[Kernel]:
    """Yield the kernels that this module defines."""
    for schema, call in _KERNELS.items():
        kernel = make_kernel(parse_schema(f"aten::{schema}"), call)
        assert kernel is not None, f"schema {schema} has a type without a slot"
        yield kernel


def _div(self: torch.Tensor, other: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """Divide. One divisor for several values of its dtype is inverted once, unless it is of 16 bits."""
    is_one_divisor = other.numel() == 1 and self.numel() != 1
    if not is_one_divisor or self.dtype != other.dtype or not _inverts(self, out):
        return torch.div(self, other, out=out)
    return write_result(self * torch.reciprocal(other), out)


def _div_scalar(self: torch.Tensor, other: Any, *, out: torch.Tensor) -> torch.Tensor:
    """Divide by a number, which is inverted in the dtype of the values, unless that has 16 bits."""
    if not _inverts(self, out):
        return torch.div(self, other, out=out)
    return write_result(self * torch.reciprocal(torch.tensor(other, dtype=self.dtype)), out)


def _add(self: torch.Tensor, other: Any, alpha: Any = 1, *, out: torch.Tensor) -> torch.Tensor:
    """Add a multiple. The product is rounded before the sum, which torch rounds once; 16 bits are computed in 32."""
    common = torch.result_type(self, other)
    if alpha == 1 or not common.is_floating_point:
        return torch.add(self, other, alpha=alpha, out=out)
    wide = torch.float64 if common == torch.float64 else torch.float32
    if isinstance(other, torch.Tensor):
        multiple = other.to(common).to(wide) * alpha
    else:
        multiple = torch.tensor(other, dtype=wide) * alpha
    return write_result(self.to(common).to(wide) + multiple, out)


def _sub(self: torch.Tensor, other: Any, alpha: Any = 1, *, out: torch.Tensor) -> torch.Tensor:
    """Subtract a multiple, rounded as `_add` says."""
    if alpha == 1 or not torch.result_type(self, other).is_floating_point:
        return torch.sub(self, other, alpha=alpha, out=out)
    return _add(self, other, -alpha, out=out)


def _inverts(values: torch.Tensor, out: torch.Tensor) -> bool:
    return values.dtype == out.dtype and values.dtype in _BY_RECIPROCAL


_KERNELS: Final[Mapping[str, Callable[..., Any]]] = {
    "add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)": _add,
    "add.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out) -> Tensor(a!)": _add,
    "sub.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)": _sub,
    "sub.Scalar_out(Tensor self, Scalar other, Scalar alpha=1, *, Tensor(a!) out) -> Tensor(a!)": _sub,
    "div.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)": _div,
    "div.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)": _div_scalar,
}
