"""Trials of a propagation before any graph is seen: rows are commuting squares, and conversions undo each other.

A row says `M(f(x)) == f'(M(x))`: converting and then calling is calling and then converting. Whatever the solver
chooses, a program that only has such squares and conversions in it computes what it did.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from exirkit.ir import Diagnostic, SourceText
from exirkit.patterns.books.model import Equivalence
from exirkit.patterns.checking.numeric_agreement import disagreement
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.constant_names import FACTS
from exirkit.patterns.syntax.expressions import ExpressionError
from exirkit.patterns.syntax.terms import Operator

from .declaration import Propagation, Transfer
from .draws import FAILURES, Tensors, drawn_calls, first_line
from .fitting import called, fits, results_in, row_for, slots_of, with_tensors
from .inference import Answers, Inference
from .model import SAME

_LEAST = 6
_DRAWS = 1_500
_NOTHING = 200
_TENSORS = 60


@dataclass(frozen=True)
class RowVerdict:
    """What trials say of one row.

    Attributes:
        number: Its place in the file, from 1.
        place: Where it stands: `FILE:LINE`.
        operators: How many operators it names.
        trials: Squares that commuted.
    """

    number: int
    place: str
    operators: int
    trials: int


def check_squares(made: Propagation, seed: int, trials: int) -> tuple[list[RowVerdict], list[Diagnostic]]:
    """Try the conversions and all rows of a propagation.

    Args:
        made: The propagation.
        seed: Source of the values.
        trials: Squares of one operator and value.

    Returns:
        What is known of each row, and what is wrong: EK292, a row is not a commuting square; EK293, it cannot be tried;
        EK294, conversions do not undo each other, or a recorded value is not what they make; EK295, a cost is not a
        whole number.
    """
    found, verdicts = _conversions(made, seed), []
    # Squares are made with the conversions.
    for row in () if found else made.rows:
        passed = 0
        for op in row.ops:
            trial = _RowTrial(made, row, op, seed, trials)
            passed += trial.run()
            found += trial.found
        verdicts.append(RowVerdict(row.number, row.place(), len(row.ops), passed))
    if not found:
        verdicts += [RowVerdict(row.number, row.place(), 0, 0) for row in made.delegates]
    return verdicts, found


def converted(made: Propagation, tensor: Any, one: str, other: str, fact: Any = None) -> Any:
    """Return a tensor converted from one value to another.

    Args:
        made: The propagation.
        tensor: The tensor, as it is at the first of the values.
        one: Value that it has.
        other: Value that it gets.
        fact: What is known of it as it is in the program.

    Raises:
        ExpressionError: The program of a conversion cannot be run.
    """
    for program in made.way(one, other):
        tensor = program.run({"x": tensor, FACTS: Answers({id(tensor): fact})}, TensorBuilder())[0]
    return tensor


# Conversions


def _conversions(made: Propagation, seed: int) -> list[Diagnostic]:
    rng = random.Random(f"{seed}:{made.model.id}")
    made = made.knowing(DrawnFacts(made.uses, rng)) if made.uses is not None else made
    drawn = (Tensors(made, rng).covered() for _ in range(_TENSORS))
    tensors = [tensor for tensor in drawn if tensor is not None]
    if not tensors:
        return [made.source.text(("of",)).diagnostic("EK293", "no tensor was found for which `of` holds")]
    found = []
    for one, other in itertools.permutations(made.names, 2):
        problem = _round_trip(made, tensors, one, other)
        if problem is not None:
            direction = f"{one} -> {other}"
            path = ("materialise", direction)
            text = made.source.text(path) if path in made.source.places else made.source.key(("materialise",))
            found.append(text.diagnostic("EK294", f"{direction}: {problem[0]}", notes=problem[1]))
    if not found:
        recorded = (_recorded(made, tensors, value) for value in made.recorded)
        found += [problem for problem in recorded if problem is not None]
    return [*found, *_costs(made, tensors)]


def _round_trip(
    made: Propagation, tensors: Sequence[torch.Tensor], one: str, other: str
) -> tuple[str, tuple[str, ...]] | None:
    """Return what is wrong with converting one value to another and back, and for which tensor."""
    exact = _contract(made, is_exact=True)
    changes = False
    for tensor in tensors:
        note = (f"x = {shown(tensor)}",)
        try:
            fact = made.fact(tensor)
            start = converted(made, tensor, made.first, one, fact)
            there = converted(made, start, one, other, fact)
            back = converted(made, there, other, one, fact)
            direct = converted(made, tensor, made.first, other, fact)
        except (ExpressionError, *FAILURES) as error:
            return f"the conversion cannot be computed: {first_line(error)}", note
        problem = disagreement([start], [back], exact)
        if problem is not None:
            return f"{other} -> {one} does not undo it: {problem}", note
        problem = disagreement([direct], [there], exact)
        if problem is not None:
            return f"it differs from {made.first} -> {other}: {problem}", note
        difference = disagreement([start], [there], exact)
        if difference is not None and made.model.compare == "places":
            return f"a tensor in another place has other elements: {difference}", note
        changes |= difference is not None
    if changes or made.model.compare == "places":
        return None
    hint = "" if made.model.compare == "layouts" else "; for orders in memory write `compare: layouts`"
    return f"it changes nothing that squares compare{hint}", ()


def _recorded(made: Propagation, tensors: Sequence[torch.Tensor], value: str) -> Diagnostic | None:
    """Return what is wrong with the condition by which tensors of a program are known to have a value."""
    text = made.recorded[value].text
    length = len(text.value)
    tried = 0
    for tensor in itertools.chain.from_iterable(map(_layouts, tensors)):
        if made.covers(tensor) and made.recorded_value(tensor) == value:
            tried += 1
            there = converted(made, tensor, made.first, value, made.fact(tensor))
            problem = disagreement([tensor], [there], _contract(made, is_exact=True))
            if problem is not None:
                message = f"a tensor for which this holds is not what {made.first} -> {value} makes: {problem}"
                return text.diagnostic("EK294", message, length=length, notes=(f"x = {shown(tensor)}",))
    if tried:
        return None
    return text.diagnostic("EK293", "no tensor was found for which this holds", length=length)


def _layouts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield a tensor in several orders of elements in memory."""
    yield tensor
    if tensor.dim() == 4:
        yield tensor.contiguous(memory_format=torch.channels_last)
    for order in itertools.islice(itertools.permutations(range(tensor.dim())), 1, 5):
        back = [order.index(dim) for dim in range(tensor.dim())]
        yield tensor.permute(order).contiguous().permute(back)


def _costs(made: Propagation, tensors: Sequence[torch.Tensor]) -> list[Diagnostic]:
    assert made.cost is not None
    text = made.cost.text
    for tensor in tensors:
        try:
            cost = made.cost.value(made.answered({"x": tensor}))
        except (ExpressionError, *FAILURES) as error:
            return [text.diagnostic("EK295", f"the cost cannot be computed: {first_line(error)}")]
        if type(cost) is not int or cost < 0:
            message = f"the cost is {cost!r} for x = {shown(tensor)}, not a whole number from 0"
            return [text.diagnostic("EK295", message, length=len(text.value))]
    return []


class DrawnFacts:
    """What is known of tensors of trials: of those that are drawn the most that can be said, of results what follows.

    Args:
        inference: The analysis that is asked.
        rng: Source of chance.
    """

    def __init__(self, inference: Inference, rng: random.Random) -> None:
        self._inference = inference
        self._rng = rng
        # The tensors are kept: another one could have the identity of one that is gone.
        self._known: dict[int, tuple[Any, Any]] = {}

    def __call__(self, x: Any) -> Any:
        """Return what is known of a tensor."""
        if id(x) not in self._known:
            self._known[id(x)] = x, self._inference.domain.of_tensor(x)
        return self._known[id(x)][1]

    def follow(self, op: Operator, named: Mapping[str, Any], results: Sequence[torch.Tensor]) -> None:
        """Note what follows for the results of a call."""
        known = {id(slot.tensor): self(slot.tensor) for slot in slots_of(op, named)}
        for one, fact in zip(results, self._inference.infer(op, named, results, known)[1], strict=True):
            self._known[id(one)] = one, fact


def with_elements(inference: Inference, op: Operator, named: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return arguments whose tensors have elements that matter to an analysis."""
    read = inference.reads_elements(op)
    slots = [one for one in slots_of(op, named) if one.name not in read]
    made, seed = {}, rng.getrandbits(32)
    for one in slots:
        # Tensors of a list are often alike.
        source = random.Random(seed) if one.index is not None and rng.random() < 0.6 else rng
        made[one.name, one.index] = inference.domain.drawn(one.tensor, source)
    return with_tensors(named, made)


# Rows


@dataclass
class _RowTrial:
    """Trials of one row with one operator.

    Attributes:
        found: What is wrong.
    """

    made: Propagation
    row: Transfer
    op: Operator
    seed: int
    trials: int
    found: list[Diagnostic] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)

    def run(self) -> int:
        """Try squares until there are enough, or one is wrong; return how many commuted."""
        first = self.made.first
        values = [value for value in self.made.names if not self._is_plain(value)] if self.row.is_choice else [first]
        # Values that squares convert something to must each be tried.
        passed = dict.fromkeys(values, 0)
        seed = f"{self.seed}:{self.made.model.id}:{self.row.number}:{name_of(self.op)}"
        rng = random.Random(f"{seed}:elements")
        if self.made.uses is not None:
            self.made = self.made.knowing(DrawnFacts(self.made.uses, random.Random(seed)))
        for number, named in enumerate(drawn_calls(self.made, self.op, seed)):
            if number >= _DRAWS or (number >= _NOTHING and not any(passed.values())):
                break
            if min(passed.values(), default=self.trials) >= self.trials:
                break
            if isinstance(named, str):
                self.left[named] += 1
                continue
            if self.made.uses is not None and self.op in self.made.draws:
                named = with_elements(self.made.uses, self.op, named, rng)
            if not self._try(named, passed):
                return sum(passed.values())
        if min(passed.values(), default=_LEAST) < min(_LEAST, self.trials):
            self._open()
        return sum(passed.values())

    def _is_plain(self, value: str) -> bool:
        """Whether the row leaves a call as it is when `same` has a value."""
        return all(one in (self.made.first, SAME) and (one != SAME or value == self.made.first) for one in self._said())

    def _said(self) -> list[str]:
        args = self.row.model.args
        said = [args] if isinstance(args, str) else list(args.values())
        return [*said, self.row.model.result or self.made.first]

    def _try(self, named: dict[str, Any], passed: dict[str, int]) -> bool:
        """Try the squares of one call; return whether all of them commuted."""
        try:
            result = called(self.op, named)
        except FAILURES as error:
            self.left[f"{name_of(self.op)} raises: {first_line(error)}"] += 1
            return True
        results = results_in(result)
        if not results or not any(one.numel() for one in results):
            self.left["a call without elements in its results"] += 1
            return True
        if isinstance(self.made.facts, DrawnFacts):
            self.made.facts.follow(self.op, named, results)
        if not fits(self.made, self.row, self.op, named, result):
            self.left["a call that the row leaves to the next one"] += 1
            return True
        if row_for(self.made, self.op, named, result) is not self.row:
            self.left["a call that an earlier row takes"] += 1
            return True
        for value in passed:
            problem = self._square(named, results, value)
            if problem is not None:
                self._wrong(problem, named, value)
                return False
            passed[value] += 1
        return True

    def _square(self, named: Mapping[str, Any], results: Sequence[torch.Tensor], value: str) -> str | None:
        """Return how the two ways around the square differ, or None."""
        first = self.made.first

        def chosen(said: str) -> str:
            return value if said == SAME else said

        try:
            tensors = {
                (slot.name, slot.index): self._converted(slot.tensor, chosen(self.row.of_argument(slot.name, first)))
                for slot in slots_of(self.op, named)
            }
            wanted = [self._converted(one, chosen(self.row.model.result or first)) for one in results]
        except (ExpressionError, *FAILURES) as error:
            return f"a conversion cannot be computed: {first_line(error)}"
        given = with_tensors(named, tensors)
        # What is known of arguments is known of them as they are in the program.
        known = {id(tensors[slot.name, slot.index]): self.made.fact(slot.tensor) for slot in slots_of(self.op, named)}
        names = self.made.answered({**given, **self.made.constants(value)}, known)
        try:
            for name, one in self.row.adapt.items():
                given[name] = one.value(names)
            if self.row.call is not None:
                found = results_in(self.row.call.run(names, TensorBuilder()))
            else:
                found = results_in(called(self.op, given))
        except (ExpressionError, *FAILURES) as error:
            return f"the call of converted arguments raises: {first_line(error)}"
        return disagreement(wanted, found, _contract(self.made, row=self.row))

    def _converted(self, tensor: torch.Tensor, value: str) -> torch.Tensor:
        if value == self.made.first or not self.made.covers(tensor):
            return tensor
        made: torch.Tensor = converted(self.made, tensor, self.made.first, value, self.made.fact(tensor))
        return made

    def _wrong(self, problem: str, named: Mapping[str, Any], value: str) -> None:
        which = f" at {value}" if self.row.is_choice else ""
        given = tuple(f"{name} = {shown(one)}" for name, one in named.items() if one is not None)
        message = f"row {self.row.number} is wrong for {name_of(self.op)}{which}: {problem}"
        self.found.append(
            self._text().diagnostic(
                "EK292",
                message,
                expected="converting the results to be as good as converting the arguments",
                notes=given,
                hint="say `where` it holds, or `adapt` the arguments that depend on the value",
            )
        )

    def _open(self) -> None:
        reasons = "; ".join(f"{count} times {reason}" for reason, count in self.left.most_common(2))
        message = f"row {self.row.number} cannot be tried for {name_of(self.op)}: {reasons or 'nothing could be drawn'}"
        hint = f"say under `draw` how calls of {name_of(self.op)} are made"
        self.found.append(self._text().diagnostic("EK293", message, hint=hint))

    def _text(self) -> SourceText:
        return self.row.text


def _contract(made: Propagation, *, is_exact: bool = False, row: Transfer | None = None) -> Equivalence:
    strides = made.model.compare == "layouts" and (row is None or row.model.compare is None)
    if is_exact:
        return Equivalence(mode="exact", strides=strides)
    # Kernels add up in another order where elements stand in another one.
    return Equivalence(mode="approx", rtol=1e-5, atol=1e-6, strides=strides)


def shown(value: Any) -> str:
    """Return a value as a short text."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        numbers = ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in value.flatten()[:6].tolist())
        return f"{dtype}{list(value.shape)} = [{numbers}{', ...' if value.numel() > 6 else ''}]"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    return str(value)
