"""Kernels whose results on the official runtime are not those of eager torch, as that runtime computes them.

Lowering for the official runtime goes around them (`passes/legalize`). A file that still calls one the wrong way gives
here what it gives there, so that a call that was not replaced shows without that runtime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final

import torch

from exirkit.ir import parse_schema

from .arithmetic import arithmetic_kernels
from .kernel import Kernel, make_kernel
from .own import write_result


def deviating_kernels() -> Iterator[Kernel]:
    """Yield the kernels that this module defines."""
    for schema, call in _KERNELS.items():
        kernel = make_kernel(parse_schema(f"aten::{schema}{_OUT if ', *,' in schema else f', *{_OUT}'}"), call)
        assert kernel is not None, f"schema {schema} has a type without a slot"
        yield kernel


@cache
def deviating_operators() -> frozenset[str]:
    """Return the names of the operators of these kernels, without their overloads: `aten::var`."""
    return frozenset(one.name.partition(".")[0] for one in deviating_kernels())


def _is_integer(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and dtype is not torch.bool


def _remainder(self: torch.Tensor, other: Any, *, out: torch.Tensor) -> torch.Tensor:
    """Of integers with the sign of the dividend."""
    is_integer = _is_integer(torch.result_type(self, other))
    return write_result((torch.fmod if is_integer else torch.remainder)(self, other), out)


def _fmod(self: torch.Tensor, other: Any, *, out: torch.Tensor) -> torch.Tensor:
    """In double precision."""
    if torch.result_type(self, other) is not torch.int64:
        return write_result(torch.fmod(self, other), out)
    return write_result(torch.fmod(self.double(), _double(other)), out)


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, torch.Tensor) else float(value)


def _div_mode(self: torch.Tensor, other: Any, rounding_mode: str | None, *, out: torch.Tensor) -> torch.Tensor:
    """Round truncated quotients of integers to doubles; rounded down, what is divided by zero is infinite."""
    dtype = torch.result_type(self, other)
    made = torch.div(self, other, rounding_mode=rounding_mode)
    if rounding_mode == "trunc" and dtype is torch.int64:
        return write_result(made.double(), out)
    if rounding_mode == "floor" and dtype.is_floating_point:
        sign = torch.where(self.isnan(), 1.0, self.to(torch.float32))
        infinite = torch.copysign(torch.tensor(math.inf), sign).to(dtype)
        made = torch.where(torch.as_tensor(other) == 0, infinite, made)
    return write_result(made, out)


def _sum(
    self: torch.Tensor, dim: list[int] | None, keepdim: bool = False, dtype: Any = None, *, out: torch.Tensor
) -> torch.Tensor:
    """Add integers along one dim in single precision, if they keep their dtype."""
    dims = dim or range(self.ndim)
    if _is_integer(self.dtype) and self.dtype is out.dtype and len(dims) == 1:
        return write_result(torch.sum(self.float(), list(dims), keepdim), out)
    return torch.sum(self, dim, keepdim, dtype=out.dtype, out=out)


def _rounded(round_: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def call(self: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        return write_result(self.float() if _is_integer(self.dtype) else round_(self), out)

    return call


def _pow(self: Any, exponent: Any, *, out: torch.Tensor) -> torch.Tensor:
    """Of integers in double precision."""
    if not _is_integer(torch.result_type(self, exponent)):
        return write_result(torch.pow(self, exponent), out)
    return write_result(torch.pow(_double(self), _double(exponent)), out)


def _add(self: torch.Tensor, other: torch.Tensor, alpha: Any = 1, *, out: torch.Tensor) -> torch.Tensor:
    """Multiply a single element, even if it is the first summand."""
    if self.numel() == 1 and other.numel() != 1:
        self, other = other, self
    return _add_multiple()(self, other, alpha, out=out)


@cache
def _add_multiple() -> Callable[..., torch.Tensor]:
    found: Callable[..., torch.Tensor] = next(one.call for one in arithmetic_kernels() if one.name == "aten::add.out")
    return found


def _sign(self: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """NaN stays NaN."""
    made = torch.sign(self)
    return write_result(torch.where(self.isnan(), self, made) if self.is_floating_point() else made, out)


def _addmm(
    self: torch.Tensor, mat1: torch.Tensor, mat2: torch.Tensor, beta: Any = 1, alpha: Any = 1, *, out: torch.Tensor
) -> torch.Tensor:
    """Multiply the addend by `beta`, even if that is zero."""
    if beta == 0 and self.is_floating_point():
        return write_result(self * 0 + torch.mm(mat1, mat2) * alpha, out)
    return torch.addmm(self, mat1, mat2, beta=beta, alpha=alpha, out=out)


def _var(
    self: torch.Tensor, dim: list[int] | None = None, correction: Any = None, keepdim: bool = False, *, out: Any
) -> torch.Tensor:
    """NaN of too few elements."""
    made = torch.var(self, dim, correction=correction, keepdim=keepdim)
    count = math.prod(self.shape[one] for one in (dim or range(self.ndim)))
    few = count <= (1 if correction is None else correction)
    return write_result(torch.full_like(made, math.nan) if few else made, out)


_OUT: Final = ", Tensor(a!) out) -> Tensor(a!)"
_KERNELS: Final[Mapping[str, Callable[..., Any]]] = {
    "remainder.Tensor_out(Tensor self, Tensor other": _remainder,
    "remainder.Scalar_out(Tensor self, Scalar other": _remainder,
    "fmod.Tensor_out(Tensor self, Tensor other": _fmod,
    "fmod.Scalar_out(Tensor self, Scalar other": _fmod,
    "div.out_mode(Tensor self, Tensor other, *, str? rounding_mode": _div_mode,
    "div.Scalar_mode_out(Tensor self, Scalar other, *, str? rounding_mode": _div_mode,
    "sum.IntList_out(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None": _sum,
    "floor.out(Tensor self": _rounded(torch.floor),
    "ceil.out(Tensor self": _rounded(torch.ceil),
    "trunc.out(Tensor self": _rounded(torch.trunc),
    "pow.Tensor_Tensor_out(Tensor self, Tensor exponent": _pow,
    "pow.Tensor_Scalar_out(Tensor self, Scalar exponent": _pow,
    "pow.Scalar_out(Scalar self, Tensor exponent": _pow,
    "add.out(Tensor self, Tensor other, *, Scalar alpha=1": _add,
    "sign.out(Tensor self": _sign,
    "addmm.out(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1": _addmm,
    "var.correction_out(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False": _var,
}
