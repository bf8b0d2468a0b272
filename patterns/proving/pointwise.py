"""Meanings of operators of single values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import z3

from exirkit.patterns.proving.elements import BITS, FLOATS, Elements, Scalar
from exirkit.patterns.proving.meanings import MEANINGS, POINTWISE, meaning, pointwise, promoted, stand_in
from exirkit.patterns.proving.paths import Path, UnsupportedError, integer
from exirkit.patterns.proving.real_terms import exponential, logarithm
from exirkit.patterns.proving.tensors import SymbolicTensor

_HALVES = (torch.float16, torch.bfloat16)
_EVEN = z3.RNE()


def named(*names: str) -> Callable[[Any], Any]:
    """Register a meaning of pointwise operators."""
    POINTWISE.update(names)
    return meaning(*names)


def _is_number(value: Any) -> bool:
    return not isinstance(value, SymbolicTensor)


def _binary(name: str, path: Path, one: Any, other: Any) -> Any:
    """Return a sum, difference, product or quotient, in the dtype that torch computes in."""
    dtype = promoted(one, other)
    if name == "div" and not dtype.is_floating_point:
        dtype = torch.float32
    if dtype.is_complex:
        raise UnsupportedError("complex elements")
    # With a number, half floats are computed in float32 and rounded once; elsewhere that makes no difference.
    wide = dtype in _HALVES and (_is_number(one) or _is_number(other))
    within = torch.float32 if wide else dtype

    def compute(elements: Elements, a: Any, b: Any) -> Any:
        return elements.cast(elements.arithmetic(name, a, b, within), within, dtype)

    return pointwise(path, [one, other], dtype, compute, within=within)


def _is_one(value: Any) -> bool:
    return isinstance(value, int | float) and value == 1


@named("aten.add.Tensor", "aten.add.Scalar")
def add(path: Path, self: Any, other: Any, alpha: Any = 1) -> Any:
    """Sum, with a factor on the second operand."""
    return _scaled("add", path, self, other, alpha)


@named("aten.sub.Tensor", "aten.sub.Scalar")
def sub(path: Path, self: Any, other: Any, alpha: Any = 1) -> Any:
    """Difference, with a factor on the second operand."""
    return _scaled("sub", path, self, other, alpha)


@named("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(path: Path, self: Any, other: Any, alpha: Any = 1) -> Any:
    """Difference the other way round."""
    return _scaled("sub", path, other, self, alpha)


def _scaled(name: str, path: Path, one: Any, other: Any, alpha: Any) -> Any:
    if _is_one(alpha):
        return _binary(name, path, one, other)
    dtype = promoted(one, other)

    def compute(elements: Elements, a: Any, b: Any) -> Any:
        factor = elements.constant(alpha, dtype)
        if elements.is_real or dtype in BITS:
            return elements.arithmetic(name, a, elements.arithmetic("mul", b, factor, dtype), dtype)
        return elements.function(f"{name}_scaled_{dtype}", elements.sort(dtype), [a, b, factor])

    return pointwise(path, [one, other], dtype, compute, within=dtype)


@named("aten.mul.Tensor", "aten.mul.Scalar")
def mul(path: Path, self: Any, other: Any) -> Any:
    """Product."""
    return _binary("mul", path, self, other)


@named("aten.div.Tensor", "aten.div.Scalar")
def div(path: Path, self: Any, other: Any) -> Any:
    """Quotient."""
    return _binary("div", path, self, other)


def unary(*names: str, bits: Any = None, reals: Any = None, to_float: bool = False, integers: Any = None) -> None:
    """Register an operator of one value: what it computes of floats, of real numbers, and of integers."""

    def run(path: Path, self: Any, **rest: Any) -> Any:
        dtype = self.dtype
        if to_float and not dtype.is_floating_point:
            dtype = torch.get_default_dtype()
        if dtype.is_complex:
            raise UnsupportedError("complex elements")

        def compute(elements: Elements, a: Any) -> Any:
            if dtype in FLOATS:
                if elements.is_real and reals is not None:
                    return reals(elements, a)
                if elements.mode == "bits" and bits is not None:
                    return bits(elements, a, dtype)
            elif integers is not None:
                return integers(elements, a, dtype)
            return elements.function(f"{names[0]}_{dtype}", elements.sort(dtype), [a])

        return pointwise(path, [self], dtype, compute, within=dtype)

    POINTWISE.update(names)
    for name in names:
        MEANINGS[name] = run


def _nonnegative(name: str) -> Callable[[Elements, Any, torch.dtype], Any]:
    def compute(elements: Elements, a: Any, dtype: torch.dtype) -> Any:
        made = elements.function(f"{name}_{dtype}", elements.sort(dtype), [a])
        zero = elements.constant(0.0, dtype)
        elements.axioms.add(f"{name} is not negative, and NaN of NaN only")
        elements.facts.append(
            z3.If(z3.fpIsNaN(a), z3.fpIsNaN(made), z3.And(z3.fpGEQ(made, zero), z3.Not(z3.fpIsNegative(made))))
        )
        return made

    return compute


def _real_function(name: str, *laws: tuple[str, Callable[[Any, Any], Any]]) -> Callable[[Elements, Any], Any]:
    """Return a function of real numbers of which some laws are known."""

    def compute(elements: Elements, a: Any) -> Any:
        made = elements.function(f"{name}_real", z3.RealSort(), [a])
        for text, law in laws:
            elements.axioms.add(text)
            elements.facts.append(law(a, made))
        return made

    return compute


def real_unknown(name: str) -> Callable[[Elements, Any], Any]:
    """Return a function of real numbers of which nothing is known."""
    return _real_function(name)


_plain_exp = _real_function(
    "exp",
    ("exp(x) > 0", lambda a, made: made > 0),
    ("exp(0) = 1", lambda a, made: z3.Implies(a == 0, made == 1)),
)


def real_exp(elements: Elements, a: Any) -> Any:
    """Return an exponential of a real number."""
    if not elements.is_linear:
        return _plain_exp(elements, a)
    elements.axioms.add("exp(x + y) = exp(x) * exp(y)")
    return exponential(a, lambda one: _plain_exp(elements, one))


real_sqrt = _real_function(
    "sqrt",
    (
        "sqrt(x) ** 2 = x and sqrt(x) >= 0 for x >= 0",
        lambda a, made: z3.Implies(a >= 0, z3.And(made >= 0, made * made == a)),
    ),
)
real_tanh = _real_function("tanh", ("-1 < tanh(x) < 1", lambda a, made: z3.And(made > -1, made < 1)))
real_erf = _real_function("erf")
_plain_log = _real_function("log")


def real_log(elements: Elements, a: Any) -> Any:
    """Return a logarithm of a real number."""
    if not elements.is_linear:
        return _plain_log(elements, a)
    elements.axioms.add("log(exp(x) * y) = x + log(y)")
    return logarithm(a, lambda one: _plain_log(elements, one), "exp_real")


def real_sigmoid(elements: Elements, a: Any) -> Any:
    """Return the sigmoid of a real number."""
    return 1 / (1 + real_exp(elements, z3.simplify(-a)))


def clamped(a: Any, low: Any, high: Any) -> Any:
    """Return a real number within limits."""
    low_done = a if low is None else z3.If(a < low, low, a)
    return low_done if high is None else z3.If(low_done > high, high, low_done)


def _tail(mode: Any) -> Callable[[Elements, Any, torch.dtype], Any]:
    return lambda elements, a, dtype: z3.fpRoundToIntegral(mode, a)


unary("aten.neg.default", bits=lambda ev, a, d: z3.fpNeg(a), reals=lambda ev, a: -a, integers=lambda ev, a, d: -a)
unary(
    "aten.abs.default",
    bits=lambda ev, a, d: z3.fpAbs(a),
    reals=lambda ev, a: z3.If(a >= 0, a, -a),
    integers=lambda ev, a, d: a if d in (torch.uint8, torch.bool) else z3.If(a < 0, -a, a),
)
unary(
    "aten.relu.default",
    bits=lambda ev, a, d: z3.If(z3.fpLT(a, ev.constant(0.0, d)), ev.constant(0.0, d), a),
    reals=lambda ev, a: z3.If(a > 0, a, 0),
    integers=lambda ev, a, d: a if d == torch.uint8 else z3.If(a < 0, ev.constant(0, d), a),
)
unary("aten.exp.default", bits=_nonnegative("exp"), reals=lambda ev, a: real_exp(ev, a), to_float=True)
unary("aten.sigmoid.default", bits=_nonnegative("sigmoid"), reals=real_sigmoid, to_float=True)
unary("aten.tanh.default", reals=lambda ev, a: real_tanh(ev, a), to_float=True)
unary("aten.erf.default", reals=lambda ev, a: real_erf(ev, a), to_float=True)
unary("aten.log.default", reals=lambda ev, a: real_log(ev, a), to_float=True)
unary("aten.log1p.default", reals=lambda ev, a: real_log(ev, z3.simplify(1 + a)), to_float=True)
unary("aten.expm1.default", reals=lambda ev, a: real_exp(ev, a) - 1, to_float=True)
unary("aten.sqrt.default", reals=lambda ev, a: real_sqrt(ev, a), to_float=True)
unary("aten.rsqrt.default", reals=lambda ev, a: 1 / real_sqrt(ev, a), to_float=True)
unary(
    "aten.reciprocal.default",
    bits=lambda ev, a, d: z3.fpDiv(_EVEN, ev.constant(1.0, d), a),
    reals=lambda ev, a: 1 / a,
    to_float=True,
)
unary(
    "aten.square.default",
    bits=lambda ev, a, d: z3.fpMul(_EVEN, a, a),
    reals=lambda ev, a: a * a,
    integers=lambda ev, a, d: a * a,
)


def floor_of(a: Any) -> Any:
    """Return the largest whole number that is not above a real one."""
    return z3.ToReal(z3.ToInt(a))


def truncated(a: Any) -> Any:
    """Return a real number without what is behind its point."""
    return z3.If(a >= 0, floor_of(a), -floor_of(-a))


def _even(a: Any) -> Any:
    low = z3.ToInt(a)
    rest = a - z3.ToReal(low)
    is_up = z3.Or(rest > z3.Q(1, 2), z3.And(rest == z3.Q(1, 2), low % 2 == 1))
    return z3.ToReal(z3.If(is_up, low + 1, low))


unary("aten.floor.default", bits=_tail(z3.RTN()), reals=lambda ev, a: floor_of(a), integers=lambda ev, a, d: a)
unary("aten.ceil.default", bits=_tail(z3.RTP()), reals=lambda ev, a: -floor_of(-a), integers=lambda ev, a, d: a)
unary("aten.trunc.default", bits=_tail(z3.RTZ()), reals=lambda ev, a: truncated(a), integers=lambda ev, a, d: a)
unary("aten.round.default", bits=_tail(z3.RNE()), reals=lambda ev, a: _even(a), integers=lambda ev, a, d: a)
unary("aten.bitwise_not.default", integers=lambda ev, a, d: z3.Not(a) if d == torch.bool else ~a)
unary("aten.silu.default", reals=lambda ev, a: a * real_sigmoid(ev, a))
unary("aten.relu6.default", reals=lambda ev, a: clamped(a, z3.RealVal(0), z3.RealVal(6)))
unary("aten.hardsigmoid.default", reals=lambda ev, a: clamped(a + 3, z3.RealVal(0), z3.RealVal(6)) / 6)
unary("aten.hardswish.default", reals=lambda ev, a: a * clamped(a + 3, z3.RealVal(0), z3.RealVal(6)) / 6)


def _is_true(elements: Elements, a: Any, dtype: torch.dtype) -> Any:
    return elements.cast(a, dtype, torch.bool)


@named("aten.logical_not.default")
def logical_not(path: Path, self: Any) -> Any:
    """Whether an element is zero."""
    return pointwise(path, [self], torch.bool, lambda ev, a: z3.Not(_is_true(ev, a, self.dtype)))


def _logical(name: str, compute: Any) -> None:
    @named(name)
    def run(path: Path, self: Any, other: Any) -> Any:
        return pointwise(
            path,
            [self, other],
            torch.bool,
            lambda ev, a, b: compute(_is_true(ev, a, self.dtype), _is_true(ev, b, other.dtype)),
        )


_logical("aten.logical_and.default", z3.And)
_logical("aten.logical_or.default", z3.Or)
_logical("aten.logical_xor.default", z3.Xor)


def _comparison(name: str, compute: Callable[[Elements, Any, Any, torch.dtype], Any]) -> None:
    @named(f"aten.{name}.Tensor", f"aten.{name}.Scalar")
    def run(path: Path, self: Any, other: Any) -> Any:
        dtype = promoted(self, other)
        if isinstance(other, int | float | Scalar) and not isinstance(other, bool) and dtype in _HALVES:
            dtype = torch.float32
        return pointwise(path, [self, other], torch.bool, lambda ev, a, b: compute(ev, a, b, dtype), within=dtype)


def _at_most(elements: Elements, a: Any, b: Any, dtype: torch.dtype) -> Any:
    return z3.Or(elements.less(a, b, dtype), elements.equal(a, b, dtype))


_comparison("lt", lambda ev, a, b, d: ev.less(a, b, d))
_comparison("gt", lambda ev, a, b, d: ev.less(b, a, d))
_comparison("le", _at_most)
_comparison("ge", lambda ev, a, b, d: _at_most(ev, b, a, d))
_comparison("eq", lambda ev, a, b, d: ev.equal(a, b, d))
_comparison("ne", lambda ev, a, b, d: z3.Not(ev.equal(a, b, d)))


def _extremum(name: str, is_larger: bool) -> None:
    @named(name)
    def run(path: Path, self: Any, other: Any) -> Any:
        dtype = promoted(self, other)

        def compute(elements: Elements, a: Any, b: Any) -> Any:
            is_other = elements.less(a, b, dtype) if is_larger else elements.less(b, a, dtype)
            is_other = z3.Or(is_other, elements.is_nan(b, dtype))
            return z3.If(elements.is_nan(a, dtype), a, z3.If(is_other, b, a))

        return pointwise(path, [self, other], dtype, compute, within=dtype)


_extremum("aten.maximum.default", is_larger=True)
_extremum("aten.minimum.default", is_larger=False)


@named("aten.clamp.default")
def clamp(path: Path, self: Any, min: Any = None, max: Any = None) -> Any:
    """Values within limits."""
    dtype = self.dtype
    for end in (min, max):
        if end is not None:
            dtype = torch.result_type(torch.ones((1,) * (self.dim() > 0), dtype=dtype), stand_in(end))
    ends = [end for end in (min, max) if end is not None]

    def compute(elements: Elements, a: Any, *found: Any) -> Any:
        rest = list(found)
        result = a
        for end, is_low in ((min, True), (max, False)):
            if end is None:
                continue
            limit = rest.pop(0)
            is_beyond = elements.less(result, limit, dtype) if is_low else elements.less(limit, result, dtype)
            is_beyond = z3.Or(is_beyond, elements.is_nan(limit, dtype))
            result = z3.If(elements.is_nan(a, dtype), a, z3.If(is_beyond, limit, result))
        return result

    return pointwise(path, [self, *ends], dtype, compute, within=dtype)


@named("aten.hardtanh.default")
def hardtanh(path: Path, self: Any, min_val: Any = -1.0, max_val: Any = 1.0) -> Any:
    """Values within limits."""
    if not self.dtype.is_floating_point:
        raise UnsupportedError("hardtanh of integers")
    return clamp(path, self, min_val, max_val)


@named("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar")
def where(path: Path, condition: Any, self: Any, other: Any) -> Any:
    """A choice for each element."""
    if not any(isinstance(one, SymbolicTensor) for one in (self, other)):
        raise UnsupportedError("a choice between two numbers")
    dtype = promoted(self, other)
    operands = [condition, _cast_operand(path, self, dtype), _cast_operand(path, other, dtype)]
    return pointwise(path, operands, dtype, lambda ev, c, a, b: z3.If(_is_true(ev, c, condition.dtype), a, b))


def _cast_operand(path: Path, value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, SymbolicTensor):
        return to_dtype(path, value, dtype)
    return SymbolicTensor.make(path, [], dtype, lambda ev, index: ev.constant(value, dtype))


def to_dtype(path: Path, tensor: Any, dtype: torch.dtype | None) -> Any:
    """Return a tensor in a dtype."""
    if dtype is None or dtype == tensor.dtype:
        return tensor
    if dtype.is_complex or tensor.dtype.is_complex:
        raise UnsupportedError("complex elements")
    return pointwise(path, [tensor], dtype, lambda ev, a: ev.cast(a, tensor.dtype, dtype))


@named("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(path: Path, self: Any, mask: Any, value: Any) -> Any:
    """A number where a mask holds."""
    return where(path, mask, _cast_operand(path, value, self.dtype), self)


@meaning("aten.prelu.default")
def prelu(path: Path, self: Any, weight: Any) -> Any:
    """Negative elements times a factor, of which there may be one for each channel."""
    path.require(weight.dim() <= 1, "factors of one dim")
    is_single = not weight.dim() or path.decide(integer(weight.shape[0]) == 1)
    if not is_single:
        path.require(self.dim() >= 2, "a dim of channels")
        path.require(integer(weight.shape[0]) == integer(self.shape[1]), "a factor for each channel")

    def element(elements: Elements, index: Any) -> Any:
        a = self.at(elements, index)
        place = (z3.IntVal(0) if is_single else index[1],) if weight.dim() else ()
        scaled = elements.arithmetic("mul", weight.at(elements, place), a, self.dtype)
        return z3.If(elements.less(elements.constant(0, self.dtype), a, self.dtype), a, scaled)

    return SymbolicTensor.make(path, self.shape, self.dtype, element)


def _with_product(name: str) -> None:
    @named(f"aten.addc{name}.default")
    def run(path: Path, self: Any, tensor1: Any, tensor2: Any, value: Any = 1) -> Any:
        if self.dtype != tensor1.dtype or self.dtype != tensor2.dtype:
            raise UnsupportedError(f"addc{name} of different dtypes")
        dtype = self.dtype

        def compute(elements: Elements, *found: Any) -> Any:
            if not elements.is_real or dtype not in FLOATS:
                factor = elements.constant(value, torch.float64)
                return elements.function(f"addc{name}_{dtype}", elements.sort(dtype), [*found, factor])
            first, second, third = found
            made = elements.arithmetic(name, second, third, dtype)
            return first + made * elements.constant(value, dtype)

        return pointwise(path, [self, tensor1, tensor2], dtype, compute, within=dtype)


_with_product("mul")
_with_product("div")


@named("aten.pow.Tensor_Scalar")
def power(path: Path, self: Any, exponent: Any) -> Any:
    """A power with a number as exponent."""
    dtype = promoted(self, exponent)
    decided = next((one for one in (1, 2, 3, 0.5, -1, -0.5, 0) if bool(exponent == one)), None)

    def compute(elements: Elements, a: Any) -> Any:
        made = _power(elements, a, decided, dtype)
        if made is not None:
            return made
        raised = elements.constant(exponent, torch.float64)
        return elements.function(f"pow_{dtype}", elements.sort(dtype), [a, raised])

    return pointwise(path, [self], dtype, compute, within=dtype)


def _power(elements: Elements, a: Any, exponent: Any, dtype: torch.dtype) -> Any:
    if exponent == 1:
        return a
    if exponent in (2, 3):
        square = elements.arithmetic("mul", a, a, dtype)
        return square if exponent == 2 else elements.arithmetic("mul", square, a, dtype)
    if dtype not in FLOATS or elements.mode == "free" or exponent is None or exponent == 0:
        return None
    one = elements.constant(1.0, dtype)
    if exponent == -1:
        return elements.arithmetic("div", one, a, dtype)
    if exponent == 0.5:
        # Kernels of square roots do not always round to the nearest.
        return real_sqrt(elements, a) if elements.is_real else None
    return 1 / real_sqrt(elements, a) if elements.is_real else None


def composed(name: str, build: Callable[..., Any]) -> None:
    """Register an operator of floats by its formula over real numbers; bits of it are not known."""

    def run(path: Path, self: Any, **rest: Any) -> Any:
        dtype = self.dtype
        numbers = [one for one in rest.values() if isinstance(one, bool | int | float | Scalar)]
        words = "|".join(str(one) for one in rest.values() if isinstance(one, str))

        def compute(elements: Elements, a: Any) -> Any:
            if elements.is_real and dtype in FLOATS:
                given = {
                    key: elements.constant(one, dtype) if isinstance(one, int | float | Scalar) else one
                    for key, one in rest.items()
                }
                return build(elements, a, **given)
            terms = [elements.constant(one, torch.float64) for one in numbers]
            return elements.function(f"{name}|{words}_{dtype}", elements.sort(dtype), [a, *terms])

        return pointwise(path, [self], dtype, compute, within=dtype)

    POINTWISE.add(name)
    MEANINGS[name] = run


def _gelu(elements: Elements, a: Any, approximate: str) -> Any:
    if approximate == "tanh":
        inner = elements.constant(math.sqrt(2 / math.pi), torch.float64) * (
            a + elements.constant(0.044715, torch.float64) * a * a * a
        )
        return z3.Q(1, 2) * a * (1 + real_tanh(elements, z3.simplify(inner, som=True)))
    root = elements.constant(math.sqrt(0.5), torch.float64)
    return z3.Q(1, 2) * a * (1 + real_erf(elements, z3.simplify(a * root, som=True)))


composed("aten.gelu.default", _gelu)
composed("aten.leaky_relu.default", lambda ev, a, negative_slope: z3.If(a > 0, a, a * negative_slope))
composed("aten.mish.default", lambda ev, a: a * real_tanh(ev, real_log(ev, 1 + real_exp(ev, a))))


def _softplus(elements: Elements, a: Any, beta: Any, threshold: Any) -> Any:
    scaled = z3.simplify(a * beta)
    return z3.If(scaled > threshold, a, real_log(elements, 1 + real_exp(elements, scaled)) / beta)


def _elu(elements: Elements, a: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    return z3.If(a > 0, a * scale, (real_exp(elements, z3.simplify(a * input_scale)) - 1) * alpha * scale)


composed("aten.softplus.default", _softplus)
composed("aten.elu.default", _elu)
