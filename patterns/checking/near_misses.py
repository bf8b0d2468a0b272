"""Near misses: almost the pattern, and not to be rewritten. Each part of a rule has to show what it is for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.defined import TensorBuilder

from .near_miss_parts import Part, others_than, parts_of
from .numeric_agreement import disagreement
from .pattern_execution import CannotRunError, PatternRun
from .trials import RAISED, RuleTrials, Trial, shown
from .user_conditions import with_another_user

_TRIALS = 60
_GUARD_TRIALS = 400
# Guards that are not about results are tried only to see whether they are rightly called so.
_TRIALS_OF_LABELS = 20
_PROGRAMS = 6

Outcome = Literal["witness", "none", "not_run", "no_other", "structural"]
"""What became of a part: values show what it is for; they show nothing; nothing else can be run instead; there is
nothing else; or it speaks of the graph around the match."""


@dataclass(frozen=True)
class NearMiss:
    """One part of a rule, and what happens without it.

    Attributes:
        what: `guard`, `literal`, `default` or `repeated`.
        text: The part.
        witness: Values for which the rule would be wrong without it, and how; None if none was found.
        problem: What differs for them.
        tried: How many values were tried.
        is_structural: It speaks of the graph around the match, which no values can show.
        outcome: What became of it.
        number: Number of the trial that is the witness.
        instead: What replaced the part.
    """

    what: str
    text: str
    witness: dict[str, str] | None
    problem: str | None
    tried: int
    is_structural: bool = False
    outcome: Outcome = "none"
    number: int | None = None
    instead: str | None = None


@dataclass(frozen=True)
class Attempt:
    """One trial without a part.

    Attributes:
        names: Values.
        instead: What replaced the part.
        problem: How the results differ; None if they do not.
    """

    names: Mapping[str, Any]
    instead: str | None
    problem: str | None


class NearMisses:
    """Looks for witnesses.

    Args:
        trials: Of the rule.
    """

    def __init__(self, trials: RuleTrials) -> None:
        self.trials = trials
        self.rule: CompiledRule = trials.rule
        self.parts = parts_of(trials.rule)

    def all(self) -> Iterator[NearMiss]:
        """Yield what became of every guard, literal, default and repeated variable."""
        for part in self.parts:
            yield self.search(part)

    def search(self, part: Part) -> NearMiss:
        """Look for a witness."""
        if part.is_structural:
            return NearMiss("guard", part.text, None, None, 0, is_structural=True, outcome="structural")
        if part.term is not None and not part.others:
            return NearMiss(part.kind, part.text, None, None, 0, outcome="no_other")
        most, numbers = self._limits(part)
        tried = 0
        for number in range(1, numbers):
            for attempt in self.attempts(part, number):
                tried += 1
                if attempt.problem is not None:
                    witness = shown(self.rule, attempt.names)
                    return NearMiss(
                        part.kind, part.text, witness, attempt.problem, tried, outcome="witness", number=number,
                        instead=attempt.instead, is_structural=part.users_of is not None,
                    )  # fmt: skip
            if tried >= most:
                break
        outcome: Outcome = "none" if tried or part.kind == "guard" else "not_run"
        return NearMiss(part.kind, part.text, None, None, tried, part.users_of is not None, outcome)

    def _limits(self, part: Part) -> tuple[int, int]:
        """Return how many attempts to make, and how many trials to make them of."""
        if part.users_of is not None:
            return _PROGRAMS, _PROGRAMS * 10
        if part.kind != "guard":
            return _TRIALS * 3, _TRIALS
        return (_TRIALS if self.rule.guards[part.index].kind == "sound" else _TRIALS_OF_LABELS), _GUARD_TRIALS

    def attempts(self, part: Part, number: int) -> Iterator[Attempt]:
        """Yield what happens without a part in one trial; nothing if it cannot be run so."""
        if part.users_of is not None:
            return self._with_another_user(part, number, part.users_of)
        if part.kind == "guard":
            return self._without_guard(part, number)
        return self._changed_pattern(part, number)

    def _with_another_user(self, part: Part, number: int, name: str) -> Iterator[Attempt]:
        trial, _ = self.trials.trial(number, profile="normal")
        if trial is None:
            return
        try:
            problem = with_another_user(self.trials, trial, part.index, name)
        except Exception:  # Whatever torch.export raises: without a program there is nothing to examine.
            return
        yield Attempt(trial.names, None, problem)

    def _without_guard(self, part: Part, number: int) -> Iterator[Attempt]:
        trial, _ = self.trials.trial(number, unless=part.index)
        if trial is not None:
            yield Attempt(trial.names, None, self.trials.judge(trial))

    def _changed_pattern(self, part: Part, number: int) -> Iterator[Attempt]:
        trial, _ = self.trials.trial(number)
        if trial is None:
            return
        others = part.others if part.term is not None else others_than(trial.names.get(part.text))
        for other in others:
            result = self._run(part, trial, other)
            if result is not None:
                yield Attempt(trial.names, _text(other), self._against_replacement(trial, result))

    def _run(self, part: Part, trial: Trial, other: Any) -> list[Any] | None:
        """Run the pattern with something else in it; None if it cannot be run so."""
        names = {key: value for key, value in trial.names.items() if key not in self.rule.pattern.named}
        changed = {id(part.term): other} if part.term is not None else {}
        split = {} if part.term is not None else {part.text: other}
        run = PatternRun(self.rule.pattern, names, trial.shape, TensorBuilder(), changed=changed, split=split)
        try:
            with torch.no_grad():
                result = run.run()
        except (CannotRunError, *RAISED):
            return None
        return result if run.was_changed else None

    def _against_replacement(self, trial: Trial, result: list[Any]) -> str | None:
        try:
            found = self.trials.replaced(trial.names)
        except Exception as error:  # Whatever it raises, it is not what the pattern gives.
            return f"{type(error).__name__}"
        return disagreement(result, found, self.rule.rule.equiv)


def _text(other: Any) -> str:
    return f"{other.dtype} {list(other.shape)}" if isinstance(other, torch.Tensor) else repr(other)
