"""Elements as the solver sees them: bits of a dtype, or real numbers; and what operators of single values compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import torch
import z3

from exirkit.patterns.proving.paths import Number, Path, Truth, UnsupportedError, double_of, integer
from exirkit.patterns.proving.real_terms import inverse

FLOATS = {torch.float16: (5, 11), torch.bfloat16: (8, 8), torch.float32: (8, 24), torch.float64: (11, 53)}
BITS = {
    torch.int8: 8, torch.uint8: 8, torch.int16: 16, torch.uint16: 16, torch.int32: 32, torch.uint32: 32,
    torch.int64: 64, torch.uint64: 64,
}  # fmt: skip
_UNSIGNED = {torch.uint8, torch.uint16, torch.uint32, torch.uint64}
_EVEN = z3.RNE()
DOUBLE = z3.FPSort(11, 53)
_WIDE = 64
_LIMITS = [(-128, 127), (0, 255), (-(1 << 15), (1 << 15) - 1), (0, (1 << 16) - 1), (-(1 << 31), (1 << 31) - 1),
           (-(1 << 62), 1 << 62)]  # fmt: skip
"""Limits of integers, from the narrowest ones, within which their bits are ordered as they are."""


class Scalar:
    """A float of the rule that is a symbol, or computed from such: a double, or a real number.

    Args:
        path: Where decisions about it are made.
        term: For the solver.
    """

    stand_in = 1.5

    def __init__(self, path: Path, term: Any) -> None:
        self.path = path
        self.term = term
        path.has_floats = True

    __hash__ = object.__hash__

    @staticmethod
    def of(path: Path, value: Any) -> Scalar:
        """Return a number, or a size that is a symbol, as a float of the rule."""
        if isinstance(value, Number):
            return Scalar(path, z3.ToReal(value.term) if path.is_real else double_of(path, value))
        return Scalar(path, number_term(value, is_real=path.is_real))

    def computed(self, name: str) -> Scalar:
        """Return a function of it, about which little is known."""
        made = z3.Function(f"{name}_{'real' if self.is_real else 'double'}", self.term.sort(), self.term.sort())(
            self.term
        )
        if name == "sqrt" and self.is_real:
            self.path.assume(z3.Implies(self.term >= 0, z3.And(made >= 0, made * made == self.term)))
        elif name == "sqrt":
            self.path.assume(
                z3.Implies(z3.fpGT(self.term, float_value(0.0, DOUBLE)), z3.fpGT(made, float_value(0.0, DOUBLE)))
            )
        return Scalar(self.path, made)

    def __repr__(self) -> str:
        return str(self.term)

    def __float__(self) -> float:
        raise UnsupportedError("a function of a number that is a symbol")

    def __int__(self) -> int:
        raise UnsupportedError("an integer from a number that is a symbol")

    __index__ = __int__

    @property
    def is_real(self) -> bool:
        """Whether it is a real number, not a double."""
        return bool(z3.is_real(self.term))

    def __bool__(self) -> bool:
        return bool(self != 0)

    def _other(self, other: Any) -> Any:
        if isinstance(other, Scalar):
            return other.term
        if isinstance(other, Number):
            if self.is_real:
                return z3.ToReal(other.term)
            return double_of(self.path, other)
        return number_term(other, is_real=self.is_real) if isinstance(other, int | float) else None

    def _with(self, other: Any, exact: Any, rounded: Any, *, is_swapped: bool = False) -> Any:
        term = self._other(other)
        if term is None:
            return NotImplemented
        left, right = (term, self.term) if is_swapped else (self.term, term)
        return Scalar(self.path, exact(left, right) if self.is_real else rounded(_EVEN, left, right))

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a + b, z3.fpAdd)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b, z3.fpSub)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b, z3.fpSub, is_swapped=True)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a * b, z3.fpMul)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if other == 0:
            raise ZeroDivisionError("division by zero")
        return self._with(other, lambda a, b: a / b, z3.fpDiv)

    def __rtruediv__(self, other: Any) -> Any:
        if self == 0:
            raise ZeroDivisionError("division by zero")
        return self.into(other)

    def into(self, other: Any) -> Any:
        """Return another number divided by it, which is not zero."""
        return self._with(other, lambda a, b: a / b, z3.fpDiv, is_swapped=True)

    def __neg__(self) -> Any:
        return Scalar(self.path, -self.term)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        if self.is_real:
            return Scalar(self.path, z3.If(self.term >= 0, self.term, -self.term))
        return Scalar(self.path, z3.fpAbs(self.term))

    def _compared(self, other: Any, exact: Any, of_floats: Any, unlike: bool | None) -> Any:
        if isinstance(other, float) and self.is_real and not math.isfinite(other):
            # A real number is below infinity and above minus infinity.
            return bool(exact(0.0, other))
        term = self._other(other)
        if term is None:
            return NotImplemented if unlike is None else unlike
        return Truth(self.path, exact(self.term, term) if self.is_real else of_floats(self.term, term))

    def __eq__(self, other: object) -> Any:
        return self._compared(other, lambda a, b: a == b, z3.fpEQ, unlike=False)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, lambda a, b: a != b, lambda a, b: z3.Not(z3.fpEQ(a, b)), unlike=True)

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, lambda a, b: a < b, z3.fpLT, None)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, lambda a, b: a <= b, z3.fpLEQ, None)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, lambda a, b: a > b, z3.fpGT, None)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, lambda a, b: a >= b, z3.fpGEQ, None)


def number_term(value: float, *, is_real: bool) -> Any:
    """Return a number as a real one, or as a double.

    Raises:
        UnsupportedError: It is not finite, and there are real numbers only.
    """
    if is_real:
        if isinstance(value, float) and not math.isfinite(value):
            raise UnsupportedError("infinities and NaN among real numbers")
        fraction = Fraction(value)
        return z3.Q(fraction.numerator, fraction.denominator)
    return float_value(float(value), DOUBLE)


def float_value(value: float, sort: Any) -> Any:
    """Return a float as a constant of a sort, rounded to it."""
    if math.isnan(value):
        return z3.fpNaN(sort)
    if math.isinf(value):
        return z3.fpPlusInfinity(sort) if value > 0 else z3.fpMinusInfinity(sort)
    if value == 0:
        return z3.fpMinusZero(sort) if math.copysign(1.0, value) < 0 else z3.fpPlusZero(sort)
    made = z3.FPVal(value, DOUBLE)
    return made if sort == DOUBLE else z3.simplify(z3.fpFPToFP(_EVEN, made, sort))


class Elements:
    """How elements are computed.

    Args:
        path: The path that they are on.
        mode: `free`: functions about which nothing is known but that equal arguments give equal results; `bits`: as
            IEEE 754 and two's complement say; `reals`: floats are real numbers.
        is_linear: Sums of real numbers are linear: factors that do not depend on their indices are in front of them.

    Attributes:
        facts: What is known of elements that were read.
        axioms: Laws that were used beyond those of the solver's theories.
    """

    def __init__(self, path: Path, mode: str, *, is_linear: bool = False) -> None:
        self.path = path
        self.mode = mode
        self.is_linear = is_linear
        self.facts: list[Any] = []
        self.axioms: set[str] = set()
        self.sums: list[Any] = []
        self.scopes: list[Any] = []
        self.inside: list[Any] = []
        self.memo: dict[Any, Any] = {}
        self.widened: dict[tuple[int, torch.dtype], tuple[Any, Any]] = {}
        self.rounded: dict[torch.dtype, list[tuple[Any, Any]]] = {}
        self.dequantized: dict[int, tuple[Any, Any]] = {}
        self.steps: dict[int, tuple[Any, Any]] = {}
        self.embedded: list[tuple[Any, Any]] = []
        self.scales: list[Any] = []
        self.limits: dict[int, tuple[Any, Any, tuple[int, int]]] = {}
        self.exact: dict[int, tuple[Any, Any, torch.dtype]] = {}

    @property
    def is_real(self) -> bool:
        """Whether floats are real numbers."""
        return self.mode == "reals"

    def sort(self, dtype: torch.dtype) -> Any:
        """Return the sort of a dtype.

        Raises:
            UnsupportedError: It has none.
        """
        if dtype == torch.bool:
            return z3.BoolSort()
        if dtype in FLOATS:
            return z3.RealSort() if self.is_real else z3.FPSort(*FLOATS[dtype])
        if dtype in BITS:
            return z3.BitVecSort(BITS[dtype])
        raise UnsupportedError(f"elements of {dtype}")

    def constant(self, value: Any, dtype: torch.dtype) -> Any:
        """Return a number of the rule as an element of a dtype, rounded or cast as torch does."""
        if isinstance(value, Truth):
            value = bool(value)
        if isinstance(value, Scalar):
            return self._of_scalar(value, dtype)
        if isinstance(value, Number):
            return self._of_number(value, dtype)
        if not isinstance(value, bool | int | float):
            raise UnsupportedError(f"a {type(value).__name__} as an element")
        sort = self.sort(dtype)
        if dtype == torch.bool:
            return z3.BoolVal(bool(value))
        if dtype in BITS:
            if isinstance(value, float) and not value.is_integer():
                return z3.Function(f"number_to_{dtype}", DOUBLE, sort)(number_term(value, is_real=False))
            return z3.BitVecVal(int(value), BITS[dtype])
        return number_term(value, is_real=True) if self.is_real else float_value(float(value), sort)

    def least(self, dtype: torch.dtype) -> Any:
        """Return minus infinity; among real numbers, one of which nothing is known."""
        return z3.Real("minus_infinity") if self.is_real else self.constant(-math.inf, dtype)

    def _of_scalar(self, value: Scalar, dtype: torch.dtype) -> Any:
        sort = self.sort(dtype)
        if dtype not in FLOATS:
            return z3.Function(f"number_to_{dtype}", value.term.sort(), sort)(value.term)
        return value.term if self.is_real else self._rounded(value.term, dtype)

    def _of_number(self, value: Number, dtype: torch.dtype) -> Any:
        sort = self.sort(dtype)
        if dtype in BITS:
            if self.path.embeds_numbers:
                return z3.simplify(z3.Extract(BITS[dtype] - 1, 0, self.wide_integer(value)))
            return z3.Int2BV(value.term, BITS[dtype])
        if dtype == torch.bool:
            return value.term != 0
        if self.is_real:
            return z3.ToReal(value.term)
        limit = 1 << 53
        if self.path.holds(z3.And(value.term >= -limit, value.term <= limit)):
            return self._rounded(double_of(self.path, value), dtype)
        return z3.Function(f"integer_to_{dtype}", z3.IntSort(), sort)(value.term)

    def wide_integer(self, value: Any) -> Any:
        """Return an integer of the rule with 64 bits, of which is known how it is ordered among the others."""
        if isinstance(value, bool) or not isinstance(value, int | Number):
            raise UnsupportedError("a parameter that is not an integer")
        term = z3.simplify(integer(value))
        made = _as_bits(term)
        if any(one.eq(term) for one, _ in self.embedded):
            return made
        limits = next((one for one in _LIMITS if self.path.holds(z3.And(term >= one[0], term <= one[1]))), None)
        if limits is not None:
            if not z3.is_int_value(term):
                self.facts.append(z3.And(made >= limits[0], made <= limits[1]))
                self.limits[made.get_id()] = made, z3.ToReal(term), limits
            if not self.embedded:
                self.embedded += [(z3.IntVal(one), z3.BitVecVal(one, _WIDE)) for one in (-128, 0, 127, 255)]
            for other, bits in self.embedded:
                self.facts.append(z3.And((term <= other) == (made <= bits), (term >= other) == (made >= bits)))
            self.embedded.append((term, made))
        return made

    def real_of(self, term: Any, *, is_signed: bool) -> Any:
        """Return the number that bits stand for, as a sum of products where these do not wrap around."""
        found = self._number(term, is_signed=is_signed)
        return z3.ToReal(z3.BV2Int(term, is_signed)) if found is None else found[0]

    def _number(self, term: Any, *, is_signed: bool = True) -> tuple[Any, int, int] | None:
        """Return the number that bits stand for with its limits, or None if something in it may wrap around."""
        width = term.size()
        kind = term.decl().kind()
        known = self.limits.get(term.get_id())
        if known is not None:
            return known[1], *known[2]
        if z3.is_bv_value(term):
            number = term.as_signed_long() if is_signed else term.as_long()
            return z3.RealVal(number), number, number
        if kind in (z3.Z3_OP_SIGN_EXT, z3.Z3_OP_ZERO_EXT):
            return self._number(term.arg(0), is_signed=kind == z3.Z3_OP_SIGN_EXT)
        low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
        if kind == z3.Z3_OP_EXTRACT and term.params()[1] == 0:
            inner = self._number(term.arg(0))
            return inner if inner is not None and low <= inner[1] and inner[2] <= high else None
        if kind not in _OF_BITS:
            return z3.ToReal(z3.BV2Int(term, is_signed)), low, high
        parts = [self._number(one) for one in term.children()]
        made = None
        for one in parts:
            if one is None:
                return None
            made = one if made is None else _OF_BITS[kind](made, one)
        if made is None or made[1] < low or made[2] > high:
            return None
        return made

    def widened_integer(self, value: Any, dtype: torch.dtype) -> Any:
        """Return an integer element with 64 bits and a sign; 64 bits without one are not meant."""
        return self._resized(value, dtype, _WIDE)

    def _rounded(self, term: Any, dtype: torch.dtype) -> Any:
        """Return a double rounded to a dtype, of which is known that this is monotone and exact for zeros and NaN."""
        sort = self.sort(dtype)
        if sort == DOUBLE:
            return term
        made = z3.Function(f"rounded_{dtype}", DOUBLE, sort)(term)
        known = self.rounded.setdefault(dtype, [(z3.FPVal(0.0, DOUBLE), z3.FPVal(0.0, sort))])
        if not any(one.eq(term) for one, _ in known):
            self.axioms.add("rounding is monotone, and exact for zeros, infinities and NaN")
            self.facts.append(z3.fpIsNaN(term) == z3.fpIsNaN(made))
            self.facts.append(
                z3.Implies(z3.fpIsZero(term), z3.And(z3.fpIsZero(made), z3.fpIsNegative(term) == z3.fpIsNegative(made)))
            )
            self.facts.append(
                z3.Implies(z3.fpIsInf(term), z3.And(z3.fpIsInf(made), z3.fpIsNegative(term) == z3.fpIsNegative(made)))
            )
            for other, result in known:
                self.facts.append(z3.Implies(z3.fpLEQ(term, other), z3.fpLEQ(made, result)))
                self.facts.append(z3.Implies(z3.fpGEQ(term, other), z3.fpGEQ(made, result)))
            known.append((term, made))
        return made

    def function(self, name: str, sort: Any, arguments: Sequence[Any]) -> Any:
        """Return the result of a function of which nothing is known but its name."""
        if not arguments:
            return z3.Const(name, sort)
        return z3.Function(name, *(one.sort() for one in arguments), sort)(*arguments)

    def cast(self, value: Any, source: torch.dtype, target: torch.dtype) -> Any:
        """Return an element in another dtype."""
        if z3.is_bv_value(value) and target in FLOATS and not self.is_real:
            number = value.as_long() if source in _UNSIGNED else value.as_signed_long()
            return self.constant(torch.tensor(number, dtype=source).to(target).item(), target)
        made = self._cast(value, source, target)
        is_float = not self.is_real and z3.is_fp(value) and float_of(value) is not None
        is_known = is_float or z3.is_bv_value(value) or z3.is_true(value) or z3.is_false(value)
        return z3.simplify(made) if is_known else made

    def _cast(self, value: Any, source: torch.dtype, target: torch.dtype) -> Any:  # noqa: C901
        # One case for each pair of kinds.
        if source == target:
            return value
        sort = self.sort(target)
        if target == torch.bool:
            if source in BITS:
                return value != 0
            return value != 0 if self.is_real else z3.Not(z3.fpIsZero(value))
        if source == torch.bool:
            return z3.If(value, self.constant(1, target), self.constant(0, target))
        if source in FLOATS and target in FLOATS:
            if self.is_real:
                return value
            narrow = self.widened.get((value.get_id(), target))
            if narrow is not None:
                # What was widened without loss is itself again.
                return narrow[1]
            made = z3.fpFPToFP(_EVEN, value, sort)
            if FLOATS[source][0] <= FLOATS[target][0] and FLOATS[source][1] <= FLOATS[target][1]:
                self.widened[made.get_id(), source] = made, value
            return made
        if source in BITS and target in BITS:
            return self._resized(value, source, BITS[target])
        if source in BITS and self.is_real:
            return self.real_of(value, is_signed=source not in _UNSIGNED)
        if source in BITS:
            # Half floats are made by way of float32, which is exact for 8 and 16 bits only.
            if target in (torch.float16, torch.bfloat16) and BITS[source] > 16:
                return self.function(f"cast_{source}_{target}", sort, [value])
            make = z3.fpUnsignedToFP if source in _UNSIGNED else z3.fpSignedToFP
            made = make(_EVEN, value, sort)
            if BITS[source] <= FLOATS[target][1]:
                # Every integer of so few bits is a float of its own.
                self.exact[made.get_id()] = made, value, source
            return made
        whole = self.exact.get(value.get_id())
        if whole is not None and target in BITS and _includes(target, whole[2]):
            return self._cast(whole[1], whole[2], target)
        return self.function(f"cast_{source}_{target}", sort, [value])

    @staticmethod
    def _resized(value: Any, source: torch.dtype, bits: int) -> Any:
        missing = bits - BITS[source]
        if missing <= 0:
            return z3.Extract(bits - 1, 0, value) if missing else value
        return z3.ZeroExt(missing, value) if source in _UNSIGNED else z3.SignExt(missing, value)

    def is_nan(self, value: Any, dtype: torch.dtype) -> Any:
        """Return whether an element is not a number."""
        return z3.BoolVal(False) if self.is_real or dtype not in FLOATS else z3.fpIsNaN(value)

    def less(self, a: Any, b: Any, dtype: torch.dtype) -> Any:
        """Return whether one element is below another; NaN never is."""
        whole = self._whole(a, b)
        if whole is not None:
            return self.less(*whole)
        if dtype in FLOATS:
            return a < b if self.is_real else z3.fpLT(a, b)
        if dtype == torch.bool:
            return z3.And(z3.Not(a), b)
        return z3.ULT(a, b) if dtype in _UNSIGNED else a < b

    def equal(self, a: Any, b: Any, dtype: torch.dtype) -> Any:
        """Return whether elements are equal as numbers: zeros of both signs are, NaN is not."""
        whole = self._whole(a, b)
        if whole is not None:
            return self.equal(*whole)
        return a == b if self.is_real or dtype not in FLOATS else z3.fpEQ(a, b)

    def _whole(self, a: Any, b: Any) -> tuple[Any, Any, torch.dtype] | None:
        """Return the integers that two floats were made of exactly, which compare as they do."""
        one, other = self.exact.get(a.get_id()), self.exact.get(b.get_id())
        if one is None or other is None or one[2] != other[2]:
            return None
        return one[1], other[1], one[2]

    def arithmetic(self, name: str, a: Any, b: Any, dtype: torch.dtype) -> Any:
        """Return a sum, difference, product or quotient in a dtype."""
        if dtype in FLOATS:
            if self.mode == "free":
                return self._commuting(name, a, b, dtype)
            if self.is_real:
                return a * inverse(b) if self.is_linear and name == "div" else _REAL[name](a, b)
            neutral = a if _is_one(b) and name in ("mul", "div") else b if _is_one(a) and name == "mul" else None
            if neutral is not None:
                return neutral
            if name == "mul" and z3.is_app_of(a, z3.Z3_OP_ITE) and _is_small(a):
                condition, first, second = a.children()
                return z3.If(condition, self.arithmetic(name, first, b, dtype), self.arithmetic(name, second, b, dtype))
            if name == "mul" and float_of(a) == -1:
                return z3.fpNeg(b)
            if name == "sub" and _is_zero(b) and not z3.is_true(z3.simplify(z3.fpIsNegative(b))):
                return a
            return _ROUNDED[name](_EVEN, a, b)
        if dtype == torch.bool:
            return {"add": z3.Or, "mul": z3.And}.get(name, lambda p, q: self.function(name, p.sort(), [p, q]))(a, b)
        if name == "div":
            raise UnsupportedError("a quotient of integers")
        return _REAL[name](a, b)

    def _commuting(self, name: str, a: Any, b: Any, dtype: torch.dtype) -> Any:
        if name in ("add", "mul") and a.get_id() != b.get_id():
            self.axioms.add(f"{name} commutes")
            key = (name, b.get_id(), a.get_id(), str(dtype))
            if key in self.memo:
                return self.memo[key][0]
            swapped = self.function(f"{name}_{dtype}", self.sort(dtype), [b, a])
            made = self.function(f"{name}_{dtype}", self.sort(dtype), [a, b])
            self.facts.append(made == swapped)
            self.memo[(name, a.get_id(), b.get_id(), str(dtype))] = made, a, b
            return made
        return self.function(f"{name}_{dtype}", self.sort(dtype), [a, b])


def _as_bits(term: Any) -> Any:
    """Return an integer modulo 2**64: sums and products of integers are those of their bits."""
    if z3.is_int_value(term):
        return z3.BitVecVal(term.as_long(), _WIDE)
    children = term.children()
    if children and (z3.is_add(term) or z3.is_mul(term) or z3.is_sub(term)):
        made = _as_bits(children[0])
        for one in children[1:]:
            other = _as_bits(one)
            made = made + other if z3.is_add(term) else made * other if z3.is_mul(term) else made - other
        return made
    if z3.is_app_of(term, z3.Z3_OP_ITE):
        return z3.If(children[0], _as_bits(children[1]), _as_bits(children[2]))
    return z3.Function("bits_of_integer", z3.IntSort(), z3.BitVecSort(_WIDE))(term)


def _product(a: tuple[Any, int, int], b: tuple[Any, int, int]) -> tuple[Any, int, int]:
    ends = [one * other for one in a[1:] for other in b[1:]]
    return a[0] * b[0], min(ends), max(ends)


_OF_BITS: dict[int, Callable[[Any, Any], tuple[Any, int, int]]] = {
    z3.Z3_OP_BADD: lambda a, b: (a[0] + b[0], a[1] + b[1], a[2] + b[2]),
    z3.Z3_OP_BSUB: lambda a, b: (a[0] - b[0], a[1] - b[2], a[2] - b[1]),
    z3.Z3_OP_BMUL: _product,
}
"""Sums and products of numbers with their limits, by the kind of the term of bits."""


_REAL: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}
_ROUNDED = {"add": z3.fpAdd, "sub": z3.fpSub, "mul": z3.fpMul, "div": z3.fpDiv}


def _includes(target: torch.dtype, source: torch.dtype) -> bool:
    """Whether a dtype of integers has all that another one has."""
    wide, narrow = torch.iinfo(target), torch.iinfo(source)
    return wide.min <= narrow.min and wide.max >= narrow.max


def _is_small(term: Any) -> bool:
    """Whether a choice is one between 1, -1 and 0, products with which are plain."""
    if z3.is_app_of(term, z3.Z3_OP_ITE):
        return all(_is_small(one) for one in term.children()[1:])
    return float_of(term) in (1, -1, 0)


def _is_one(term: Any) -> bool:
    """Whether a term is the float 1: multiplying by it, and dividing by it, is exact."""
    return bool(z3.is_fp_value(term) and term.eq(z3.simplify(z3.FPVal(1.0, term.sort()))))


def _is_zero(term: Any) -> bool:
    """Whether a term is the float 0."""
    return float_of(term) == 0


def float_of(term: Any) -> float | None:
    """Return the number that a term of floats or real numbers is, or None if it is a symbol."""
    if z3.is_rational_value(term):
        return float(term.as_fraction())
    if z3.is_algebraic_value(term):
        return float(term.approx(20).as_fraction())
    kind = term.decl().kind() if z3.is_fp(term) else None
    if kind in _SPECIAL:
        return _SPECIAL[kind]
    return float(z3.simplify(z3.fpToReal(term)).as_fraction()) if z3.is_fp_value(term) else None


_SPECIAL = {
    z3.Z3_OP_FPA_PLUS_ZERO: 0.0,
    z3.Z3_OP_FPA_MINUS_ZERO: -0.0,
    z3.Z3_OP_FPA_PLUS_INF: math.inf,
    z3.Z3_OP_FPA_MINUS_INF: -math.inf,
    z3.Z3_OP_FPA_NAN: math.nan,
}


def sizes_equal(path: Path, one: Any, other: Any) -> bool:
    """Whether two sizes are surely equal."""
    if isinstance(one, int) and isinstance(other, int):
        return one == other
    left, right = z3.simplify(integer(one)), z3.simplify(integer(other))
    return bool(left.eq(right)) or path.holds(left == right)
