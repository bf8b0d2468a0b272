"""Numbers, permutations and lists for trials; each agrees with the tensors that it is about."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .literals import Reference, rounded
from .sizes import SizeExpression, product, rank_of, sizes_of
from .solving import UnsolvedError
from .variables import (
    AxesVariable,
    AxisVariable,
    ChoiceVariable,
    FactorsVariable,
    FloatVariable,
    IntVariable,
    ListVariable,
    OperatorVariable,
    PartitionVariable,
    PermutationVariable,
    ScalarVariable,
    ShapeVariable,
    Variable,
)

_LONGEST = 4


class ValueMaker:
    """Makes the values that are no tensors.

    Args:
        rng: Source of chance.
        profile: `normal`, `special` or `boundary`.
        names: Values and sizes that are known.
    """

    def __init__(self, rng: random.Random, profile: str, names: Mapping[str, Any]) -> None:
        self.rng = rng
        self.profile = profile
        self.names = names

    def make(self, variable: Variable) -> Any:
        """Return a value of a type.

        Raises:
            UnsolvedError: There is none for these tensors.
        """
        return _MAKERS[type(variable)](self, variable)

    def _rank(self, of: str) -> int:
        rank = rank_of(self.names.get(of))
        if rank is None:
            raise UnsolvedError
        return rank

    def _bound(self, expression: SizeExpression | None) -> int | None:
        if expression is None:
            return None
        try:
            value = expression.evaluate(self.names)
        except ArithmeticError:
            raise UnsolvedError from None
        if type(value) is not int:
            raise UnsolvedError
        return value

    def integer(self, low: int | None, high: int | None) -> int:
        """Return an integer between bounds.

        Raises:
            UnsolvedError: There is none.
        """
        if low is None:
            low = -4 if high is None else high - 8
        if high is None:
            high = low + 12
        if high < low:
            raise UnsolvedError
        if self.profile == "boundary" and self.rng.random() < 0.5:
            return self.rng.choice((low, high))
        return self.rng.randint(low, high)

    def floating(self, low: float | None, high: float | None) -> float:
        """Return a float between bounds."""
        if low is None and high is None:
            return self._unbounded()
        edges = [one for one in (low, high) if one is not None]
        if self.rng.random() < (0.5 if self.profile == "boundary" else 0.1):
            return self.rng.choice([*edges, *map(rounded, edges)])
        if low is None or high is None or not math.isfinite(high - low):
            spread = abs(self.rng.gauss(0.0, 2.0))
            return low + spread if low is not None and math.isfinite(low) else (high or 0.0) - spread
        if low > 0 and high / low > 10:
            return min(high, max(low, math.exp(self.rng.uniform(math.log(low), math.log(high)))))
        return self.rng.uniform(low, high)

    def _unbounded(self) -> float:
        usual = (0.0, 1.0, -1.0, 0.5, 2.0, self.rng.gauss(0.0, 3.0))
        special = (math.inf, -math.inf, math.nan, -0.0, 1e-45, 3.4028234663852886e38)
        return self.rng.choice(special if self.profile == "special" and self.rng.random() < 0.4 else usual)

    def _int(self, variable: IntVariable) -> int:
        return self.integer(self._bound(variable.low), self._bound(variable.high))

    def _float(self, variable: FloatVariable) -> float:
        return self.floating(variable.low, variable.high)

    def _scalar(self, variable: ScalarVariable) -> float:
        low, high = variable.low, variable.high
        makers: list[Callable[[], float]] = [lambda: self.floating(low, high)]
        ends = [None if one is None or not math.isfinite(one) else one for one in (low, high)]
        least, greatest = (
            (None if ends[0] is None else math.ceil(ends[0])),
            (None if ends[1] is None else math.floor(ends[1])),
        )
        if least is None or greatest is None or least <= greatest:
            makers.append(lambda: self.integer(least, greatest))
        truths = [one for one in (False, True) if (low is None or one >= low) and (high is None or one <= high)]
        if truths:
            makers.append(lambda: self.rng.choice(truths))
        return self.rng.choice(makers)()

    def _choice(self, variable: ChoiceVariable) -> Any:
        one = self.rng.choice(variable.choices)
        return self.names[one.name] if isinstance(one, Reference) else one.value

    def _list(self, variable: ListVariable) -> list[Any]:
        count = drawn_length(self.rng, 0, _LONGEST) if variable.count is None else self._bound(variable.count)
        if count is None or not 0 <= count <= 64:
            raise UnsolvedError
        one: Callable[[], Any]
        if variable.element == "bool":
            one = lambda: self.rng.random() < 0.5  # noqa: E731
        elif variable.element == "float":
            low, high = variable.low, variable.high
            one = lambda: self.floating(low, high)  # type: ignore[arg-type] # noqa: E731
        else:
            least, greatest = self._bound(variable.low), self._bound(variable.high)  # type: ignore[arg-type]
            shape = self._shape_that_fits(count, least, greatest)
            if shape is not None:
                return shape
            one = lambda: self.integer(least, greatest)  # noqa: E731
        if self.rng.random() < 0.4:
            return [one()] * count
        return [one() for _ in range(count)]

    def _shape_that_fits(self, count: int, low: int | None, high: int | None) -> list[Any] | None:
        """Return, now and then, the shape of a tensor: guards like to compare a list with one."""
        if self.rng.random() < 0.7:
            return None
        for name in self.names:
            sizes = sizes_of(self.names[name])
            if sizes is None or len(sizes) != count or not hasattr(self.names[name], "shape"):
                continue
            if all((low is None or size >= low) and (high is None or size <= high) for size in sizes):
                return list(sizes)
        return None

    def _shape(self, variable: ShapeVariable) -> list[int]:
        tensors = [sizes for value in self.names.values() if hasattr(value, "shape") and (sizes := sizes_of(value))]
        if tensors and self.rng.random() < 0.5:
            return [int(size) for size in self.rng.choice(tensors)]
        return [self.rng.choice((0, 1, 1, 2, 3, 5)) for _ in range(self.rng.randint(0, _LONGEST))]

    def _permutation(self, variable: PermutationVariable) -> list[int]:
        rank = self._rank(variable.of)
        plain = list(range(rank))
        chance = self.rng.random()
        if chance < 0.15:
            return plain
        if chance < 0.3 and rank >= 2:
            return [*plain[:-2], rank - 1, rank - 2]
        if chance < 0.5:
            others = [one for one in self.names.values() if isinstance(one, list) and _is_permutation(one, rank)]
            if others:
                other = self.rng.choice(others)
                return [other.index(dim) for dim in plain]
        return self.rng.sample(plain, rank)

    def _axes(self, variable: AxesVariable) -> list[int]:
        rank = self._rank(variable.of)
        if rank and self.rng.random() < 0.3:
            return [rank - 1]
        chosen = self.rng.sample(range(rank), self.rng.randint(0, rank))
        return chosen if self.rng.random() < 0.2 else sorted(chosen)

    def _axis(self, variable: AxisVariable) -> int:
        rank = self._rank(variable.of)
        if rank == 0:
            raise UnsolvedError
        return self.rng.randrange(-rank, rank)

    def _factors(self, variable: FactorsVariable) -> list[int]:
        sizes = sizes_of(self.names.get(variable.of))
        if sizes is None:
            raise UnsolvedError
        if self.rng.random() < 0.2:
            return [int(size) for size in sizes]
        return self._factored(int(product(sizes)))

    def _factored(self, count: int) -> list[int]:
        dims = [1] * self.rng.randint(0 if count == 1 else 1, _LONGEST)
        if count == 0:
            dims = [self.rng.choice((1, 2, 3)) for _ in dims]
            dims[self.rng.randrange(len(dims))] = 0
            return dims
        for prime in _primes(count):
            dims[self.rng.randrange(len(dims))] *= prime
        return dims

    def _partition(self, variable: PartitionVariable) -> list[int]:
        sizes = sizes_of(self.names.get(variable.of))
        at = self.names.get(variable.at) if isinstance(variable.at, str) else variable.at
        if sizes is None or type(at) is not int or not -len(sizes) <= at < len(sizes):
            raise UnsolvedError
        total = int(sizes[at])
        cuts = sorted(self.rng.randint(0, total) for _ in range(self.rng.choice((0, 1, 1, 2, 3))))
        if total and self.rng.random() < 0.8:
            cuts = sorted({cut for cut in cuts if 0 < cut < total})
        if len(cuts) == 3:
            # More parts, and empty ones among them, now and then.
            cuts = sorted([*cuts, *(self.rng.choice(cuts) for _ in range(drawn_length(self.rng, 0, 0)))])
        edges = [0, *cuts, total]
        return [high - low for low, high in itertools.pairwise(edges)]

    def _operator(self, variable: OperatorVariable) -> Any:
        return self.rng.choice(variable.operators())


def drawn_length(rng: random.Random, least: int, most: int) -> int:
    """Return the length of a list: mostly a short one, and beyond `most` now and then.

    What decides about long ones is looked at and not drawn, so that all else is as it was without them.
    """
    count = rng.randint(least, most)
    ahead = random.Random()
    ahead.setstate(rng.getstate())
    return count if count < most or ahead.random() < 0.75 else most + ahead.randint(1, 5)


def _is_permutation(value: Sequence[Any], rank: int) -> bool:
    return len(value) == rank and all(type(one) is int for one in value) and sorted(value) == list(range(rank))


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


_MAKERS: dict[type[Variable], Callable[[ValueMaker, Any], Any]] = {
    IntVariable: ValueMaker._int,
    FloatVariable: ValueMaker._float,
    ScalarVariable: ValueMaker._scalar,
    ChoiceVariable: ValueMaker._choice,
    ListVariable: ValueMaker._list,
    ShapeVariable: ValueMaker._shape,
    PermutationVariable: ValueMaker._permutation,
    AxesVariable: ValueMaker._axes,
    AxisVariable: ValueMaker._axis,
    FactorsVariable: ValueMaker._factors,
    PartitionVariable: ValueMaker._partition,
    OperatorVariable: ValueMaker._operator,
}
