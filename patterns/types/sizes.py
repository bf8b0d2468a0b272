"""Sizes as expressions over names, and the dims of a signature `[*B, 2*K, _]` that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from exirkit.ir import value_of
from exirkit.patterns.syntax.expressions import compare

Size = int | torch.SymInt

_MAX_SCAN = 4096


def is_size(value: object) -> bool:
    """Whether a value is an integer, symbolic or not; bool is none."""
    return type(value) is int or isinstance(value, torch.SymInt)


def rank_of(value: object) -> int | None:
    """Return the number of dims of a tensor, a node's tensor, a list of tensors of one rank, or a shape; or None."""
    value = value_of(value)
    if isinstance(value, torch.Tensor):
        return value.dim()
    if not isinstance(value, list | tuple):
        return None
    first = value_of(value[0]) if value else None
    return first.dim() if isinstance(first, torch.Tensor) else len(value)


def sizes_of(value: object) -> tuple[Size, ...] | None:
    """Return the sizes of a tensor, a node's tensor, or a shape; None if it is neither."""
    value = value_of(value)
    if isinstance(value, torch.Tensor):
        return tuple(value.shape)
    if isinstance(value, list | tuple) and all(map(is_size, value)):
        return tuple(value)
    return None


class SizeExpression:
    """An integer in terms of names."""

    def names(self) -> frozenset[str]:
        """Names that the value depends on."""
        return frozenset()

    def unknowns(self) -> frozenset[str]:
        """Names that may be sizes, and so be found from the value."""
        return frozenset()

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """Return the value; None where a name has none yet.

        Raises:
            ArithmeticError: A division by zero.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Number(SizeExpression):
    """A literal."""

    value: int

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """Return the number."""
        return self.value

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class Name(SizeExpression):
    """A size, or an integer variable."""

    name: str

    def names(self) -> frozenset[str]:
        """The name."""
        return frozenset((self.name,))

    unknowns = names

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """Return what the name is bound to."""
        value = value_of(names.get(self.name))
        return value if is_size(value) else None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Measure(SizeExpression):
    """`len(S)`, `rank(x)` or `numel(x)`."""

    kind: str
    name: str

    def names(self) -> frozenset[str]:
        """The name of what is measured."""
        return frozenset((self.name,))

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """Return the number of dims or elements."""
        if self.name not in names:
            return None
        value = names[self.name]
        if self.kind == "len" and isinstance(value, list | tuple):
            return len(value)
        if self.kind != "numel":
            return rank_of(value)
        sizes = sizes_of(names[self.name])
        return None if sizes is None else product(sizes)

    def __str__(self) -> str:
        return f"{self.kind}({self.name})"


_APPLY: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
}
_BINDING = {"+": 1, "-": 1, "*": 2, "//": 2, "%": 2}


@dataclass(frozen=True)
class Arithmetic(SizeExpression):
    """A sum, difference, product, quotient or remainder."""

    op: str
    left: SizeExpression
    right: SizeExpression

    def names(self) -> frozenset[str]:
        """Names on both sides."""
        return self.left.names() | self.right.names()

    def unknowns(self) -> frozenset[str]:
        """Unknowns on both sides."""
        return self.left.unknowns() | self.right.unknowns()

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        """Return the value; None where a name has none yet."""
        left, right = self.left.evaluate(names), self.right.evaluate(names)
        return None if left is None or right is None else _APPLY[self.op](left, right)

    def __str__(self) -> str:
        return f"{self._side(self.left, 0)} {self.op} {self._side(self.right, 1)}"

    def _side(self, side: SizeExpression, extra: int) -> str:
        is_weaker = isinstance(side, Arithmetic) and _BINDING[side.op] < _BINDING[self.op] + extra
        return f"({side})" if is_weaker else str(side)


def product(sizes: tuple[Size, ...] | list[Size]) -> Size:
    """Return the number of elements of a shape."""
    result: Size = 1
    for size in sizes:
        result = result * size
    return result


def equal(left: object, right: object) -> bool:
    """Whether two sizes are known to be equal; no guard is installed."""
    if type(left) is int and type(right) is int:
        return left == right
    return compare("==", left, right) is True


def solutions(expression: SizeExpression, wanted: Size, names: Mapping[str, Any]) -> Iterator[dict[str, Size]] | None:
    """Return the ways to give the names without value one, so that the expression has a wanted value.

    Returns:
        Assignments, one that is empty where everything has a value and agrees; None if the names must be known first.
    """
    try:
        value = expression.evaluate(names)
    except ArithmeticError:
        return iter(())
    if value is not None:
        return iter(({},) if equal(value, wanted) else ())
    missing = sorted(name for name in expression.names() if Name(name).evaluate(names) is None)
    if len(missing) != 1 or missing[0] not in expression.unknowns():
        return None
    inverted = _inverted(expression, wanted, names)
    if inverted is not None:
        return iter({missing[0]: size} for size in inverted)
    if type(wanted) is not int:
        return None
    return _scanned(expression, wanted, names, missing[0])


def _inverted(expression: SizeExpression, wanted: Size, names: Mapping[str, Any]) -> tuple[Size, ...] | None:
    """Solve for the only unknown if it occurs once, below sums, differences and products."""
    if isinstance(expression, Name):
        return (wanted,) if compare(">=", wanted, 0) is True else ()
    if not isinstance(expression, Arithmetic) or expression.op not in "+-*":
        return None
    left, right = expression.left.evaluate(names), expression.right.evaluate(names)
    if (left is None) == (right is None):
        return None
    known, unknown = (right, expression.left) if left is None else (left, expression.right)
    if expression.op == "+":
        return _inverted(unknown, wanted - known, names)
    if expression.op == "-":
        return _inverted(unknown, wanted + known if left is None else known - wanted, names)
    if equal(known, 0):
        return None
    return _inverted(unknown, wanted // known, names) if equal(wanted % known, 0) else ()


def _scanned(
    expression: SizeExpression, wanted: int, names: Mapping[str, Any], missing: str
) -> Iterator[dict[str, Size]]:
    trial = dict(names)
    for size in range(min(_MAX_SCAN, 4 * abs(wanted) + 64)):
        trial[missing] = size
        try:
            value = expression.evaluate(trial)
        except ArithmeticError:
            continue
        if equal(value, wanted):
            yield {missing: size}


# Dims


@dataclass(frozen=True)
class SizeDim:
    """One dim with a size: `N`, `3`, `2*K`."""

    size: SizeExpression

    def __str__(self) -> str:
        return str(self.size).replace(" ", "") if isinstance(self.size, Arithmetic) else str(self.size)


@dataclass(frozen=True)
class AnyDim:
    """One dim of any size: `_`."""

    def __str__(self) -> str:
        return "_"


@dataclass(frozen=True)
class SequenceDim:
    """Any number of dims: `*B`, or `...` without a name."""

    name: str | None = None

    def __str__(self) -> str:
        return "..." if self.name is None else f"*{self.name}"


@dataclass(frozen=True)
class BroadcastDim:
    """Any number of dims that broadcast to a shape: `~S`."""

    name: str

    def __str__(self) -> str:
        return f"~{self.name}"


Dim = SizeDim | AnyDim | SequenceDim | BroadcastDim
Dims = tuple[Dim, ...]


def dims_text(dims: Dims) -> str:
    """Return the signature in brackets."""
    return f"[{', '.join(map(str, dims))}]"


def bound_names(dims: Dims) -> tuple[str, ...]:
    """Return the names that a shape of this signature gives values, in order."""
    found: dict[str, None] = {}
    for dim in dims:
        if isinstance(dim, SizeDim):
            found.update(dict.fromkeys(sorted(dim.size.unknowns())))
        elif isinstance(dim, SequenceDim) and dim.name is not None:
            found[dim.name] = None
    return tuple(found)


def mentioned_names(dims: Dims) -> frozenset[str]:
    """Return all names in a signature."""
    found: set[str] = set()
    for dim in dims:
        if isinstance(dim, SizeDim):
            found |= dim.size.names()
        elif not isinstance(dim, AnyDim) and dim.name is not None:
            found.add(dim.name)
    return frozenset(found)
