"""Enumeration: all graphs of a few calls, the cheapest of those that compute the same, and pairs worth a rule.

Graphs are made of the cheapest ones of fewer calls, so that what holds inside of a graph is not found again around it.
Two graphs are taken for equal if they agree on samples of two sizes, in double precision; whether they are is shown
later, by the trials and the solver that check rules.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from exirkit.patterns.discovery.terms import Costs, Term, call
from exirkit.patterns.discovery.vocabulary import Template, Vocabulary, samples
from exirkit.patterns.operators.targets import Target

LEAST_GAIN = 1.05
"""How many times as much a graph has to cost as the one that takes its place."""

_DIGITS = 1 << 24
_MOST_ELEMENTS = 1 << 26


@dataclass(frozen=True)
class Known:
    """The cheapest graph of those that compute the same.

    Attributes:
        term: The graph.
        values: What it computes of the samples.
        shown: Its result without elements, in the sizes that costs are of.
        costs: Nanoseconds by call.
    """

    term: Term
    values: tuple[torch.Tensor, ...]
    shown: torch.Tensor
    costs: dict[Term, float]

    @property
    def cost(self) -> float:
        """Nanoseconds of all its calls."""
        return sum(self.costs.values())


@dataclass(frozen=True)
class Candidate:
    """Two graphs that seem to compute the same.

    Attributes:
        pattern: The one that costs more.
        replacement: The other one.
        pattern_ns: What it costs.
        replacement_ns: What the other one costs.
    """

    pattern: Term
    replacement: Term
    pattern_ns: float
    replacement_ns: float


class Enumeration:
    """Enumerates graphs, those of fewer calls first.

    Args:
        vocabulary: What they are made of.
        target: What calls cost.
        seed: Of the samples.
    """

    def __init__(self, vocabulary: Vocabulary, target: Target, seed: int = 0) -> None:
        self.vocabulary = vocabulary
        self.seen = 0
        self._costs = Costs(target)
        self._best: dict[tuple[object, ...], Known] = {}
        self._by_size: dict[int, dict[Term, Known]] = {0: {}}
        given = [samples(vocabulary, place, seed) for place in (0, 1)]
        for name in vocabulary.variables:
            shown = torch.empty(vocabulary.shape(name, 2), device="meta")
            one = Known(Term(name), tuple(values[name] for values in given), shown, {})
            self._best[_fingerprint(one.values)] = one
            self._by_size[0][one.term] = one

    def terms(self, calls: int) -> list[Term]:
        """Return the graphs of so many calls that are the cheapest of those that compute the same."""
        return list(self._by_size[calls])

    def of_size(self, calls: int, is_reducible: Callable[[Term], bool]) -> list[Candidate]:
        """Enumerate the graphs of so many calls; those of fewer were enumerated before.

        Args:
            calls: How many.
            is_reducible: Whether a rule that was found before rewrites a graph, which is left out then.

        Returns:
            Pairs, the more general ones first.
        """
        found: list[Candidate] = []
        self._by_size[calls] = {}
        with torch.no_grad():
            for template, operands in self._calls(calls):
                term = Term("", template, tuple(one.term for one in operands))
                if term.size != calls or is_reducible(term):
                    continue
                self.seen += 1
                candidate = self._compare(term, operands)
                if candidate is not None:
                    found.append(candidate)
        return sorted(found, key=_generality)

    def _calls(self, calls: int) -> Iterator[tuple[Template, tuple[Known, ...]]]:
        """Yield calls whose operands have one call less, those that several operands share once."""
        for template in self.vocabulary.templates:
            if template.arity == 1:
                yield from ((template, (one,)) for one in list(self._by_size[calls - 1].values()))
            elif template.arity == 2:
                pairs = itertools.chain(self._apart(calls - 1), self._sharing(calls - 1))
                yield from ((template, pair) for pair in pairs if not template.is_commutative or _in_order(pair))

    def _apart(self, calls: int) -> Iterator[tuple[Known, Known]]:
        for left in range(calls + 1):
            for one in list(self._by_size[left].values()):
                for other in list(self._by_size[calls - left].values()):
                    yield one, other

    def _sharing(self, calls: int) -> Iterator[tuple[Known, Known]]:
        """Yield pairs that have calls in common and consist of so many."""
        above: dict[Term, list[Known]] = {}
        everything = [one for size in range(1, calls + 1) for one in self._by_size[size].values()]
        for one in everything:
            for part in one.term.parts:
                if part.size:
                    above.setdefault(part, []).append(one)
        for one in everything:
            near = {id(other): other for part in one.term.parts if part.size for other in above[part]}
            for other in near.values():
                if len({part for part in (*one.term.parts, *other.term.parts) if part.size}) == calls:
                    yield one, other

    def _compare(self, term: Term, operands: tuple[Known, ...]) -> Candidate | None:
        assert term.template is not None
        try:
            given = tuple(one.shown for one in operands)
            shown = call(term.template, given)
            if shown.numel() > _MOST_ELEMENTS:
                return None
            values = tuple(call(term.template, tuple(one.values[place] for one in operands)) for place in (0, 1))
        except (RuntimeError, IndexError, ValueError, TypeError):
            # Its operands do not fit together.
            return None
        if values[0].dtype is not torch.float64 or _says_nothing(values[0]):
            return None
        costs = {part: cost for one in operands for part, cost in one.costs.items()}
        costs[term] = self._costs.of_call(term.template, given, shown)
        known = Known(term, values, shown, costs)
        if not math.isfinite(known.cost):
            return None
        key = _fingerprint(values)
        best = self._best.get(key)
        if best is None:
            self._best[key] = known
            self._by_size[term.size][term] = known
            return None
        if known.cost < best.cost:
            self._best[key] = known
            if best.term.size:
                del self._by_size[best.term.size][best.term]
            self._by_size[term.size][term] = known
        slow, fast = (known, best) if known.cost >= best.cost else (best, known)
        # What has no tensor left that says the shape cannot be written.
        if slow.cost < LEAST_GAIN * fast.cost or not fast.term.variables <= slow.term.variables:
            return None
        return Candidate(slow.term, fast.term, slow.cost, fast.cost)


def _says_nothing(value: torch.Tensor) -> bool:
    """Whether a result is one number for all inputs, as `x - x` is, where it is a number at all."""
    numbers = value[value.isfinite()]
    return value.numel() != 1 and bool((numbers == numbers[:1]).all())


def _in_order(pair: tuple[Known, Known]) -> bool:
    return pair[0].term.text <= pair[1].term.text


def _generality(one: Candidate) -> tuple[object, ...]:
    """Return what rules are sorted by: few calls for many different variables come first, then what is fast."""
    repeated = one.pattern.occurrences - len(one.pattern.variables)
    return (
        one.pattern.size,
        repeated,
        one.replacement_ns,
        one.replacement.size,
        one.pattern.text,
        one.replacement.text,
    )


def _fingerprint(values: tuple[torch.Tensor, ...]) -> tuple[object, ...]:
    """Return what is equal for tensors whose elements agree in about seven digits."""
    made: list[object] = []
    for value in values:
        array = value.contiguous().numpy()
        finite = np.isfinite(array)
        mantissas, exponents = np.frexp(np.where(finite, array, 0.0))
        rounded = np.round(mantissas * _DIGITS)
        # Of 0.9999999 and 1 both have the mantissa of 1.
        carried = np.abs(rounded) == _DIGITS
        rounded = np.where(carried, rounded / 2, rounded) + 0.0
        exponents = np.where(carried, exponents + 1, exponents)
        special = np.where(finite, 0.0, np.nan_to_num(array, nan=3.0, posinf=1.0, neginf=2.0))
        made += [array.shape, rounded.tobytes(), exponents.tobytes(), special.tobytes()]
    return tuple(made)
