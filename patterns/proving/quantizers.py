"""Meanings of quantizing and dequantizing: rounding is a function of which a few laws are known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import z3

from exirkit.patterns.proving.elements import BITS, FLOATS, Elements
from exirkit.patterns.proving.meanings import POINTWISE, meaning
from exirkit.patterns.proving.movement import normal_dim
from exirkit.patterns.proving.paths import Number, Path, UnsupportedError, integer, new_solver
from exirkit.patterns.proving.real_terms import quotient
from exirkit.patterns.proving.tensors import Index, SymbolicTensor

QUANTIZERS: set[str] = set()
"""Names of the operators: what they do of an element does not depend on where it is."""

_WIDE = 64
_MOST_STEPS = 1 << 40
_MOST_ZERO = 1 << 16
_LEAST_SCALE, _GREATEST_SCALE = 1e-30, 1e30
_EXACT = "what was dequantized from 16 bits or fewer, negated or added to its like, is rounded to what it stands for"
_ORDERED = "dequantizing with a positive scale keeps the order of integers, and the zero point is 0"
_MONOTONE = "rounding to a multiple of a positive scale is monotone, and 0 of 0"
_NEAREST = "rounding is monotone, and off by one half at most"
_LIMITED = "zero points are within the limits of the integers"


def _register(name: str, make: Callable[..., Any]) -> None:
    for overload in ("default", "tensor"):
        meaning(f"quantized_decomposed.{name}_per_tensor.{overload}")(make)
        QUANTIZERS.add(f"quantized_decomposed.{name}_per_tensor.{overload}")
    meaning(f"quantized_decomposed.{name}_per_channel.default")(make)
    QUANTIZERS.add(f"quantized_decomposed.{name}_per_channel.default")
    # With one scale for all elements, each is computed on its own.
    POINTWISE.add(f"quantized_decomposed.{name}_per_tensor.default")


def _axis(path: Path, input: Any, scale: Any, axis: Any) -> int | None:
    if axis is None:
        return None
    at = normal_dim(path, axis, input.dim())
    path.require(integer(scale.shape[0]) == integer(input.shape[at]), "a scale for each index")
    return at


def quantize(
    path: Path, input: Any, quant_min: Any, quant_max: Any, dtype: Any, scale: Any = None, zero_point: Any = None,
    scales: Any = None, zero_points: Any = None, axis: Any = None, **_: Any,
) -> Any:  # fmt: skip
    """Multiples of a scale, rounded and shifted by a zero point, within limits."""
    first, second = (scales, zero_points) if scale is None else (scale, zero_point)
    at = _axis(path, input, first, axis)
    if dtype not in BITS or input.dtype not in FLOATS:
        raise UnsupportedError(f"quantizing {input.dtype} to {dtype}")
    path.embeds_numbers = True

    def element(elements: Elements, index: Index) -> Any:
        a = input.at(elements, index)
        step = _scale(elements, first, index, at)
        zero = _zero(elements, second, index, at, dtype)
        low, high = elements.wide_integer(quant_min), elements.wide_integer(quant_max)
        exact = None
        if elements.is_real:
            steps = _nearest(elements, quotient(a, step))
        else:
            exact = _exact_steps(elements, a, step)
            steps = _steps(elements, a, step) if exact is None else exact
        made = steps + zero
        made = z3.If(made < low, low, made)
        made = z3.Extract(BITS[dtype] - 1, 0, z3.If(made > high, high, made))
        if elements.is_real or exact is not None:
            return made
        # As an integer a NaN may be anything, also beyond the limits.
        other = elements.function(f"quantized_nan_{dtype}", made.sort(), [a, step, zero, low, high])
        return z3.If(z3.fpIsNaN(a), other, made)

    return SymbolicTensor.make(path, input.shape, dtype, element)


def dequantize(
    path: Path, input: Any, quant_min: Any, quant_max: Any, dtype: Any, scale: Any = None, zero_point: Any = None,
    scales: Any = None, zero_points: Any = None, axis: Any = None, out_dtype: Any = None,
) -> Any:  # fmt: skip
    """The distance from the zero point, times a scale; limits are not looked into."""
    first, second = (scales, zero_points) if scale is None else (scale, zero_point)
    at = _axis(path, input, first, axis)
    target = out_dtype or torch.float32
    if input.dtype not in BITS:
        raise UnsupportedError(f"dequantizing {input.dtype}")
    path.embeds_numbers = True

    def element(elements: Elements, index: Index) -> Any:
        number = elements.widened_integer(input.at(elements, index), input.dtype)
        step = _scale(elements, first, index, at)
        zero = _zero(elements, second, index, at, input.dtype)
        if elements.is_real:
            return elements.real_of(number - zero, is_signed=True) * step
        made = elements.function(f"dequantized_{input.dtype}_{target}", elements.sort(target), [number, step, zero])
        if BITS[input.dtype] <= 16 and target == torch.float32:
            _order(elements, made, number, step, zero)
        return made

    return SymbolicTensor.make(path, input.shape, target, element)


_register("quantize", quantize)
_register("dequantize", dequantize)


def _scale(elements: Elements, value: Any, index: Index, at: int | None) -> Any:
    if isinstance(value, SymbolicTensor):
        inner = (index[at],) if at is not None and value.dim() else (z3.IntVal(0),) * value.dim()
        if value.dtype not in FLOATS:
            raise UnsupportedError("a scale that is an integer")
        return value.at(elements, inner)
    if hasattr(value, "term") and not isinstance(value, Number):
        return _representative(elements, value.term)
    if isinstance(value, float) and math.isfinite(value):
        return elements.constant(value, torch.float64)
    raise UnsupportedError("a scale that is not a float")


def _representative(elements: Elements, term: Any) -> Any:
    """Return a scale that was met before and surely is the same one, so that products with it are recognised."""
    for one in elements.scales:
        if one.eq(term) or (one.sort() == term.sort() and elements.path.holds(one == term)):
            return one
    elements.scales.append(term)
    return term


def _zero(elements: Elements, value: Any, index: Index, at: int | None, dtype: torch.dtype) -> Any:
    """Return a zero point with 64 bits; of a tensor is known that it is within the limits of the integers."""
    if value is None:
        return z3.BitVecVal(0, _WIDE)
    if not isinstance(value, SymbolicTensor):
        return elements.wide_integer(value)
    inner = (index[at],) if at is not None and value.dim() else (z3.IntVal(0),) * value.dim()
    found = value.at(elements, inner)
    if value.dtype in FLOATS:
        raise UnsupportedError("a zero point that is a float")
    found = elements.widened_integer(found, value.dtype)
    limits = torch.iinfo(dtype)
    elements.axioms.add(_LIMITED)
    elements.facts.append(z3.And(found >= limits.min, found <= limits.max))
    return found


def _positive(elements: Elements, step: Any) -> Any:
    if elements.is_real:
        return step > 0
    sort = step.sort()
    low, high = (z3.simplify(z3.fpFPToFP(z3.RNE(), z3.FPVal(one, z3.FPSort(11, 53)), sort))
                 for one in (_LEAST_SCALE, _GREATEST_SCALE))  # fmt: skip
    return z3.And(z3.fpGEQ(step, low), z3.fpLEQ(step, high))


def _order(elements: Elements, made: Any, number: Any, step: Any, zero: Any) -> None:
    """Record that dequantized integers are ordered as they are."""
    known = elements.dequantized
    if made.get_id() in known:
        return
    fits = z3.And(_positive(elements, step), zero >= -_MOST_ZERO, zero <= _MOST_ZERO)
    nothing = z3.FPVal(0.0, made.sort())
    elements.axioms.add(_ORDERED)
    elements.facts.append(
        z3.Implies(
            fits,
            z3.And(
                z3.Not(z3.fpIsNaN(made)), z3.Not(z3.fpIsInf(made)), (number == zero) == (made == nothing),
                (number > zero) == z3.fpGT(made, nothing), (number < zero) == z3.fpLT(made, nothing),
            ),
        )
    )  # fmt: skip
    for other, (number2, step2, zero2, _) in known.values():
        if other.sort() == made.sort() and step2.sort() == step.sort():
            same = z3.And(fits, step == step2, zero == zero2)
            order = z3.And((number < number2) == z3.fpLT(made, other), (number > number2) == z3.fpGT(made, other))
            elements.facts.append(z3.Implies(same, order))
    known[made.get_id()] = made, (number, step, zero, fits)


def _steps(elements: Elements, a: Any, step: Any) -> Any:
    """Return the integer that a float is rounded to in multiples of a scale."""
    made = elements.function("steps", z3.BitVecSort(_WIDE), [a, step])
    if made.get_id() in elements.steps:
        return made
    positive = _positive(elements, step)
    nothing = z3.FPVal(0.0, a.sort())
    facts = [
        made <= _MOST_STEPS, made >= -_MOST_STEPS,
        z3.Implies(z3.fpGEQ(a, nothing), made >= 0), z3.Implies(z3.fpLEQ(a, nothing), made <= 0),
    ]  # fmt: skip
    elements.axioms.add(_MONOTONE)
    for other, (a2, step2) in elements.steps.values():
        if a2.sort() == a.sort() and step2.sort() == step.sort():
            ordered = z3.And(z3.Implies(z3.fpLEQ(a, a2), made <= other), z3.Implies(z3.fpGEQ(a, a2), made >= other))
            facts.append(z3.Implies(step == step2, ordered))
    elements.facts.append(z3.Implies(positive, z3.And(*facts)))
    elements.steps[made.get_id()] = made, (a, step)
    return made


def _exact_steps(elements: Elements, a: Any, step: Any) -> Any:
    """Return the integer that a float is rounded to, where it is a multiple of the scale; None if it may not be."""
    multiple = _multiple(elements, a)
    if multiple is None:
        return None
    number, others = multiple
    if any(one.sort() != step.sort() for one, _ in others):
        return None
    solver = new_solver()
    solver.add(*elements.path.conditions, *elements.facts, *elements.inside)
    solver.add(z3.Not(z3.And(*(z3.And(one == step, fits) for one, fits in others))))
    if solver.check() != z3.unsat:
        return None
    elements.axioms.add(_EXACT)
    return number


def _multiple(elements: Elements, term: Any, depth: int = 0) -> tuple[Any, list[tuple[Any, Any]]] | None:
    """Return the integer whose multiple of a scale a float is, up to rounding, and the scales that have to be equal."""
    known = elements.dequantized.get(term.get_id())
    if known is not None:
        number, step, zero, fits = known[1]
        return number - zero, [(step, fits)]
    kind = term.decl().kind()
    if depth > 2 or kind not in _EXACTLY:
        return None
    parts = [_multiple(elements, one, depth + 1) for one in term.children() if z3.is_fp(one)]
    found = [one for one in parts if one is not None]
    if len(found) != len(parts):
        return None
    return _EXACTLY[kind](*(number for number, _ in found)), [one for _, scales in found for one in scales]


_EXACTLY: dict[int, Callable[..., Any]] = {
    z3.Z3_OP_FPA_NEG: lambda a: -a,
    z3.Z3_OP_FPA_ABS: lambda a: z3.If(a < 0, -a, a),
    z3.Z3_OP_FPA_ADD: lambda a, b: a + b,
    z3.Z3_OP_FPA_SUB: lambda a, b: a - b,
}


def _nearest(elements: Elements, a: Any) -> Any:
    """Return the integer that is nearest to a real number, with 64 bits; as torch rounds ties, or in another way."""
    whole = _whole(elements, a)
    if whole is not None:
        return whole
    made = elements.function("nearest", z3.BitVecSort(_WIDE), [a])
    if made.get_id() in elements.steps:
        return made
    elements.axioms.add(_NEAREST)
    value = z3.ToReal(z3.BV2Int(made, True))
    beyond = z3.RealVal(_MOST_STEPS)
    facts = [
        z3.Implies(z3.And(a <= beyond, a >= -beyond), z3.And(value - a <= z3.Q(1, 2), a - value <= z3.Q(1, 2))),
        z3.Implies(a > beyond, made == _MOST_STEPS), z3.Implies(a < -beyond, made == -_MOST_STEPS),
        made <= _MOST_STEPS, made >= -_MOST_STEPS, z3.Implies(a >= 0, made >= 0), z3.Implies(a <= 0, made <= 0),
    ]  # fmt: skip
    for other, (a2, _) in elements.steps.values():
        facts += [z3.Implies(a <= a2, made <= other), z3.Implies(a >= a2, made >= other)]
    elements.facts += facts
    elements.steps[made.get_id()] = made, (a, None)
    return made


def _whole(elements: Elements, term: Any) -> Any:
    """Return, with 64 bits, the integer that a real number is a sum or product of integers for; None if it is not."""
    if z3.is_rational_value(term):
        number = term.as_fraction()
        return z3.BitVecVal(number.numerator, _WIDE) if number.denominator == 1 else None
    if z3.is_app_of(term, z3.Z3_OP_TO_REAL):
        return _whole_of_integer(elements, term)
    if not (z3.is_add(term) or z3.is_mul(term)):
        return None
    parts = [_whole(elements, one) for one in term.children()]
    if any(one is None for one in parts):
        return None
    made = parts[0]
    for one in parts[1:]:
        made = made + one if z3.is_add(term) else made * one
    return made


def _whole_of_integer(elements: Elements, term: Any) -> Any:
    for bits, number, _ in elements.limits.values():
        if number.eq(term):
            return bits
    # The solver writes the number that bits with a sign stand for as a choice between two without one.
    inner = term.arg(0)
    candidates = [inner, *inner.children()]
    found = next((one.arg(0) for one in candidates if z3.is_app_of(one, z3.Z3_OP_BV2INT)), None)
    if found is None or found.size() > _WIDE:
        return None
    for is_signed, extend in ((True, z3.SignExt), (False, z3.ZeroExt)):
        if z3.simplify(z3.BV2Int(found, is_signed)).eq(z3.simplify(inner)):
            return extend(_WIDE - found.size(), found) if found.size() < _WIDE else found
    return None
