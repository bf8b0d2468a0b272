"""Types of single values: numbers, bools, strings, dtypes, operators, and one of some values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from exirkit.ir import operators_with, value_of
from exirkit.patterns.operators.table import FAMILIES, OperatorTable, UnknownNameError
from exirkit.patterns.syntax.expressions import compare
from exirkit.patterns.types.literals import (
    DTYPE_CLASSES,
    DTYPE_NAMES,
    Choice,
    DtypeClass,
    Literal,
    Reference,
    literal,
    rounded,
    same_float,
)

from .scanner import CLOSING, Token, TypeScanner, did_you_mean
from .sizes import SizeExpression, equal, is_size
from .variable import Variable, bounds_text

if TYPE_CHECKING:
    from exirkit.patterns.types.values import ValueMaker


@dataclass(frozen=True, kw_only=True)
class IntVariable(Variable):
    """An integer within inclusive bounds; a bool is not one."""

    KEYWORDS = ("int",)
    EXAMPLES: ClassVar = {
        "int": "any",
        "int in [0, 3]": "between bounds, which belong to it",
        "int >= 1": "with one bound",
        "int in [0, rank(x)-1]": "bounds computed from sizes",
    }
    TITLE = "Integer"
    IS_NUMBER = True

    low: SizeExpression | None = None
    high: SizeExpression | None = None

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Variable:
        """Parse bounds, or `in {1, 2}`."""
        if scanner.token.text == "[":
            hint = "a tensor of integers is i64, i32 or i*; ints is a list of numbers"
            scanner.fail("int is one number", keyword, hint=hint)
        if scanner.token.text == "in" and scanner.peek().text == "{":
            scanner.take()
            return ChoiceVariable(name=scanner.variable, choices=tuple(scanner.value_set().values))
        return cls(name=scanner.variable, **scanner.size_bounds())

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        return "int" + bounds_text(self.low, self.high)

    @property
    def expressions(self) -> tuple[object, ...]:
        """The bounds."""
        return self.low, self.high

    @cached_property
    def _literal_bounds(self) -> tuple[int, int] | None:
        if self.low is None or self.high is None or self.low.names() or self.high.names():
            return None
        return self.low.evaluate({}), self.high.evaluate({})

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool | None:
        """Whether a value is of the type."""
        if type(value) is int and (bounds := self._literal_bounds) is not None:
            return bounds[0] <= value <= bounds[1]
        return size_between(self.low, value, self.high, names) if is_size(value) else False

    def draw(self, maker: ValueMaker) -> int:
        """Return an integer."""
        return maker.integer(maker.bound(self.low), maker.bound(self.high))


@dataclass(frozen=True, kw_only=True)
class _FloatBounds(Variable):
    """A number between bounds that are numbers.

    Attributes:
        low: Least value.
        high: Greatest value.
    """

    KINDS: ClassVar[tuple[type, ...]] = ()
    """Types of its values."""

    low: float | None = None
    high: float | None = None

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Variable:
        """Parse bounds."""
        return cls(name=scanner.variable, **scanner.float_bounds())

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        return self.KEYWORDS[0] + bounds_text(self.low, self.high)

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool:
        """Whether a value is of the type."""
        return isinstance(value, self.KINDS) and float_between(self.low, value, self.high)


@dataclass(frozen=True, kw_only=True)
class FloatVariable(_FloatBounds):
    """A float within inclusive bounds; their roundings to float32 count as the bounds."""

    KEYWORDS = ("float",)
    KINDS = (float, torch.SymFloat)
    EXAMPLES: ClassVar = {"float in [0.1, 2.0]": "between bounds", "scalar f32": "the same as `float`"}

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Variable:
        """Parse bounds."""
        if scanner.token.text == "[":
            scanner.fail("float is one number", keyword, hint="a tensor of floats is f32, f16 or f*")
        return super().parse(scanner, keyword)

    def draw(self, maker: ValueMaker) -> float:
        """Return a float."""
        return maker.floating(self.low, self.high)


@dataclass(frozen=True, kw_only=True)
class ScalarVariable(_FloatBounds):
    """A number of any type: int, float or bool."""

    KEYWORDS = ("scalar",)
    KINDS = (bool, int, float, torch.SymInt, torch.SymFloat)
    EXAMPLES: ClassVar = {"scalar": "any", "scalar in [0, 1]": "between bounds"}
    TITLE = "Number"
    IS_NUMBER = True

    @staticmethod
    def of_dtype(scanner: TypeScanner) -> Variable:
        """Parse `scalar f32`: a number of the kind that tensors of a dtype have."""
        names = scanner.dtype_class().names
        if all(DTYPE_NAMES[each].is_floating_point for name in names for each in DTYPE_CLASSES.get(name, (name,))):
            return FloatVariable(name=scanner.variable, **scanner.float_bounds())
        if names == ("bool",):
            return BoolVariable(name=scanner.variable)
        if all(name.startswith(("i", "u")) for name in names):
            return IntVariable(name=scanner.variable, **scanner.size_bounds())
        return ScalarVariable(name=scanner.variable, **scanner.float_bounds())

    def draw(self, maker: ValueMaker) -> float:
        """Return a float, an integer or a bool."""
        low, high = self.low, self.high
        makers: list[Callable[[], float]] = [lambda: maker.floating(low, high)]
        least = None if low is None or not math.isfinite(low) else math.ceil(low)
        greatest = None if high is None or not math.isfinite(high) else math.floor(high)
        if least is None or greatest is None or least <= greatest:
            makers.append(lambda: maker.integer(least, greatest))
        bools = [one for one in (False, True) if (low is None or one >= low) and (high is None or one <= high)]
        if bools:
            makers.append(lambda: maker.rng.choice(bools))
        return maker.rng.choice(makers)()


@dataclass(frozen=True, kw_only=True)
class BoolVariable(Variable):
    """True or False."""

    KEYWORDS = ("bool",)
    EXAMPLES: ClassVar = {"bool": "one value; `bool [N]` is a tensor"}

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool:
        """Whether a value is of the type."""
        return type(value) is bool

    def choice_options(self) -> tuple[Choice, ...]:
        """Return both."""
        return (literal(False), literal(True))


@dataclass(frozen=True, kw_only=True)
class StringVariable(Variable):
    """A string, one of some if any are given."""

    KEYWORDS = ("str", "string")
    EXAMPLES: ClassVar = {"str": "any", "str in 'none', 'tanh'": "one of these"}
    TITLE = "String"

    choices: tuple[str, ...] = ()

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Variable:
        """Parse `in` and strings."""
        if not scanner.accept("in"):
            return cls(name=scanner.variable)
        found: dict[str, None] = {}
        for choice, token in scanner.choices():
            if not isinstance(choice, Literal) or choice.kind != "str":
                scanner.fail("expected a string in quotes", token, hint=f"write '{token.text}'")
            found[choice.value] = None
        return cls(name=scanner.variable, choices=tuple(found))

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        return f"str in {', '.join(map(repr, self.choices))}" if self.choices else "str"

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool:
        """Whether a value is of the type."""
        return isinstance(value, str) and (not self.choices or value in self.choices)

    def choice_options(self) -> tuple[Choice, ...]:
        """Return the strings, or some."""
        return tuple(map(literal, self.choices or ("", "none", "a")))


@dataclass(frozen=True, kw_only=True)
class ChoiceVariable(Variable):
    """One of some values, of which some may be those of other variables."""

    KEYWORDS = ("one_of", "oneof", "one")
    EXAMPLES: ClassVar = {
        "one_of 1, 2, 4": "numbers, strings, none, lists",
        "int in {1, 2}": "another way to write `one_of`",
        "one_of x, 0": "the value of another variable, or 0",
    }
    IS_NUMBER = True

    choices: tuple[Choice, ...]

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Variable:
        """Parse values."""
        if keyword.text == "one":
            scanner.expect("of", "after 'one'")
        scanner.accept("in", "of")
        return cls(name=scanner.variable, choices=tuple(dict.fromkeys(choice for choice, _ in scanner.choices())))

    @cached_property
    def depends_on(self) -> frozenset[str]:
        """Variables whose values are among the choices."""
        return frozenset(one.name for one in self.choices if isinstance(one, Reference))

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        return f"one_of {', '.join(map(str, self.choices))}"

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool | None:
        """Whether a value is of the type."""
        unknown = False
        for one in self.choices:
            if isinstance(one, Reference):
                if one.name not in names:
                    unknown = True
                elif same_value(value_of(names[one.name]), value):
                    return True
            elif isinstance(value, torch.SymInt):
                if one.kind == "int" and equal(value, one.value):
                    return True
            elif one.admits(value):
                return True
        return None if unknown else False

    def choice_options(self) -> tuple[Choice, ...]:
        """Return the choices."""
        return self.choices

    def draw(self, maker: ValueMaker) -> Any:
        """Return one of the choices."""
        one = maker.rng.choice(self.choices)
        return maker.names[one.name] if isinstance(one, Reference) else one.value


@dataclass(frozen=True, kw_only=True)
class DtypeVariable(Variable):
    """A dtype, of a class if one is given."""

    KEYWORDS = ("dtype",)
    EXAMPLES: ClassVar = {
        "dtype": "any",
        "dtype in f16, f32": "one of these",
        "dtype in =x": "the dtype of x",
    }

    dtypes: DtypeClass | None = None

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Variable:
        """Parse `in` and dtypes."""
        if not scanner.accept("in"):
            same = scanner.token.text == "="
            return cls(name=scanner.variable, dtypes=scanner.dtype_class() if same else None)
        closing = CLOSING.get(scanner.token.text)
        if closing is None:
            dtypes = scanner.dtype_class()
            names = list(dtypes.names)
            if dtypes.same_as is not None:
                return cls(name=scanner.variable, dtypes=dtypes)
        else:
            scanner.take()
            names = [scanner.dtype_name()]
        while scanner.accept(","):
            names.append(scanner.dtype_name())
        if closing is not None:
            scanner.expect(closing, "after the dtypes")
        return cls(name=scanner.variable, dtypes=DtypeClass(tuple(dict.fromkeys(names))))

    @property
    def same_dtype_as(self) -> str | None:
        """The variable whose dtype it is, for `dtype in =x`."""
        return None if self.dtypes is None else self.dtypes.same_as

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        return "dtype" if self.dtypes is None else f"dtype in {self.dtypes}"

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool | None:
        """Whether a value is of the type."""
        if not isinstance(value, torch.dtype):
            return False
        if self.dtypes is None:
            return True
        if self.dtypes.same_as is None:
            return value in self.dtypes.member_set
        other = value_of(names.get(self.dtypes.same_as))
        return None if other is None else value == getattr(other, "dtype", other)

    def dtype_options(self) -> tuple[torch.dtype, ...]:
        """Return the dtypes of the class."""
        return DtypeClass(("any",)).members if self.dtypes is None else self.dtypes.members


@dataclass(frozen=True, kw_only=True)
class OperatorVariable(Variable):
    """An operator of some families of the catalogue, or one of some that are named.

    Attributes:
        families: Names of families (`unary_pointwise`), and of operators (`aten.relu.default`).
    """

    KEYWORDS = ("op", "operator")
    EXAMPLES: ClassVar = {
        "op in unary_pointwise": "an operator of a family, see below",
        "op in aten.relu.default, aten.tanh.default": "one of these operators",
    }

    families: tuple[str, ...]

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Variable:
        """Parse `in` and families."""
        if not scanner.accept("in"):
            scanner.fail("expected 'in' after 'op'", hint=f"op in {FAMILIES[0]}")
        closing = CLOSING.get(scanner.token.text)
        if closing is not None:
            scanner.take()
        families: dict[str, None] = {}
        while True:
            token = scanner.token
            if token.kind != "name" or ("." not in token.text and token.text not in FAMILIES):
                hint = did_you_mean(token.text, FAMILIES) or f"families are {', '.join(FAMILIES)}"
                scanner.fail(f"{token.shown} is not a family of operators", token, hint=hint)
            families[scanner.take().text] = None
            if not scanner.accept(",", "|"):
                break
        if closing is not None:
            scanner.expect(closing, "after the families")
        return cls(name=scanner.variable, families=tuple(families))

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        return f"op in {', '.join(self.families)}"

    def operators(self) -> tuple[Any, ...]:
        """Return the operators, without edge handles, in the order of the catalogue."""
        return family_members(self.families)

    def admits_operator(self, op: object) -> bool:
        """Whether an operator is one of them."""
        return op in _member_set(self.families)

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool:
        """Whether a value is of the type."""
        return self.admits_operator(value)

    def draw(self, maker: ValueMaker) -> Any:
        """Return one of the operators."""
        return maker.rng.choice(self.operators())


@lru_cache(maxsize=256)
def family_members(names: tuple[str, ...]) -> tuple[Any, ...]:
    """Return the operators of families and of names `aten.relu.default`, each once, in the order of the catalogue.

    Raises:
        LookupError: A name is neither.
    """
    found: dict[Any, None] = {}
    for name in names:
        if name in FAMILIES:
            found.update(dict.fromkeys(operators_with(name)))
            continue
        try:
            found[OperatorTable().find(name)] = None
        except UnknownNameError as error:
            raise LookupError(error.message) from None
    return tuple(found)


@lru_cache(maxsize=256)
def _member_set(names: tuple[str, ...]) -> frozenset[Any]:
    return frozenset(family_members(names))


def size_between(
    low: SizeExpression | None, value: Any, high: SizeExpression | None, names: Mapping[str, Any]
) -> bool | None:
    """Whether a size is between bounds; None if one of them has no value yet."""
    for order, bound in ((">=", low), ("<=", high)):
        if bound is None:
            continue
        try:
            limit = bound.evaluate(names)
        except ArithmeticError:
            return False
        if limit is None:
            return None
        if compare(order, value, limit) is not True:
            return False
    return True


def float_between(low: float | None, value: Any, high: float | None) -> bool:
    """Whether a number is between bounds, of which float32 roundings count too; nan is not between any."""
    if low is None and high is None:
        return True
    if isinstance(value, float) and any(bound is not None and value == rounded(bound) for bound in (low, high)):
        return True
    is_above = low is None or compare(">=", value, low) is True
    return is_above and (high is None or compare("<=", value, high) is True)


def same_value(known: Any, value: Any) -> bool:
    """Whether values are the same in type and value; sizes that vary must be known to be equal."""
    if is_size(known) and is_size(value):
        return equal(known, value)
    if isinstance(known, list | tuple) and isinstance(value, list | tuple):
        return len(known) == len(value) and all(map(same_value, known, value))
    if type(known) is not type(value):
        return False
    if isinstance(known, float):
        return same_float(known, value)
    return known is value if isinstance(known, torch.Tensor) else bool(known == value)
