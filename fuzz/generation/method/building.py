"""What all methods of a program share while it is made: symbols, what is stored, and names."""

from __future__ import annotations

from typing import Literal

import torch

from exirkit.fuzz.generation.choices import Choices
from exirkit.fuzz.generation.policy import PRIMES, Plan
from exirkit.fuzz.programs import Contents, Stored, Symbol, TensorType

from .extents import Affine, Extent, Extents, greatest_count, high_of, plus, symbolic, times
from .values import FLOATS, INTEGERS, Fact, Value, bits_of

_RANKS = (2, 1, 3, 4, 0)
_RANK_WEIGHTS = (0.42, 0.64, 0.82, 0.95, 1.0)
_MOST_ELEMENTS = 2000
_KINDS = {"parameter": "w", "buffer": "b", "constant": "c"}


class Building:
    """The shared part of a program in the making.

    Args:
        choices: Makes all choices.
        plan: What the program is to contain.

    Attributes:
        symbols: Sizes that callers choose.
        stored: Parameters, buffers and constants.
        stored_values: The same, as calls use them.
        inexact: Names of values that executors may compute differently in their last bits.
        undecided: Names of values that such a bit may change at will.
        written: Names of buffers that a method writes.
    """

    def __init__(self, choices: Choices, plan: Plan) -> None:
        self.choices = choices
        self.plan = plan
        self.symbols: list[Symbol] = []
        self.stored: list[Stored] = []
        self.stored_values: list[Value] = []
        self.inexact: set[str] = set()
        self.undecided: set[str] = set()
        self.written: set[str] = set()
        self._count = 0
        self._extents: list[Affine] = []
        self._sides = self._draw_sides()
        if "dynamic" in plan.requests:
            self._draw_symbols()

    def name(self, prefix: str) -> str:
        """Return a name that nothing has."""
        self._count += 1
        return f"{prefix}{self._count}"

    def note(self, value: Value) -> None:
        """Remember what executors may disagree about."""
        if value.fact.is_undecided:
            self.undecided.add(value.name)
        elif value.fact.bits is None:
            self.inexact.add(value.name)

    def requests(self, feature: str) -> bool:
        """Whether the program is to have a feature."""
        return feature in self.plan.requests

    def seed(self) -> int:
        """Return a seed for contents."""
        return self.choices.integer(0, 999)

    def _draw_sides(self) -> tuple[int, ...]:
        if self.requests("equal_sizes"):
            return (self.choices.pick((3, 2, 4, 5)),)
        return PRIMES[:4] if self.choices.chance(0.7) else PRIMES

    def _draw_symbols(self) -> None:
        for index in range(2 if self.requests("two_symbols") else 1):
            low = self.choices.pick((2, 2, 3, 1)) if index == 0 else 2
            high = low + self.choices.pick((5, 3, 1, 9))
            self.symbols.append(Symbol(f"s{index}", low, high))
        self._extents = [symbolic(symbol) for symbol in self.symbols]
        if self.requests("derived_size"):
            first = self._extents[0]
            derived = (plus(first, 1), times(first, 2), plus(times(first, 2), 1))[self.choices.integer(0, 2)]
            assert isinstance(derived, Affine)
            self._extents.append(derived)

    def dynamic_sizes(self) -> tuple[Affine, ...]:
        """Return the sizes with symbols that inputs have."""
        return tuple(self._extents)

    def draw_sizes(self, ranks: tuple[int, int], *, is_static: bool = False, nonempty: bool = False) -> Extents:
        """Return sizes for something fresh: different primes by default."""
        choices = self.choices
        rank = _RANKS[choices.weighted(_RANK_WEIGHTS)]
        rank = min(max(rank, ranks[0]), ranks[1])
        sizes: list[Extent] = []
        left = list(self._sides)
        for _ in range(rank):
            if not left:
                left = list(self._sides)
            if self._extents and not is_static and choices.chance(0.3):
                sizes.append(choices.pick(self._extents))
            elif choices.chance(0.08):
                sizes.append(1)
            else:
                sizes.append(left.pop(choices.integer(0, len(left) - 1)))
        while greatest_count(sizes) > _MOST_ELEMENTS:
            largest = max(range(rank), key=lambda dim: high_of(sizes[dim]))
            sizes[largest] = 2 if sizes[largest] != 2 else 1
        if self.requests("zero_size") and sizes and not nonempty and choices.chance(0.1):
            sizes[choices.integer(0, rank - 1)] = 0
        return tuple(sizes)

    def contents(self, dtype: torch.dtype, low: float = -2, high: float = 2, bits: int = 2) -> Contents:
        """Return contents of a dtype inside an interval."""
        if dtype == torch.bool:
            return Contents(seed=self.seed(), low=0, high=1, bits=0)
        if dtype in INTEGERS:
            low = 0 if dtype == torch.uint8 else low
            return Contents(seed=self.seed(), low=int(low), high=int(high), bits=0)
        special = self.plan.policy.special
        kind: Literal["special", "dyadic"] = "special" if special and self.choices.chance(special) else "dyadic"
        return Contents(kind, self.seed(), low, high, bits)

    def store(
        self, kind: str, dtype: torch.dtype, sizes: Extents, contents: Contents, *, is_inexact: bool = False
    ) -> Value:
        """Add something stored.

        Args:
            kind: `parameter`, `buffer` or `constant`; only floats are parameters.
            dtype: Of its elements.
            sizes: Numbers.
            contents: At the start.
            is_inexact: What is written to it may differ in its last bits.
        """
        if kind == "parameter" and dtype not in FLOATS:
            kind = "constant"
        name = self.name(_KINDS[kind])
        static = tuple(size for size in sizes if isinstance(size, int))
        assert len(static) == len(sizes)
        assert kind in ("parameter", "buffer", "constant")
        self.stored.append(Stored(name, kind, TensorType(dtype, static), contents))  # type: ignore[arg-type]
        value = Value(name, fact_of(dtype, sizes, contents, is_inexact=is_inexact), "stored")
        if is_inexact:
            self.inexact.add(name)
        self.stored_values.append(value)
        return value


def fact_of(dtype: torch.dtype, sizes: Extents, contents: Contents, *, is_inexact: bool = False) -> Fact:
    """Return what is known of a tensor with some contents."""
    low, high, bits = contents.low, contents.high, contents.bits
    if contents.kind == "zeros":
        low, high, bits = 0, 0, 0
    elif contents.kind == "numbers":
        # Zero belongs to every interval: many operators make it of what is not.
        # As they are stored: a third in single precision is more than a third.
        stored = torch.tensor(contents.numbers, dtype=dtype).tolist() if dtype in FLOATS else contents.numbers
        low, high = min((0, *stored)), max((0, *stored))
        grids = [bits_of(number) for number in contents.numbers]
        is_inexact |= None in grids
        bits = max((grid or 0 for grid in grids), default=0)
    grid = None if is_inexact else bits if dtype in FLOATS else 0
    return Fact(dtype, sizes, low, high, grid, contents.layout == "dense")
