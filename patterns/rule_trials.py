"""Trying a rule: pattern and replacement on the same values, made from the types of its variables."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .compiled_rule import CompiledRule
from .defined_ops import TensorBuilder
from .expressions import ExpressionError
from .numeric_agreement import disagreement
from .pattern_execution import CannotRunError, PatternRun, Shape, shapes_of
from .program_compiler import FACTS
from .terms import Variable, walk
from .undecided import UndecidedError, truth
from .variable_sampling import Sample, Sampler
from .variable_types import OperatorVariable, TensorVariable

_RAISED = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError, ZeroDivisionError, OverflowError)
_MOST_MISSES = 40


class TrialFacts:
    """Answers of a graph that was built for one rule: everything about it is as the pattern says."""

    def __init__(self, rule: CompiledRule, values: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> None:
        self.rule = rule
        self.values = values
        self.options = dict(options or {})

    def _names_of(self, x: Any) -> Iterator[str]:
        return (name for name, value in self.values.items() if value is x)

    def is_constant(self, x: Any) -> bool:
        """Whether a type says that it is constant."""
        return self.is_kind(x, "const")

    def value(self, x: Any) -> torch.Tensor | None:
        """Return the tensor itself."""
        return x if isinstance(x, torch.Tensor) else None

    def users(self, x: Any) -> int:
        """Return how often the pattern uses a value: as often as a graph of it alone."""
        for name in self._names_of(x):
            if name in self.rule.pattern.named:
                return max(1, _uses(self.rule, name))
        return 1

    def is_kind(self, x: Any, kind: str) -> bool:
        """Whether the types of variables say so."""
        for name in self._names_of(x):
            variable = self.rule.variables.get(name)
            qualifiers = getattr(variable, "qualifiers", ())
            if kind in qualifiers or (kind == "const" and {"param", "buffer"} & set(qualifiers)):
                return True
        return kind in ("pure", "output") and any(name in self.rule.pattern.named for name in self._names_of(x))

    def operator_name(self, x: Any) -> str:
        """Return the operator of a named term."""
        from .operator_table import name_of

        for name in self._names_of(x):
            op = getattr(self.rule.pattern.named.get(name), "op", None)
            if op is not None:
                return name_of(op)
        return ""

    def range_of(self, size: Any) -> tuple[Any, Any]:
        """Return the size itself."""
        return size, size

    def target_has(self, capability: str) -> bool:
        """Assume that the target can do it."""
        return True

    def option(self, name: str) -> Any:
        """Return an option of the trial."""
        return self.options.get(name)

    def is_legal(self, operator: str) -> bool:
        """Assume that it is."""
        return True

    def rules_behind(self, x: Any) -> tuple[str, ...]:
        """Return nothing: no rule made the values of a trial."""
        return ()


def _uses(rule: CompiledRule, name: str) -> int:
    from .terms import children

    term = rule.pattern.named[name]
    seen: set[int] = set()
    count = 0
    pending: list[Any] = list(rule.pattern.roots)
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        below = list(children(one))
        count += any(child is term for child in below)
        pending += below
    return count


@dataclass
class Trial:
    """One set of values, and what pattern and replacement made of them.

    Attributes:
        seed: What made the values.
        shape: Way through the pattern.
        names: Values of variables, sizes and named terms.
        expected: Results of the pattern.
    """

    seed: str
    shape: Shape
    names: dict[str, Any]
    expected: list[Any] = field(default_factory=list)


@dataclass
class Counterexample:
    """Values for which a rule is wrong.

    Attributes:
        seed: Makes the values again.
        problem: What differs.
        values: Variables and sizes, as text.
    """

    seed: str
    problem: str
    values: dict[str, str]


@dataclass
class PositiveReport:
    """Trials of a rule on values that it is for.

    Attributes:
        passed: Trials in which both agreed.
        cells: Trials by way through the pattern and dtypes.
        rejected: Values that had to be thrown away, by reason.
        counterexamples: Values for which they disagreed.
        open: Why the rule cannot be tried at all.
    """

    passed: int = 0
    cells: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    counterexamples: list[Counterexample] = field(default_factory=list)
    open: str | None = None


class RuleTrials:
    """Makes trials of one rule.

    Args:
        rule: A compiled rule.
        seed: Of all random choices.
    """

    def __init__(self, rule: CompiledRule, *, seed: int = 0) -> None:
        self.rule = rule
        self.seed = seed
        gen = rule.rule.gen
        self.sampler = Sampler(rule.variables, gen=gen)
        self.shapes = list(shapes_of(rule.pattern))
        self.profile = self._profile()

    def positives(self, count: int) -> PositiveReport:
        """Try the rule on values that its types and guards admit."""
        report = PositiveReport()
        misses = 0
        number = 0
        while report.passed < count and len(report.counterexamples) < 3:
            number += 1
            trial, reason = self.trial(number)
            if trial is None:
                report.rejected[reason] += 1
                misses += 1
                if misses > _MOST_MISSES * (report.passed + 5):
                    common = report.rejected.most_common(1)[0][0]
                    report.open = f"{misses} samples gave {report.passed} trials; most often: {common}"
                    break
                continue
            problem = self.judge(trial)
            if problem is None:
                report.passed += 1
                report.cells[self._cell(trial)] += 1
            else:
                report.counterexamples.append(Counterexample(trial.seed, problem, shown(self.rule, trial.names)))
        return report

    def trial(self, number: int, *, unless: int | None = None, profile: str | None = None) -> tuple[Trial | None, str]:
        """Make the n-th trial: values for which the pattern can be computed and the guards hold.

        Args:
            number: Which; the same one is always the same.
            unless: Index of a guard that must not hold, for near misses.
            profile: Values: `normal`, `special` or `boundary`.

        Returns:
            The trial, or None and why there is none.
        """
        seed = f"{self.seed}:{number}"
        rng = random.Random(f"{self.rule.id}:{seed}")
        shape = self.shapes[number % len(self.shapes)]
        chosen = profile or (self.profile if number % 3 else "normal")
        try:
            sample: Sample = self.sampler.sample(rng, chosen)
        except ValueError as error:
            return None, f"no sample: {error}"
        names: dict[str, Any] = {**sample.symbols, **sample.values}
        self._choose_operators(names, rng)
        trial = Trial(seed, shape, names)
        try:
            with torch.no_grad():
                trial.expected = PatternRun(self.rule.pattern, names, shape, TensorBuilder()).run()
        except CannotRunError as error:
            return None, str(error)
        except _RAISED as error:
            return None, f"the pattern raises {type(error).__name__}: {_first_line(error)}"
        names[FACTS] = TrialFacts(self.rule, names)
        for index, guard in enumerate(self.rule.guards):
            holds = self._holds(guard, names)
            if holds is None:
                return None, f"`{guard.text}` cannot be computed"
            if holds == (index == unless):
                return None, f"`{guard.text}` is {holds}"
        return trial, ""

    def _holds(self, guard: Any, names: Mapping[str, Any]) -> bool | None:
        try:
            return truth(guard.compiled(names)) is True
        except (ExpressionError, UndecidedError, TypeError):
            return None

    def judge(self, trial: Trial, *, names: Mapping[str, Any] | None = None) -> str | None:
        """Run the replacement; return how its results differ from those of the pattern, or None."""
        try:
            found = self.replaced(trial.names if names is None else names)
        except ExpressionError as error:
            return f"the replacement fails: {error.message}"
        except _RAISED as error:
            return f"the replacement raises {type(error).__name__}: {_first_line(error)}"
        return disagreement(trial.expected, found, self.rule.rule.equiv)

    def replaced(self, given: Mapping[str, Any]) -> list[Any]:
        """Return the results of the replacement.

        Raises:
            ExpressionError: It cannot be computed.
        """
        names = dict(given)
        with torch.no_grad():
            if self.rule.let is not None:
                names.update(self.rule.let.assigned(names))
            for case in self.rule.cases:
                if case.when is not None and truth(case.when.compiled(names)) is not True:
                    continue
                if case.let is not None:
                    names.update(case.let.assigned(names))
                return case.replace.run(names, TensorBuilder())
        raise ExpressionError("no case applies")

    def _choose_operators(self, names: dict[str, Any], rng: random.Random) -> None:
        for name, variable in self.rule.variables.items():
            if isinstance(variable, OperatorVariable) and name not in names:
                names[name] = rng.choice(variable.operators())

    def _profile(self) -> str:
        declared = self.rule.rule.verify.values or self.rule.rule.equiv.values
        if declared is not None:
            return declared
        return "special" if self.rule.rule.equiv.is_exact or self.computes_nothing() else "normal"

    def computes_nothing(self) -> bool:
        """Whether the replacement only moves data: whoever drops arithmetic must think of infinities and NaN."""
        from exirkit.ir import traits_of

        return all(traits_of(op).copy_like for case in self.rule.cases for op in case.replace.operators)

    def _cell(self, trial: Trial) -> str:
        dtypes = [
            str(value.dtype).removeprefix("torch.")
            for name in self.rule.variables
            if isinstance(value := trial.names.get(name), torch.Tensor)
        ]
        return " ".join(part for part in (trial.shape.text, *dtypes[:2]) if part)


def shown(rule: CompiledRule, names: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of variables as short texts."""
    return {name: _short(names[name]) for name in rule.variables if name in names}


def _short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        values = ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in value.flatten()[:6].tolist())
        more = ", ..." if value.numel() > 6 else ""
        return f"{dtype}{list(value.shape)} = [{values}{more}]"
    return str(value)


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else ""


def tensor_variables(rule: CompiledRule) -> Sequence[str]:
    """Return the names of variables that are tensors."""
    return [name for name, variable in rule.variables.items() if isinstance(variable, TensorVariable)]


def repeated_variables(rule: CompiledRule) -> Sequence[str]:
    """Return the variables that the pattern has more than once."""
    counts: Counter[str] = Counter()
    for root in rule.pattern.roots:
        counts.update(term.name for term in walk(root) if isinstance(term, Variable))
    return [name for name, count in counts.items() if count > 1]
