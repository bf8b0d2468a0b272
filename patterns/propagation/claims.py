"""Trials of analyses that infer: what a row says must be true of the results whenever its premises are true."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from exirkit.ir import Diagnostic
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.terms import Operator

from .draws import FAILURES, drawn_calls, first_line
from .fitting import called, results_in, slots_of
from .inference import Claim, Inference
from .squares import RowVerdict, shown, with_elements

_DRAWS = 1_500
_NOTHING = 300
_LEAST = 6
# What is claimed of elements is wrong for few of them.
_CALLS_OF_TRIAL = 4


@dataclass
class ClaimTrial:
    """Trials of one row with one operator.

    Attributes:
        inference: The analysis.
        row: The row.
        op: The operator.
        seed: Source of the values.
        trials: Calls that are tried.
        found: What is wrong.
    """

    inference: Inference
    row: Claim
    op: Operator
    seed: int
    trials: int
    found: list[Diagnostic] = field(default_factory=list)
    left: Counter[str] = field(default_factory=Counter)

    def run(self) -> int:
        """Try calls until there are enough, or one is wrong; return for how many the claim was true."""
        seed = f"{self.seed}:{self.inference.model.id}:{self.row.number}:{name_of(self.op)}"
        rng = random.Random(f"{seed}:elements")
        passed = 0
        for number, named in enumerate(drawn_calls(self.inference, self.op, seed)):
            if number >= _DRAWS or passed >= _CALLS_OF_TRIAL * self.trials or (number >= _NOTHING and not passed):
                break
            if isinstance(named, str):
                self.left[named] += 1
                continue
            done = self._try(with_elements(self.inference, self.op, named, rng), rng)
            if done is None:
                return passed
            passed += done
        if passed < min(_LEAST, self.trials):
            self._open()
        return passed

    def _try(self, named: dict[str, Any], rng: random.Random) -> bool | None:
        """Try one call: None if the claim is wrong, otherwise whether the row spoke of it."""
        domain = self.inference.domain
        known = {}
        for slot in slots_of(self.op, named):
            known[id(slot.tensor)] = domain.weaker(domain.of_tensor(slot.tensor), slot.tensor, rng)
        try:
            result = called(self.op, named)
        except FAILURES as error:
            self.left[f"{name_of(self.op)} raises: {first_line(error)}"] += 1
            return False
        results = results_in(result)
        if not any(one.numel() for one in results):
            self.left["a call without elements in its results"] += 1
            return False
        row, facts = self.inference.infer(self.op, named, results, known)
        if row is not self.row:
            self.left["a call that the row leaves to another one"] += 1
            return False
        if all(fact is None for fact in facts):
            self.left["a call of which nothing follows"] += 1
            return False
        for at, (fact, one) in enumerate(zip(facts, results, strict=True)):
            problem = domain.problem(fact, one)
            if problem is not None:
                self._wrong(f"{f'result {at}: ' if at else ''}{problem}", named, known)
                return None
        return True

    def _wrong(self, problem: str, named: Mapping[str, Any], known: Mapping[int, Any]) -> None:
        domain = self.inference.domain
        notes = [f"{name} = {shown(one)}" for name, one in named.items() if one is not None]
        notes += [f"{slot.name}: {domain.text(known[id(slot.tensor)])}" for slot in slots_of(self.op, named)]
        self.found.append(
            self.row.text.diagnostic(
                "EK255",
                f"row {self.row.number} is wrong for {name_of(self.op)}: {problem}",
                expected="what follows from the facts of the arguments to be true of the results",
                notes=tuple(notes),
                hint="claim less, say `where` it holds, or `nan` for results that are not a number",
            )
        )

    def _open(self) -> None:
        reasons = "; ".join(f"{count} times {reason}" for reason, count in self.left.most_common(2))
        message = f"row {self.row.number} cannot be tried for {name_of(self.op)}: {reasons or 'nothing could be drawn'}"
        hint = f"say under `draw` how calls of {name_of(self.op)} are made"
        self.found.append(self.row.text.diagnostic("EK293", message, hint=hint))


def check_claims(inference: Inference, seed: int, trials: int) -> tuple[list[RowVerdict], list[Diagnostic]]:
    """Try all rows of an analysis that infers.

    Returns:
        What is known of each row, and what is wrong: EK255, a claim is not true; EK293, it cannot be tried.
    """
    verdicts, found = [], []
    for row in inference.rows:
        passed = 0
        for op in row.ops:
            trial = ClaimTrial(inference, row, op, seed, trials)
            passed += trial.run()
            found += trial.found
        verdicts.append(RowVerdict(row.number, row.place(), len(row.ops), passed))
    return verdicts, found
