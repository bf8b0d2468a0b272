"""Meanings of functions that are defined by others: hyperbolic and inverse ones, logarithms, rounded quotients."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import z3

from exirkit.patterns.proving.elements import BITS, FLOATS, Elements
from exirkit.patterns.proving.meanings import pointwise, promoted
from exirkit.patterns.proving.paths import Path, UnsupportedError
from exirkit.patterns.proving.pointwise import (
    clamped,
    composed,
    div,
    floor_of,
    named,
    real_exp,
    real_log,
    real_sqrt,
    real_unknown,
    truncated,
    unary,
)

_CONSTANTS = "numbers such as pi and log(2) are those that are nearest to them among doubles"


def _constant(elements: Elements, value: float) -> Any:
    elements.axioms.add(_CONSTANTS)
    return elements.constant(value, torch.float64)


def _magnitude(a: Any) -> Any:
    return z3.If(a >= 0, a, -a)


def _sign(a: Any) -> Any:
    return z3.If(a > 0, z3.RealVal(1), z3.If(a < 0, z3.RealVal(-1), z3.RealVal(0)))


def _bits_of_sign(elements: Elements, a: Any, dtype: torch.dtype) -> Any:
    one, minus, zero = (elements.constant(value, dtype) for value in (1.0, -1.0, 0.0))
    return z3.If(z3.fpGT(a, zero), one, z3.If(z3.fpLT(a, zero), minus, zero))


unary("aten.sin.default", reals=lambda ev, a: real_unknown("sin")(ev, a), to_float=True)
unary("aten.cos.default", reals=lambda ev, a: real_unknown("cos")(ev, a), to_float=True)
unary("aten.tan.default", reals=lambda ev, a: real_unknown("sin")(ev, a) / real_unknown("cos")(ev, a), to_float=True)
unary("aten.asin.default", reals=lambda ev, a: real_unknown("asin")(ev, a), to_float=True)
unary(
    "aten.acos.default",
    reals=lambda ev, a: _constant(ev, math.pi / 2) - real_unknown("asin")(ev, a),
    to_float=True,
)
unary("aten.sinh.default", reals=lambda ev, a: (real_exp(ev, a) - real_exp(ev, z3.simplify(-a))) / 2, to_float=True)
unary("aten.cosh.default", reals=lambda ev, a: (real_exp(ev, a) + real_exp(ev, z3.simplify(-a))) / 2, to_float=True)
unary(
    "aten.asinh.default",
    reals=lambda ev, a: _sign(a) * real_log(ev, _magnitude(a) + real_sqrt(ev, _magnitude(a) * _magnitude(a) + 1)),
    to_float=True,
)
unary("aten.acosh.default", reals=lambda ev, a: real_log(ev, a + real_sqrt(ev, a * a - 1)), to_float=True)
unary("aten.atanh.default", reals=lambda ev, a: real_log(ev, (1 + a) / (1 - a)) / 2, to_float=True)
unary("aten.log2.default", reals=lambda ev, a: real_log(ev, a) / _constant(ev, math.log(2)), to_float=True)
unary("aten.log10.default", reals=lambda ev, a: real_log(ev, a) / _constant(ev, math.log(10)), to_float=True)
unary(
    "aten.sign.default",
    bits=_bits_of_sign,
    reals=lambda ev, a: _sign(a),
    integers=lambda ev, a, d: (
        z3.If(
            ev.less(ev.constant(0, d), a, d),
            ev.constant(1, d),
            z3.If(ev.less(a, ev.constant(0, d), d), ~ev.constant(0, d), a),
        )
        if d in BITS
        else a
    ),
)
composed("aten.celu.default", lambda ev, a, alpha: _elu_of(ev, a, alpha, a / alpha))
composed(
    "aten.selu.default",
    lambda ev, a: z3.If(
        a > 0,
        a * _constant(ev, 1.0507009873554805),
        (real_exp(ev, a) - 1) * _constant(ev, 1.6732632423543772) * _constant(ev, 1.0507009873554805),
    ),
)


def _elu_of(elements: Elements, a: Any, alpha: Any, inner: Any) -> Any:
    return z3.If(a > 0, a, (real_exp(elements, z3.simplify(inner)) - 1) * alpha)


def _logit(elements: Elements, a: Any, eps: Any) -> Any:
    within = a if eps is None else clamped(a, eps, 1 - eps)
    return real_log(elements, z3.simplify(within) / (1 - within))


composed("aten.logit.default", _logit)


@named("aten.threshold.default")
def threshold(path: Path, self: Any, threshold: Any, value: Any) -> Any:
    """A number in place of what is not above a limit."""
    dtype = self.dtype

    def compute(elements: Elements, a: Any) -> Any:
        limit, other = elements.constant(threshold, dtype), elements.constant(value, dtype)
        is_low = z3.Or(elements.less(a, limit, dtype), elements.equal(a, limit, dtype))
        return z3.If(is_low, other, a)

    return pointwise(path, [self], dtype, compute, within=dtype)


# Quotients that are rounded, and what they leave


def _floor_quotient(elements: Elements, a: Any, b: Any, dtype: torch.dtype) -> Any:
    if dtype in FLOATS:
        return floor_of(a / b) if elements.is_real else elements.function(f"floor_quotient_{dtype}", a.sort(), [a, b])
    return elements.function(f"floor_quotient_{dtype}", a.sort(), [a, b])


def _cut_quotient(elements: Elements, a: Any, b: Any, dtype: torch.dtype) -> Any:
    is_half = dtype in (torch.float16, torch.bfloat16) and not elements.is_real
    if dtype not in FLOATS or is_half:
        return elements.function(f"cut_quotient_{dtype}", a.sort(), [a, b])
    made = elements.arithmetic("div", a, b, dtype)
    if elements.is_real:
        return truncated(made)
    return z3.fpRoundToIntegral(z3.RTZ(), made) if elements.mode == "bits" else elements.function(
        f"aten.trunc.default_{dtype}", a.sort(), [made]
    )  # fmt: skip


def _rounded_quotient(path: Path, self: Any, other: Any, mode: str) -> Any:
    dtype = promoted(self, other)
    if dtype == torch.bool or dtype.is_complex:
        raise UnsupportedError(f"a rounded quotient of {dtype}")
    compute = _floor_quotient if mode == "floor" else _cut_quotient
    return pointwise(path, [self, other], dtype, lambda ev, a, b: compute(ev, a, b, dtype), within=dtype)


@named("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_with_mode(path: Path, self: Any, other: Any, rounding_mode: Any = None) -> Any:
    """Quotient, rounded down, cut off, or as it is."""
    if rounding_mode is None:
        return div(path, self, other)
    return _rounded_quotient(path, self, other, rounding_mode)


@named("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(path: Path, self: Any, other: Any) -> Any:
    """Quotient, rounded down."""
    return _rounded_quotient(path, self, other, "floor")


@named("aten.remainder.Tensor", "aten.remainder.Scalar")
def remainder(path: Path, self: Any, other: Any) -> Any:
    """What is left when the divisor has been taken off as often as it goes, which is not what floats compute."""
    dtype = promoted(self, other)
    if dtype == torch.bool or dtype.is_complex:
        raise UnsupportedError(f"a remainder of {dtype}")

    def compute(elements: Elements, a: Any, b: Any) -> Any:
        if dtype in FLOATS and not elements.is_real:
            return elements.function(f"remainder_{dtype}", a.sort(), [a, b])
        return a - _floor_quotient(elements, a, b, dtype) * b

    return pointwise(path, [self, other], dtype, compute, within=dtype)


# Bits of integers


def _bitwise(name: str, of_truths: Callable[[Any, Any], Any], of_bits: Callable[[Any, Any], Any]) -> None:
    @named(f"aten.bitwise_{name}.Tensor", f"aten.bitwise_{name}.Scalar")
    def run(path: Path, self: Any, other: Any) -> Any:
        dtype = promoted(self, other)
        if dtype not in BITS and dtype != torch.bool:
            raise UnsupportedError(f"bits of {dtype}")
        compute = of_truths if dtype == torch.bool else of_bits
        return pointwise(path, [self, other], dtype, lambda ev, a, b: compute(a, b), within=dtype)


_bitwise("and", z3.And, lambda a, b: a & b)
_bitwise("or", z3.Or, lambda a, b: a | b)
_bitwise("xor", z3.Xor, lambda a, b: a ^ b)


def _shift(name: str) -> None:
    @named(f"aten.bitwise_{name}_shift.Tensor")
    def run(path: Path, self: Any, other: Any) -> Any:
        dtype = promoted(self, other)
        if dtype not in BITS:
            raise UnsupportedError(f"bits of {dtype}")

        def compute(elements: Elements, a: Any, b: Any) -> Any:
            # What is shifted by less than all bits; of other shifts nothing is known.
            made = a << b if name == "left" else a >> b if dtype.is_signed else z3.LShR(a, b)
            inside = z3.And(z3.Not(elements.less(b, elements.constant(0, dtype), dtype)),
                            elements.less(b, elements.constant(BITS[dtype] - 1, dtype), dtype))  # fmt: skip
            return z3.If(inside, made, elements.function(f"{name}_shift_{dtype}", a.sort(), [a, b]))

        return pointwise(path, [self, other], dtype, compute, within=dtype)


_shift("left")
_shift("right")
