"""Types about quantized values: integers with a scale and a zero point, and each of these parameters alone.

`x: "q8 [*S]"` in a rule stands for a dequantized value. Before a rule is compiled, such a variable is decomposed into
its integers and its parameters (`exirkit.patterns.books.quantized_variables`), whose types are here as well.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from exirkit.ir import value_of
from exirkit.patterns.types.literals import DtypeClass, Interval

from .scalars import FloatVariable
from .scanner import QUALIFIERS, Token, TypeScanner, did_you_mean
from .sizes import Dims, Size, dims_text, equal, sizes_of
from .tensors import TensorVariable
from .values import UnsolvedError
from .variable import Matcher, Variable, pending

if TYPE_CHECKING:
    from .values import ValueMaker

SCHEMES = ("tensor", "tensors", "channel")
"""One scale for all elements as a number, the same as a tensor of one element, one scale for each index of a dim."""

_INTEGERS = {
    "q8": ("i8", "u8"), "qi8": ("i8",), "qu8": ("u8",),
    "q16": ("i16", "u16"), "qi16": ("i16",), "qu16": ("u16",), "qi32": ("i32",),
}  # fmt: skip
"""Dtypes of the integers by the word that a type starts with."""

_LEAST_SCALE, _GREATEST_SCALE = 1e-9, 1e6
_ONE = frozenset(((), (1,)))
_TIES_SHARE = 0.35


@dataclass(frozen=True, kw_only=True)
class QuantizedVariable(Variable):
    """A dequantized value: narrow integers with the parameters by which they stand for floats.

    Attributes:
        word: `q8`, `qi8` ...: which integers.
        qualifiers: What the integers are in the graph.
        schemes: Of `SCHEMES`, those that are allowed.
        axis: The dim that has a scale for each index; None for any.
        has_value: There are integers; otherwise it is parameters alone.
        dims: Signature of its shape; None for any shape.
    """

    KEYWORDS = tuple(_INTEGERS)
    TITLE = "Quantized value"
    EXAMPLES: ClassVar = {
        "q8 [*S]": "8 bits with or without sign, per tensor (numbers or tensors) or per channel",
        "qi8 per tensor [*S]": "`int8`, with one scale that is a number; `per tensors` if it is a tensor",
        "const q8 per channel 0 [N, K]": "known while the program is lowered, with a scale for each index of dim 0",
        "q8 per tensor or channel [*S]": "several of the schemes",
        "q8 params [*S]": "parameters alone, by which a value of these sizes is quantized",
        "q16 [*S]": "16 bits; `qi16`, `qu16` and `qi32` too",
    }
    IS_SHAPED = True

    word: str = "q8"
    qualifiers: tuple[str, ...] = ()
    schemes: tuple[str, ...] = SCHEMES
    axis: int | None = None
    has_value: bool = True
    dims: Dims | None = None

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Variable:
        """Parse what follows the word."""
        return cls.parse_rest(scanner, keyword, ())

    @classmethod
    def starts(cls, scanner: TypeScanner) -> bool:
        """Return whether a type with qualifiers is of this kind."""
        ahead = 0
        while scanner.peek(ahead).text in QUALIFIERS:
            ahead += 1
        return ahead > 0 and scanner.peek(ahead).text in (*_INTEGERS, *ParameterTensor.KEYWORDS)

    @classmethod
    def parse_qualified(cls, scanner: TypeScanner) -> Variable:
        """Parse a type that starts with qualifiers."""
        found: set[str] = set()
        while scanner.token.text in QUALIFIERS:
            found.add(scanner.take().text)
        qualifiers, keyword = tuple(one for one in QUALIFIERS if one in found), scanner.take()
        if keyword.text in ParameterTensor.KEYWORDS:
            return replace(ParameterTensor.parse(scanner, keyword), qualifiers=qualifiers)
        return cls.parse_rest(scanner, keyword, qualifiers)

    @classmethod
    def parse_rest(cls, scanner: TypeScanner, keyword: Token, qualifiers: tuple[str, ...]) -> QuantizedVariable:
        """Parse `params`, `per ...` and dims."""
        has_value = scanner.accept("params") is None
        schemes, axis = _schemes(scanner) if scanner.accept("per") else (SCHEMES, None)
        dims = scanner.dims() if scanner.token.text == "[" else None
        if not has_value and (qualifiers or dims is None):
            hint = "the sizes are those of what is quantized: q8 params [*S]; they have no qualifiers"
            scanner.fail("parameters are of sizes", keyword, hint=hint)
        return cls(
            name=scanner.variable, word=keyword.text, qualifiers=qualifiers, schemes=schemes, axis=axis,
            has_value=has_value, dims=dims,
        )  # fmt: skip

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        words = [*self.qualifiers, self.word, *(() if self.has_value else ("params",))]
        if self.schemes != SCHEMES:
            axis = "" if self.axis is None else f" {self.axis}"
            words += ["per", " or ".join(one + (axis if one == "channel" else "") for one in self.schemes)]
        return " ".join([*words, *(() if self.dims is None else (dims_text(self.dims),))])

    @property
    def signature(self) -> Dims:
        """Dims in the type."""
        return self.dims or ()

    @property
    def integers(self) -> tuple[str, ...]:
        """Names of the dtypes of the integers."""
        return _INTEGERS[self.word]

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool | None:
        """Return False: a variable of this kind is decomposed before anything is matched."""
        return False


def _schemes(scanner: TypeScanner) -> tuple[tuple[str, ...], int | None]:
    """Parse `tensor or channel 0`."""
    found: set[str] = set()
    axis: int | None = None
    while True:
        token = scanner.token
        word = scanner.name("tensor, tensors or channel after 'per'")
        if word not in SCHEMES:
            scanner.fail(
                f"{word!r} is not a scheme", token, hint=did_you_mean(word, SCHEMES) or "per tensor or channel"
            )
        found.add(word)
        if word == "channel" and scanner.token.kind == "number":
            axis = scanner.integer()
        if not scanner.accept("or"):
            return tuple(one for one in SCHEMES if one in found), axis


# Each parameter alone


@dataclass(frozen=True, kw_only=True)
class ScaleVariable(FloatVariable):
    """A scale of quantized values: a positive float."""

    KEYWORDS = ("scale",)
    EXAMPLES: ClassVar = {"scale": f"from {_LEAST_SCALE:g} to {_GREATEST_SCALE:g}; trials prefer powers of two"}
    TITLE = "Scale"

    low: float | None = _LEAST_SCALE
    high: float | None = _GREATEST_SCALE

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Variable:
        """Parse nothing more."""
        return cls(name=scanner.variable)

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        return "scale"

    def draw(self, maker: ValueMaker) -> float:
        """Return a scale: often a power of two, or twice or half another, with which sums fall between integers."""
        return drawn_scale(maker.rng, maker.profile, [one for one in maker.names.values() if type(one) is float])


def drawn_scale(rng: random.Random, profile: str, others: Sequence[float] = ()) -> float:
    """Return a scale for a trial.

    Args:
        rng: Source of chance.
        profile: `boundary` has the limits more often.
        others: Scales that were drawn before.
    """
    known = [one for one in others if _LEAST_SCALE < one < _GREATEST_SCALE]
    chance = rng.random()
    if known and chance < 0.3:
        return min(_GREATEST_SCALE, max(_LEAST_SCALE, rng.choice(known) * rng.choice((1.0, 2.0, 0.5, 1.001))))
    if chance < 0.6:
        return float(2.0 ** rng.randint(-7, 2))
    if profile == "boundary" and chance < 0.7:
        return rng.choice((_LEAST_SCALE, _GREATEST_SCALE))
    return float(10.0 ** rng.uniform(-4, 1))


@dataclass(frozen=True, kw_only=True)
class _OfDtype(Variable):
    """A number within the limits of integers.

    Attributes:
        of: Name of a dtype.
    """

    of: str

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Variable:
        """Parse `of d`."""
        scanner.expect("of", f"after {keyword.text!r}")
        return cls(name=scanner.variable, of=scanner.name("the name of a dtype"))

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        return f"{self.KEYWORDS[0]} of {self.of}"

    @cached_property
    def depends_on(self) -> frozenset[str]:
        """The dtype."""
        return frozenset((self.of,))

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool | None:
        """Whether a value is of the type."""
        if type(value) is not int:
            return False
        dtype = value_of(names.get(self.of))
        if dtype is None:
            return None
        return isinstance(dtype, torch.dtype) and _least(dtype) <= value <= torch.iinfo(dtype).max

    def _limits(self, maker: ValueMaker) -> tuple[int, int]:
        dtype = maker.names.get(self.of)
        if not isinstance(dtype, torch.dtype):
            raise UnsolvedError
        return _least(dtype), torch.iinfo(dtype).max


def _least(dtype: torch.dtype) -> int:
    return int(torch.iinfo(dtype).min)


@dataclass(frozen=True, kw_only=True)
class ZeroPointVariable(_OfDtype):
    """A zero point of quantized values: an integer that the dtype has."""

    KEYWORDS = ("zero_point",)
    EXAMPLES: ClassVar = {"zero_point of d": "d is a `dtype`; trials prefer the ends and 0"}
    TITLE = "Zero point"

    def draw(self, maker: ValueMaker) -> int:
        """Return an integer: often an end of the dtype, 0, or the zero point of another value."""
        low, high = self._limits(maker)
        return drawn_zero_point(maker.rng, low, high, [one for one in maker.names.values() if type(one) is int])


def drawn_zero_point(rng: random.Random, low: int, high: int, others: Sequence[int] = ()) -> int:
    """Return a zero point for a trial, within limits."""
    known = [one for one in others if low <= one <= high and one]
    chance = rng.random()
    if known and chance < 0.2:
        return rng.choice(known)
    if chance < 0.5:
        return rng.choice((low, high, 0, 0))
    return rng.randint(max(low, -1000), min(high, 1000))


@dataclass(frozen=True, kw_only=True)
class LimitVariable(_OfDtype):
    """The least, or the greatest, integer that quantizing gives."""

    KEYWORDS = ("low_limit", "high_limit")
    EXAMPLES: ClassVar = {
        "low_limit of d": "d is a `dtype`; trials have its least integer, the one above it, and few bits",
        "high_limit of d": "likewise the greatest integer",
    }
    TITLE = "Limit"

    is_high: bool = False

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Variable:
        """Parse `of d`."""
        scanner.expect("of", f"after {keyword.text!r}")
        of = scanner.name("the name of a dtype")
        return cls(name=scanner.variable, of=of, is_high=keyword.text == "high_limit")

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        return f"{self.KEYWORDS[self.is_high]} of {self.of}"

    def draw(self, maker: ValueMaker) -> int:
        """Return a limit: mostly that of the dtype."""
        low, high = self._limits(maker)
        if self.is_high:
            return maker.rng.choice((high, high, high, high, high - 1, 7))
        return maker.rng.choice((low, low, low, low + (low < 0), low + (low < 0), -8 if low else 0))


@dataclass(frozen=True, kw_only=True)
class ParameterTensor(TensorVariable):
    """Scales or zero points as a tensor: one for each index of a dim, or a single one.

    Attributes:
        kind: `scales` or `zero_points`.
        of: Tensor or shape whose dim it is; None for a single parameter.
        at: The dim: an integer, or the name of a variable.
        integers: Name of the dtype of the integers; zero points are within its limits.
    """

    KEYWORDS = ("scales", "zero_points")
    EXAMPLES: ClassVar = {
        "scales of x at d": "a scale for each index of dim d of x, `f32` or `f64`",
        "zero_points of x at d for t": "a zero point for each, `i64` or `i32`, within the limits of the dtype t",
        "scales single": "a tensor of one scale; `zero_points single for t` likewise",
        "const scales of x at d": "known while the program is lowered, as those of a constant quantized value are",
    }
    TITLE = "Parameters of channels"

    kind: str = "scales"
    of: str | None = None
    at: int | str = 0
    integers: str | None = None

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> ParameterTensor:
        """Parse `of x at d for t`, or `single`."""
        of: str | None = None
        at: int | str = 0
        if not scanner.accept("single"):
            scanner.expect("of", f"after {keyword.text!r}")
            of = scanner.name("the name of a tensor or a shape")
            scanner.expect("at", "after the tensor, before the dim")
            at = scanner.integer() if scanner.token.kind == "number" else scanner.name("a dim")
        is_scale = keyword.text == "scales"
        integers = None
        if not is_scale:
            scanner.expect("for", "before the dtype of the integers")
            integers = scanner.name("the name of a dtype")
        return cls(
            name=scanner.variable, dtypes=DtypeClass(("f32", "f64") if is_scale else ("i64", "i32")),
            domain=Interval(_LEAST_SCALE, _GREATEST_SCALE) if is_scale else Interval(-(2.0**31), 2.0**31 - 1),
            kind=keyword.text, of=of, at=at, integers=integers, dims=(),
        )  # fmt: skip

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        where = "single" if self.of is None else f"of {self.of} at {self.at}"
        return " ".join([*self.qualifiers, self.kind, where]) + (
            "" if self.integers is None else f" for {self.integers}"
        )

    @cached_property
    def depends_on(self) -> frozenset[str]:
        """The tensor or shape, the variable of the dim, and the dtype."""
        names = (self.of, self.at if isinstance(self.at, str) else None, self.integers)
        return frozenset(one for one in names if one is not None)

    def matcher(self) -> Matcher:
        """Compile the matcher."""

        def match(value: Any, names: Mapping[str, Any]) -> Iterable[dict[str, object]]:
            value = value_of(value)
            if not isinstance(value, torch.Tensor) or value.dtype not in self.dtypes.member_set:
                return ()
            if self.of is None:
                return ({},) if tuple(value.shape) in _ONE else ()
            if value.dim() != 1:
                return ()
            count = self._count(names)
            if count is None:
                return (pending(self, value),)
            return ({},) if equal(count, value.shape[0]) else ()

        return match

    def _count(self, names: Mapping[str, Any]) -> Size | None:
        assert self.of is not None
        sizes = sizes_of(names[self.of]) if self.of in names else None
        at = value_of(names.get(self.at)) if isinstance(self.at, str) else self.at
        if sizes is None or type(at) is not int:
            return None
        return sizes[at] if -len(sizes) <= at < len(sizes) else -1

    def drawn_sizes(self, names: Mapping[str, Any], rng: random.Random) -> tuple[Size, ...]:
        """Return the sizes of a tensor for a trial.

        Raises:
            UnsolvedError: There is no such dim.
        """
        if self.of is None:
            return rng.choice(((), (1,)))
        count = self._count(names)
        if count is None or (type(count) is int and count < 0):
            raise UnsolvedError
        return (count,)

    def drawn(
        self, dtype: torch.dtype, sizes: Sequence[int], names: Mapping[str, Any], rng: random.Random, profile: str
    ) -> torch.Tensor:
        """Return a tensor for a trial."""
        count = sizes[0] if sizes else 1
        if self.kind == "scales":
            numbers: list[float] = []
            for _ in range(count):
                numbers.append(drawn_scale(rng, profile, numbers))
        else:
            integers = names.get(self.integers or "")
            if not isinstance(integers, torch.dtype):
                raise UnsolvedError
            low, high = _least(integers), int(torch.iinfo(integers).max)
            is_symmetric = rng.random() < 0.3 and low <= 0
            numbers = [0 if is_symmetric else drawn_zero_point(rng, low, high) for _ in range(count)]
        return torch.tensor(numbers, dtype=dtype).reshape(tuple(sizes))


# Floats that fall between two integers once they are quantized


def put_ties(variables: Mapping[str, Variable], values: MutableMapping[str, Any], rng: random.Random) -> None:
    """Give float tensors of a trial values halfway between integers of one of its scales, and beyond its limits.

    Args:
        variables: Types; without a scale among them nothing changes.
        values: Of the trial.
        rng: Source of chance.
    """
    scales = [
        value
        for name, one in variables.items()
        if isinstance(one, ScaleVariable) and isinstance(value := values.get(name), float)
    ]
    if not scales:
        return
    for name, one in variables.items():
        old = values.get(name)
        plain = type(one) is TensorVariable and one.domain is None and isinstance(old, torch.Tensor)
        if plain and old is not None and old.dtype == torch.float32 and rng.random() < _TIES_SHARE:
            generator = torch.Generator().manual_seed(rng.getrandbits(48))
            steps = torch.randint(-300, 300, tuple(old.shape), generator=generator)
            halves = torch.randint(0, 2, tuple(old.shape), generator=generator) * 0.5
            old.copy_((steps + halves).mul(rng.choice(scales)))
