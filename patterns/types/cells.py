"""The discrete choices of a sample: dtypes, lengths of sequences, what is missing, and which of a few values."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .literals import Choice
from .solving import SizeProblem
from .variable import Variable

_LENGTH_WEIGHTS = (3, 4, 5, 4, 2, 2)


@dataclass(frozen=True)
class Cell:
    """One combination of discrete choices.

    Attributes:
        dtypes: Dtype of each tensor, and value of each dtype variable, that is free.
        lengths: Length of each sequence that is free.
        absent: Variables that are none.
        choices: What each bool, text and `one_of` is.
    """

    dtypes: Mapping[str, torch.dtype] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    choices: Mapping[str, Choice] = field(default_factory=dict)


class CellSpace:
    """All combinations that the types of a rule allow."""

    def __init__(self, variables: Mapping[str, Variable], problem: SizeProblem) -> None:
        self.dtypes = {name: dtypes for name, one in variables.items() if (dtypes := one.dtype_options())}
        self.lengths = problem.free_lengths()
        self.optional = tuple(name for name, one in variables.items() if one.allows_none)
        self.choices = {name: options for name, one in variables.items() if (options := one.choice_options())}

    def random(self, rng: random.Random) -> Cell:
        """Return a combination; tensors have one dtype more often than chance would have it."""
        shared = None
        if self.dtypes and rng.random() < 0.4:
            shared = rng.choice(rng.choice(tuple(self.dtypes.values())))
        dtypes = {
            name: shared if shared is not None and shared in options else rng.choice(options)
            for name, options in self.dtypes.items()
        }
        lengths = {
            name: rng.choices(options, [_LENGTH_WEIGHTS[min(one, len(_LENGTH_WEIGHTS) - 1)] for one in options])[0]
            for name, options in self.lengths.items()
            if options
        }
        absent = frozenset(name for name in self.optional if rng.random() < 0.35)
        return Cell(dtypes, lengths, absent, {name: rng.choice(options) for name, options in self.choices.items()})

    def count(self) -> int:
        """Return the number of combinations."""
        total = 1
        for options in self._axes():
            total *= len(options[1])
        return total

    def cells(self, limit: int) -> Iterator[Cell]:
        """Yield all combinations, or at most `limit` of them, in which every single choice, and most pairs, occur."""
        axes = self._axes()
        if self.count() <= limit:
            for picks in itertools.product(*(options for _, options in axes)):
                yield self._cell(axes, picks)
            return
        rng = random.Random(0)
        seen: set[tuple[int, ...]] = set()
        widest = max(len(options) for _, options in axes)
        for index in range(limit):
            # First every choice of every axis, then chance.
            indices = tuple(
                (index + offset) % len(options) if index < widest else rng.randrange(len(options))
                for offset, (_, options) in enumerate(axes)
            )
            if indices not in seen:
                seen.add(indices)
                yield self._cell(axes, [options[at] for at, (_, options) in zip(indices, axes, strict=True)])

    def _axes(self) -> list[tuple[tuple[str, str], Sequence[Any]]]:
        axes: list[tuple[tuple[str, str], Sequence[Any]]] = []
        axes += [(("dtype", name), options) for name, options in self.dtypes.items()]
        axes += [(("length", name), options) for name, options in self.lengths.items() if options]
        axes += [(("absent", name), (False, True)) for name in self.optional]
        axes += [(("choice", name), options) for name, options in self.choices.items()]
        return axes

    def _cell(self, axes: Sequence[tuple[tuple[str, str], Sequence[Any]]], picks: Sequence[Any]) -> Cell:
        by_kind: dict[str, dict[str, Any]] = {"dtype": {}, "length": {}, "absent": {}, "choice": {}}
        for ((kind, name), _), pick in zip(axes, picks, strict=True):
            by_kind[kind][name] = pick
        absent = frozenset(name for name, is_absent in by_kind["absent"].items() if is_absent)
        return Cell(by_kind["dtype"], by_kind["length"], absent, by_kind["choice"])
