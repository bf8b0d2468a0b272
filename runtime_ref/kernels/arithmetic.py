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


def _inverts(values: torch.Tensor, out: torch.Tensor) -> bool:
    return values.dtype == out.dtype and values.dtype in _BY_RECIPROCAL


_KERNELS: Final[Mapping[str, Callable[..., Any]]] = {
    "div.out(Tensor self, Tensor other, *, Tensor(a!) out) -> Tensor(a!)": _div,
    "div.Scalar_out(Tensor self, Scalar other, *, Tensor(a!) out) -> Tensor(a!)": _div_scalar,
}
