"""Types of lists: numbers, shapes, permutations, axes, factors and parts of a dim."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch

from exirkit.ir import value_of
from exirkit.patterns.syntax.expressions import compare
from exirkit.patterns.types.values import UnsolvedError, ValueMaker, drawn_length

from .scalars import float_between, size_between
from .scanner import Token, TypeScanner
from .sizes import Size, SizeExpression, equal, is_size, product, rank_of, sizes_of
from .tensors import DimsVariable, TensorListVariable
from .variable import Variable, bounds_text

if TYPE_CHECKING:
    import random

_LONGEST = 4
_MOST_ELEMENTS = 64


@dataclass(frozen=True, kw_only=True)
class ListVariable(Variable):
    """A list of numbers.

    Attributes:
        element: `int`, `float` or `bool`.
        count: How many; None for any number.
        low: Least element.
        high: Greatest element.
    """

    KEYWORDS = ("ints", "floats", "bools", "list")
    EXAMPLES: ClassVar = {
        "ints": "integers, any number of them",
        "ints 2 in [1, 3]": "two, between bounds",
        "ints len(S) in [1, 2]": "as many as S has dims",
        "floats 2": "two floats",
        "bools": "bools",
    }
    TITLE = "List of numbers"
    IS_SHAPED = True

    element: str = "int"
    count: SizeExpression | None = None
    low: SizeExpression | float | None = None
    high: SizeExpression | float | None = None

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Variable:
        """Parse count, `of` and element, and bounds."""
        if keyword.text == "list" and scanner.accept("from"):
            return _from_none(scanner)
        element = "int" if keyword.text == "list" else keyword.text.removesuffix("s")
        starts_element = scanner.token.text == "of" and keyword.text == "list"
        count = None if starts_element or _ends_count(scanner) else scanner.size()
        if keyword.text == "list" and scanner.accept("of"):
            element = scanner.token.text.removesuffix("s")
            if element not in ("int", "float", "bool") or (element == "bool" and scanner.bool_is_dtype()):
                return TensorListVariable.parse_elements(scanner, count)
            scanner.take()
        bounds = {"int": scanner.size_bounds, "float": scanner.float_bounds, "bool": dict}[element]()
        return cls(name=scanner.variable, element=element, count=count, **bounds)

    @property
    def expressions(self) -> tuple[object, ...]:
        """The count and the bounds."""
        return self.low, self.high, self.count

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        count = "" if self.count is None else f" {self.count}"
        return f"{self.element}s{count}{bounds_text(self.low, self.high)}"

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool | None:
        """Whether a value is of the type."""
        if not isinstance(value, list | tuple):
            return False
        if self.count is not None:
            count = self.count.evaluate(names)
            if count is None:
                return None
            if not equal(count, len(value)):
                return False
        known = [self._admits_element(value_of(one), names) for one in value]
        return False if False in known else None if None in known else True

    def _admits_element(self, one: Any, names: Mapping[str, Any]) -> bool | None:
        low: Any = self.low
        high: Any = self.high
        if self.element == "int":
            return size_between(low, one, high, names) if is_size(one) else False
        if self.element == "bool":
            return type(one) is bool
        return isinstance(one, float | torch.SymFloat) and float_between(low, one, high)

    def draw(self, maker: ValueMaker) -> list[Any]:
        """Return a list, now and then of equal elements."""
        rng, low, high = maker.rng, self.low, self.high
        count = drawn_length(rng, 0, _LONGEST) if self.count is None else maker.bound(self.count)
        if count is None or not 0 <= count <= _MOST_ELEMENTS:
            raise UnsolvedError
        one: Callable[[], Any]
        if self.element == "bool":
            one = lambda: rng.random() < 0.5  # noqa: E731
        elif self.element == "float":
            one = lambda: maker.floating(low, high)  # type: ignore[arg-type] # noqa: E731
        else:
            least, greatest = maker.bound(low), maker.bound(high)  # type: ignore[arg-type]
            shape = _shape_that_fits(maker, count, least, greatest)
            if shape is not None:
                return shape
            one = lambda: maker.integer(least, greatest)  # noqa: E731
        if rng.random() < 0.4:
            return [one()] * count
        return [one() for _ in range(count)]

    def draw_symbolic(self, maker: ValueMaker) -> list[Any]:
        """Return a list; sizes of tensors count as shapes, so that they are not compared."""
        if self.element != "int":
            return self.draw(maker)
        plain = {name: value for name, value in maker.names.items() if not isinstance(value, torch.Tensor)}
        tensors = {name: value for name, value in maker.names.items() if isinstance(value, torch.Tensor)}
        shapes = {name: tuple(value.shape) for name, value in tensors.items()}
        return list(self.draw(ValueMaker(maker.rng, maker.profile, {**plain, **shapes})))


def _from_none(scanner: TypeScanner) -> Variable:
    """Parse `0 of` and the type of tensors, after `list from`."""
    number = scanner.token
    if number.text != "0":
        scanner.fail("a list that may be empty is `list from 0 of` tensors", number, hint="others are `list of`")
    scanner.take()
    scanner.expect("of", "after the number")
    return TensorListVariable.parse_elements(scanner, None, 0)


def _ends_count(scanner: TypeScanner) -> bool:
    return scanner.token.kind == "end" or scanner.token.text in ("in", "|", "or", ">=", "<=")


def _shape_that_fits(maker: ValueMaker, count: int, low: int | None, high: int | None) -> list[Any] | None:
    """Return, now and then, the shape of a tensor: guards like to compare a list with one."""
    if maker.rng.random() < 0.7:
        return None
    for value in maker.names.values():
        sizes = sizes_of(value)
        if sizes is None or len(sizes) != count or not hasattr(value, "shape"):
            continue
        if all((low is None or size >= low) and (high is None or size <= high) for size in sizes):
            return list(sizes)
    return None


@dataclass(frozen=True, kw_only=True)
class ShapeVariable(Variable):
    """A list of sizes that are not negative."""

    KEYWORDS = ("shape",)
    EXAMPLES: ClassVar = {"shape": "any"}
    IS_SHAPED = True

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Variable:
        """Parse nothing, or dims as `dims [P, Q]` has them."""
        return DimsVariable.parse(scanner, keyword) if scanner.token.text == "[" else cls(name=scanner.variable)

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool:
        """Whether a value is of the type."""
        sizes = sizes_of(value) if isinstance(value, list | tuple) else None
        return sizes is not None and all(compare(">=", size, 0) is True for size in sizes)

    def draw(self, maker: ValueMaker) -> list[int]:
        """Return the shape of a tensor, or another."""
        tensors = [sizes for value in maker.names.values() if hasattr(value, "shape") and (sizes := sizes_of(value))]
        if tensors and maker.rng.random() < 0.5:
            return [int(size) for size in maker.rng.choice(tensors)]
        return [maker.rng.choice((0, 1, 1, 2, 3, 5)) for _ in range(maker.rng.randint(0, _LONGEST))]

    def draw_symbolic(self, maker: ValueMaker) -> list[int]:
        """Return a shape of plain sizes."""
        return [maker.rng.choice((1, 2, 3)) for _ in range(maker.rng.randint(0, 3))]


@dataclass(frozen=True, kw_only=True)
class AboutVariable(Variable):
    """A list or number that is about the dims of a tensor or a shape."""

    IS_SHAPED = True

    of: str

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Self:
        """Parse `of x` or `(x)`."""
        has_bracket = scanner.accept("(") is not None
        if not has_bracket and not scanner.accept("of"):
            message = f"expected 'of' after {keyword.text!r}, got {scanner.token.shown}"
            scanner.fail(message, hint=f"write {keyword.text} of x")
        of = scanner.name("the name of a tensor or a shape")
        if has_bracket:
            scanner.expect(")", "after the name")
        return cls(name=scanner.variable, of=of)

    @cached_property
    def depends_on(self) -> frozenset[str]:
        """The tensor or shape."""
        return frozenset((self.of,))

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        return f"{self.KEYWORDS[0]} of {self.of}"

    def _rank(self, names: Mapping[str, Any]) -> int | None:
        return rank_of(names[self.of]) if self.of in names else None

    def _drawn_rank(self, maker: ValueMaker) -> int:
        rank = self._rank(maker.names)
        if rank is None:
            raise UnsolvedError
        return rank

    def _drawn_sizes(self, maker: ValueMaker) -> tuple[Size, ...]:
        sizes = sizes_of(maker.names.get(self.of))
        if sizes is None:
            raise UnsolvedError
        return sizes


@dataclass(frozen=True, kw_only=True)
class PermutationVariable(AboutVariable):
    """A permutation of the dims, counted from the front."""

    KEYWORDS = ("perm", "permutation")
    EXAMPLES: ClassVar = {"perm of x": "as many dims as x has"}

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool | None:
        """Whether a value is of the type."""
        if not _plain_integers(value):
            return False
        rank = self._rank(names)
        return None if rank is None else sorted(value) == list(range(rank))

    def draw(self, maker: ValueMaker) -> list[int]:
        """Return a permutation: often the identity, a swap of the last two, or the inverse of another."""
        rank = self._drawn_rank(maker)
        plain = list(range(rank))
        chance = maker.rng.random()
        if chance < 0.15:
            return plain
        if chance < 0.3 and rank >= 2:
            return [*plain[:-2], rank - 1, rank - 2]
        if chance < 0.5:
            others = [one for one in maker.names.values() if isinstance(one, list) and _is_permutation(one, rank)]
            if others:
                other = maker.rng.choice(others)
                return [other.index(dim) for dim in plain]
        return maker.rng.sample(plain, rank)


@dataclass(frozen=True, kw_only=True)
class AxesVariable(AboutVariable):
    """Some of the dims, counted from the front, each at most once, in any order."""

    KEYWORDS = ("axes",)
    EXAMPLES: ClassVar = {"axes of x": "some dims of x"}

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool | None:
        """Whether a value is of the type."""
        if not _plain_integers(value) or len(set(value)) != len(value):
            return False
        rank = self._rank(names)
        return None if rank is None else all(0 <= axis < rank for axis in value)

    def draw(self, maker: ValueMaker) -> list[int]:
        """Return some dims, mostly in order."""
        rank = self._drawn_rank(maker)
        if rank and maker.rng.random() < 0.3:
            return [rank - 1]
        chosen = maker.rng.sample(range(rank), maker.rng.randint(0, rank))
        return chosen if maker.rng.random() < 0.2 else sorted(chosen)


@dataclass(frozen=True, kw_only=True)
class AxisVariable(AboutVariable):
    """One of the dims, counted from the front or from the back; tensors without dims have none."""

    KEYWORDS = ("axis", "dim")
    EXAMPLES: ClassVar = {"axis of x": "one dim of x; `dim of x` is the same"}
    IS_NUMBER = True

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool | None:
        """Whether a value is of the type."""
        if type(value) is not int:
            return False
        rank = self._rank(names)
        return None if rank is None else -rank <= value < rank

    def draw(self, maker: ValueMaker) -> int:
        """Return a dim."""
        rank = self._drawn_rank(maker)
        if rank == 0:
            raise UnsolvedError
        return maker.rng.randrange(-rank, rank)


@dataclass(frozen=True, kw_only=True)
class FactorsVariable(AboutVariable):
    """A shape with as many elements."""

    KEYWORDS = ("factors",)
    EXAMPLES: ClassVar = {"factors of x": "what x can be viewed as"}

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool | None:
        """Whether a value is of the type."""
        if not _is_shape(value):
            return False
        sizes = sizes_of(names[self.of]) if self.of in names else None
        return None if sizes is None else equal(product(list(value)), product(sizes))

    def draw(self, maker: ValueMaker) -> list[int]:
        """Return a shape whose sizes are made of the same primes."""
        sizes = self._drawn_sizes(maker)
        if maker.rng.random() < 0.2:
            return [int(size) for size in sizes]
        return _factored(maker.rng, int(product(sizes)))

    def draw_symbolic(self, maker: ValueMaker) -> list[Size]:
        """Return the sizes themselves, two of them merged, in another order, or in one dim."""
        sizes = self._drawn_sizes(maker)
        chance = maker.rng.random()
        if chance < 0.3:
            return list(sizes)
        if chance < 0.6 and len(sizes) >= 2:
            at = maker.rng.randrange(len(sizes) - 1)
            return [*sizes[:at], sizes[at] * sizes[at + 1], *sizes[at + 2 :]]
        if chance < 0.8:
            return maker.rng.sample(list(sizes), len(sizes))
        return [product(sizes)] if chance < 0.9 else [*sizes, 1]


@dataclass(frozen=True, kw_only=True)
class PartitionVariable(AboutVariable):
    """Sizes of at least one part that a dim is split into, none of them negative.

    Attributes:
        at: The dim: an integer, or the name of a variable.
    """

    KEYWORDS = ("partition",)
    EXAMPLES: ClassVar = {
        "partition of x at 0": "for a split of dim 0",
        "partition of x at d": "d is an `axis of x`",
    }

    at: int | str = 0

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Self:
        """Parse `of x at 0`."""
        variable = super().parse(scanner, keyword)
        scanner.expect("at", "after the tensor, before the dim")
        sign = -1 if scanner.accept("-") else 1
        at = sign * scanner.integer() if scanner.token.kind == "number" else scanner.name("a dim")
        return replace(variable, at=at)

    @cached_property
    def depends_on(self) -> frozenset[str]:
        """The tensor or shape, and the variable of the dim."""
        return frozenset((self.of, self.at)) if isinstance(self.at, str) else frozenset((self.of,))

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        return f"partition of {self.of} at {self.at}"

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool | None:
        """Whether a value is of the type."""
        if not _is_shape(value) or not value:
            return False
        at = value_of(names.get(self.at)) if isinstance(self.at, str) else self.at
        if at is None or self.of not in names:
            return None
        sizes = sizes_of(names[self.of])
        if sizes is None or type(at) is not int or not -len(sizes) <= at < len(sizes):
            return False
        total: Any = 0
        for one in value:
            total = total + value_of(one)
        return equal(total, sizes[at])

    def _drawn_total(self, maker: ValueMaker) -> Size:
        sizes = self._drawn_sizes(maker)
        at = maker.names.get(self.at) if isinstance(self.at, str) else self.at
        if type(at) is not int or not -len(sizes) <= at < len(sizes):
            raise UnsolvedError
        return sizes[at]

    def draw(self, maker: ValueMaker) -> list[int]:
        """Return parts, now and then empty ones."""
        rng, total = maker.rng, int(self._drawn_total(maker))
        cuts = sorted(rng.randint(0, total) for _ in range(rng.choice((0, 1, 1, 2, 3))))
        if total and rng.random() < 0.8:
            cuts = sorted({cut for cut in cuts if 0 < cut < total})
        if len(cuts) == 3:
            # More parts, and empty ones among them, now and then.
            cuts = sorted([*cuts, *(rng.choice(cuts) for _ in range(drawn_length(rng, 0, 0)))])
        edges = [0, *cuts, total]
        return [high - low for low, high in itertools.pairwise(edges)]

    def draw_symbolic(self, maker: ValueMaker) -> list[Size]:
        """Return one part or two."""
        total = self._drawn_total(maker)
        if type(total) is int:
            return list(self.draw(maker))
        return [total] if maker.rng.random() < 0.4 else [1, total - 1]


def _plain_integers(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(type(one) is int for one in value)


def _is_shape(value: Any) -> bool:
    if not isinstance(value, list | tuple):
        return False
    for one in value:
        size = value_of(one)
        if not is_size(size) or compare(">=", size, 0) is not True:
            return False
    return True


def _is_permutation(value: Sequence[Any], rank: int) -> bool:
    return len(value) == rank and all(type(one) is int for one in value) and sorted(value) == list(range(rank))


def _factored(rng: random.Random, count: int) -> list[int]:
    dims = [1] * rng.randint(0 if count == 1 else 1, _LONGEST)
    if count == 0:
        dims = [rng.choice((1, 2, 3)) for _ in dims]
        dims[rng.randrange(len(dims))] = 0
        return dims
    for prime in _primes(count):
        dims[rng.randrange(len(dims))] *= prime
    return dims


def _primes(count: int) -> list[int]:
    found: list[int] = []
    prime = 2
    while count > 1:
        if prime * prime > count:
            prime = count
        while count % prime == 0:
            found.append(prime)
            count //= prime
        prime += 1
    return found
