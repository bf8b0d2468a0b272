"""Samples whose sizes are symbols, for evaluating a rule once for all sizes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import torch

from exirkit.ir import DimDynamic, FakeTensorMode, ShapeEnv, shape_source
from exirkit.patterns.types.sampling import MAX_ELEMENTS, Cell, Draw, Sample, Sampler, SamplingError
from exirkit.patterns.types.values import UnsolvedError

from .sizes import Size
from .solving import Assignment, Picker, Recipes
from .tensors import TensorVariable

_MOST_TRIES = 50


def symbolic_sample(
    sampler: Sampler, cell: Cell, fake_mode: FakeTensorMode | None = None, rng: random.Random | None = None
) -> Sample:
    """Return fake tensors for a combination of choices, in which every size that has a name is a symbol.

    Args:
        sampler: Of the rule.
        cell: Discrete choices, of `Sampler.sample_instantiations`.
        fake_mode: Mode with a shape environment for the tensors; a new one if none is given.
        rng: Source of chance, for which dims are broadcast.

    Returns:
        A sample. Sizes that are 0 or 1, that are literals, or that conditions order (`H >= K`) stay plain integers.
        Making it installs no guard.

    Raises:
        SamplingError: There are no such values.
    """
    mode = fake_mode or FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    assert mode.shape_env is not None
    rng = rng or random.Random(0)
    for _ in range(_MOST_TRIES):
        draw = _SymbolicDraw(sampler, mode.shape_env, rng)
        try:
            with mode:
                return sampler.finished(draw.draft(cell, _fake_maker(rng)))
        except UnsolvedError:
            continue
    raise SamplingError("these choices have no symbolic sizes")


def _fake_maker(rng: random.Random) -> Any:
    def make(variable: TensorVariable, dtype: torch.dtype, sizes: tuple[Size, ...]) -> torch.Tensor:
        is_last = variable.layouts and len(sizes) == 4 and rng.random() < 0.5
        memory_format = torch.channels_last if is_last else torch.contiguous_format
        return torch.empty(sizes, dtype=dtype, memory_format=memory_format)

    return make


class _SymbolicDraw(Draw):
    may_alias = False
    is_symbolic = True
    has_values = False

    def __init__(self, sampler: Sampler, shape_env: ShapeEnv, rng: random.Random) -> None:
        super().__init__(sampler.ordered, sampler.problem, rng, "normal", MAX_ELEMENTS)
        self.shape_env = shape_env

    def assign(self, cell: Cell, values: dict[str, Any]) -> Assignment:
        """Choose all sizes: symbols where that is possible."""
        known = {name: value for name, value in values.items() if type(value) is int}
        picker = _SymbolPicker(self.shape_env, self.rng, ordered_names(self.problem.recipes))
        made = self.problem.solve(picker, cell.lengths, known)
        for name in self.problem.integers:
            values.setdefault(name, made.values[name])
        return made


def ordered_names(recipes: Recipes) -> frozenset[str]:
    """Return the sizes that conditions compare with others: symbols would have to be guarded for that."""
    found: set[str] = set()
    for atom, recipe in recipes.made.items():
        compared = [*recipe.low, *recipe.high, *recipe.differs_from]
        names = {name for one in compared for name in one.names()}
        found |= names | ({atom} if names or recipe.high or recipe.options else set())
    return frozenset(found)


class _SymbolPicker(Picker):
    def __init__(self, shape_env: ShapeEnv, rng: random.Random, plain: frozenset[str]) -> None:
        self.shape_env = shape_env
        self.rng = rng
        self.plain = plain
        self.hints = _primes()

    def size(self, name: str, low: int, high: int | None) -> int:
        """Return a symbol whose example is a prime that no other symbol has."""
        if name in self.plain or high is not None:
            return self.rng.randint(low, low + 4 if high is None else min(high, low + 64))
        hint = next(self.hints)
        while hint < low:
            hint = next(self.hints)
        source = shape_source(
            f"size_{name.replace('[', '_').replace(']', '').replace('.', '_')}_{hint}", is_constant=True
        )
        symbol = self.shape_env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
        made: int = self.shape_env.create_symintnode(symbol, hint=hint, source=source)  # type: ignore[assignment]
        return made

    def number(self, name: str, low: int, high: int | None) -> int:
        """Return a plain integer."""
        return self.rng.randint(low, low + 12 if high is None else high)


def _primes() -> Iterator[int]:
    found: list[int] = []
    for number in itertools.count(3):
        if number % 2 and all(number % prime for prime in found):
            found.append(number)
            yield number
