"""Trials of analyses that demand: cutting arguments to what a row needs changes nothing of what is needed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from exirkit.ir import Diagnostic
from exirkit.patterns.functions.ranges import Range, widest
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.expressions import ExpressionError
from exirkit.patterns.syntax.terms import Operator

from .demands import Demands, Need, Shorter, cut
from .domains import RANGES
from .draws import FAILURES, drawn_calls, first_line
from .fitting import called, results_in, slots_of, with_tensors
from .squares import RowVerdict, shown

_DRAWS = 1_500
_NOTHING = 300
_LEAST = 6
_CALLS_OF_TRIAL = 2
_ENDS = (0, 1, -1, 6, 0.5, -3.25)


@dataclass
class _DemandTrial:
    """Trials of one row, or of one shorter call, with one operator.

    Attributes:
        made: The analysis.
        row: The row.
        op: The operator.
        seed: Source of the values.
        trials: Calls that are tried.
        found: What is wrong.
        left: Why calls were left out.
    """

    made: Demands
    row: Need | Shorter
    op: Operator
    seed: int
    trials: int
    found: list[Diagnostic] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)

    def run(self) -> int:
        """Try calls until there are enough, or one is wrong; return for how many the claim was true."""
        seed = f"{self.seed}:{self.made.model.id}:{self.row.number}:{name_of(self.op)}"
        rng = random.Random(f"{seed}:needs")
        passed = 0
        for number, named in enumerate(drawn_calls(self.made, self.op, seed)):
            if number >= _DRAWS or passed >= _CALLS_OF_TRIAL * self.trials or (number >= _NOTHING and not passed):
                break
            if isinstance(named, str):
                self.left[named] += 1
                continue
            done = self._try(self._with_elements(named, rng), rng)
            if done is None:
                return passed
            passed += done
        if passed < min(_LEAST, self.trials):
            self._open()
        return passed

    def _with_elements(self, named: Mapping[str, Any], rng: random.Random) -> dict[str, Any]:
        slots = slots_of(self.op, named)
        return with_tensors(named, {(one.name, one.index): RANGES.drawn(one.tensor, rng) for one in slots})

    def _try(self, named: dict[str, Any], rng: random.Random) -> bool | None:
        """Try one call: None if the row is wrong, otherwise whether it spoke of the call."""
        try:
            results = self._results(called(self.op, named))
        except FAILURES as error:
            self.left[f"{name_of(self.op)} raises: {first_line(error)}"] += 1
            return False
        if not any(one.numel() for one in results):
            self.left["a call without elements in its results"] += 1
            return False
        need = _need(results, named, rng)
        row: Need | Shorter | None
        needs: dict[tuple[str, int | None], Range] = {}
        if isinstance(self.row, Need):
            row, needs = self.made.needs(self.op, named, results[0], need)
        else:
            row = self.made.shorter_call(self.op, named, results[0], need)
        if row is not self.row:
            self.left["a call that the row leaves to another one"] += 1
            return False
        try:
            given = self._given(named, needs)
        except (ExpressionError, *FAILURES) as error:
            self._wrong(f"it cannot be computed: {first_line(error)}", named, need, needs)
            return None
        problem = _difference(results, given, need)
        if problem is not None:
            self._wrong(problem, named, need, needs)
            return None
        return True

    def _results(self, value: Any) -> list[torch.Tensor]:
        """Return the results that the need speaks of: of a tuple the first one."""
        results = results_in(value)
        return results if str(self.op._schema.returns[0].type) == "List[Tensor]" else results[:1]

    def _given(self, named: Mapping[str, Any], needs: Mapping[tuple[str, int | None], Range]) -> list[torch.Tensor]:
        if isinstance(self.row, Shorter):
            return results_in(self.row.call.run(dict(named), TensorBuilder()))
        slots = {(one.name, one.index): one.tensor for one in slots_of(self.op, named)}
        return self._results(
            called(self.op, with_tensors(named, {key: cut(one, needs[key]) for key, one in slots.items()}))
        )

    def _wrong(
        self, problem: str, named: Mapping[str, Any], need: Range, needs: Mapping[tuple[str, int | None], Range]
    ) -> None:
        notes = [f"{name} = {shown(one)}" for name, one in named.items() if one is not None]
        notes.append(f"needed of the result: {need.text()}")
        for (name, at), one in needs.items():
            notes.append(f"then needed of {name}{'' if at is None else f'[{at}]'}: {one.text()}")
        is_row = isinstance(self.row, Need)
        what = "needs more of its arguments" if is_row else "gives something else that is needed"
        self.found.append(
            self.row.text.diagnostic(
                "EK257" if is_row else "EK258",
                f"row {self.row.number} is wrong for {name_of(self.op)}, which {what}: {problem}",
                notes=tuple(notes),
                hint="say `where` it holds" + (", or that more is needed" if is_row else ""),
            )
        )

    def _open(self) -> None:
        reasons = "; ".join(f"{count} times {reason}" for reason, count in self.left.most_common(2))
        message = f"row {self.row.number} cannot be tried for {name_of(self.op)}: {reasons or 'nothing could be drawn'}"
        hint = f"say under `draw` how calls of {name_of(self.op)} are made"
        self.found.append(self.row.text.diagnostic("EK293", message, hint=hint))


def check_demands(made: Demands, seed: int, trials: int) -> tuple[list[RowVerdict], list[Diagnostic]]:
    """Try all rows of an analysis that demands.

    Returns:
        What is known of each row, and what is wrong: EK257, a call needs more of its arguments; EK258, what replaces
        a call gives something else; EK293, a row cannot be tried.
    """
    verdicts, found = [], []
    rows: list[Need | Shorter] = [*made.rows, *made.shorter]
    for row in rows:
        passed = 0
        for op in row.ops:
            trial = _DemandTrial(made, row, op, seed, trials)
            passed += trial.run()
            found += trial.found
        verdicts.append(RowVerdict(row.number, row.place(), len(row.ops), passed))
    return verdicts, found


def _need(results: Sequence[torch.Tensor], named: Mapping[str, Any], rng: random.Random) -> Range:
    """Return what may be needed: limits among the elements, the numbers of the call, and few others, or none."""
    all_of_it = widest(results[0].dtype)
    if results[0].dtype.is_complex or results[0].dtype == torch.bool:
        return all_of_it
    elements = [one for result in results for one in result.flatten()[:64].tolist() if one == one]
    numbers = [one for one in named.values() if isinstance(one, int | float) and not isinstance(one, bool)]
    ends: list[Any] = [all_of_it.lo, all_of_it.hi]
    pools: list[Any] = [one for one in (elements, numbers, _ENDS) if one]
    ends += [rng.choice(rng.choice(pools)) for _ in range(4)]
    lo, hi = sorted(rng.sample(ends, 2))
    return RANGES.of_result([lo, hi], results[0], may_be_nan=True)


def _difference(wanted: Sequence[torch.Tensor], found: Sequence[torch.Tensor], need: Range) -> str | None:
    if len(wanted) != len(found):
        return f"{len(found)} results instead of {len(wanted)}"
    for one, other in zip(wanted, found, strict=True):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return f"{other.dtype}{list(other.shape)} instead of {one.dtype}{list(one.shape)}"
        first, second = cut(one, need), cut(other, need)
        is_same = (first == second) | ((first != first) & (second != second))
        if not bool(is_same.all()):
            place = int((~is_same).flatten().nonzero()[0, 0])
            return f"element {place} is {other.flatten()[place].item()!r} and was {one.flatten()[place].item()!r}"
    return None
