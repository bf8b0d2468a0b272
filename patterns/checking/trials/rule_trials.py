"""Trials of a rule: pattern and replacement are run on the same values, made from the types of its variables."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from exirkit.ir import operators_with
from exirkit.patterns.checking.numeric_agreement import disagreement
from exirkit.patterns.checking.pattern_execution import CannotRunError, PatternRun, Shape, shapes_of
from exirkit.patterns.checking.trials.attributes import shown_attributes, with_carried, with_drawn_attributes
from exirkit.patterns.checking.trials.grids import asked_for, equal_fields, with_grids
from exirkit.patterns.checking.trials.guard_repairs import repairs_of
from exirkit.patterns.checking.trials.open_arguments import chosen_values, least_values, open_arguments, shown_values
from exirkit.patterns.checking.trials.stored_limits import with_limit
from exirkit.patterns.checking.trials.trial_facts import TrialFacts
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.operators.table import traits_of
from exirkit.patterns.syntax.chains import chains_of, shown_chains
from exirkit.patterns.syntax.constant_names import FACTS
from exirkit.patterns.syntax.expressions import ExpressionError, UndecidedError, truth
from exirkit.patterns.syntax.terms import EveryUser
from exirkit.patterns.syntax.value_roots import root_name
from exirkit.patterns.types.conditions import condition
from exirkit.patterns.types.sampling import Sample, Sampler, SamplingError
from exirkit.patterns.types.scalars import OperatorVariable
from exirkit.patterns.types.tensors import TensorVariable

_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_SHOWN = 2


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

    def reasons(self) -> str:
        """Return why values were thrown away, the most frequent reasons first, each with its number.

        Reasons that differ in numbers only are one, of which the first is shown: the numbers are those of a sample.
        """
        kinds: dict[str, tuple[str, int]] = {}
        for reason, count in self.rejected.items():
            kind = _NUMBER.sub("#", reason)
            first, known = kinds.get(kind, (reason, 0))
            kinds[kind] = first, known + count
        ordered = sorted(kinds.values(), key=lambda one: -one[1])
        return "; ".join(f"{count} times {reason}" for reason, count in ordered[:_SHOWN])

    def main_reason(self) -> str:
        """Return the most frequent reason without its number, or nothing."""
        return self.reasons().partition("; ")[0].partition(" times ")[2]


def is_undefined(rule: CompiledRule, values: Iterable[Any]) -> bool:
    """Whether a value has no elements, and the rule has operators whose results are of no use then."""
    if not any(isinstance(value, torch.Tensor) and 0 in value.shape for value in values):
        return False
    return any(op in operators_with("undefined_for_empty") for op in rule.operators)


def is_about_layouts(rule: CompiledRule) -> bool:
    """Whether a rule speaks of strides, so that they are part of what it has to be right for."""
    if rule.rule.equiv.strides or any(getattr(variable, "layouts", False) for variable in rule.variables.values()):
        return True
    if any("is_contiguous" in guard.text or "stride" in guard.text for guard in rule.guards):
        return True
    return any("as_strided" in str(op) for op in rule.operators)


def row_by_row(names: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the same values with all tensors row by row; None if they are so already."""
    dense = {name: value.contiguous() if isinstance(value, torch.Tensor) else value for name, value in names.items()}
    return dense if any(dense[name] is not value for name, value in names.items()) else None


# Operators written in Python raise whatever they like for arguments that they do not take.
RAISED = (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError, AssertionError, AttributeError)
_MOST_MISSES = 40
_WORD = re.compile(r"[A-Za-z_]\w*")
_RAISES = "the pattern raises"


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


class RuleTrials:
    """Makes trials of one rule.

    Args:
        rule: A compiled rule.
        seed: Of all random choices.
    """

    def __init__(self, rule: CompiledRule, *, seed: int = 0) -> None:
        self.rule = rule
        self.seed = seed
        self._samplers: dict[int | None, Sampler] = {}
        self._repairs = repairs_of([guard.text for guard in rule.guards], rule.variables)
        texts = [guard.text for guard in rule.guards]
        self._on_grids, self._of_grids = asked_for(texts), equal_fields(texts)
        self.shapes = list(shapes_of(rule.pattern))
        self.profile = self._profile()
        self.open_arguments = open_arguments(rule.pattern)
        # How many links a chain has, and how many users a value, is drawn alike.
        self._chains = [id(one) for one in chains_of(rule.pattern.terms)]
        self._chains += [id(one) for one in rule.pattern.roots if isinstance(one, EveryUser)]

    @property
    def asks_for_grids(self) -> bool:
        """Whether a condition asks for the grid of a tensor."""
        return bool(self._on_grids)

    def positives(self, count: int) -> PositiveReport:
        """Try the rule on values that its types and guards admit."""
        report = PositiveReport()
        misses = 0
        number = 0
        has_elements = False
        while report.passed < count and len(report.counterexamples) < 3:
            number += 1
            trial, reason = self.trial(number)
            if trial is None:
                report.rejected[reason] += 1
                misses += 1
                if misses > _MOST_MISSES * (report.passed + 5):
                    why = f"{report.reasons()}{self._about_gen(report.rejected)}"
                    report.open = f"{misses} samples gave {report.passed} trials; {why}"
                    break
                continue
            problem = self.judge(trial)
            if problem is None:
                report.passed += 1
                has_elements |= any(not isinstance(one, torch.Tensor) or one.numel() > 0 for one in trial.expected)
                report.cells[self._cell(trial)] += 1
            else:
                opened = shown_values(self.open_arguments, dict(trial.shape.opened))
                values = {**shown(self.rule, trial.names), **opened, **shown_attributes(self.rule, trial.shape)}
                values |= shown_chains(self.rule.pattern.terms, trial.names)
                report.counterexamples.append(Counterexample(trial.seed, problem, values))
        if report.passed and not has_elements and any(one.startswith(_RAISES) for one in report.rejected):
            common = next(one for one, _ in report.rejected.most_common() if one.startswith(_RAISES))
            report.open = f"the only samples that gave trials are empty tensors; for others {common}"
        return report

    def _about_gen(self, rejected: Counter[str]) -> str:
        """Return that `gen` alone leaves no sample, if that is so."""
        gen, common = self.rule.rule.gen, rejected.most_common(1)[0][0]
        if gen is None or not common.startswith("no sample"):
            return ""
        try:
            Sampler(self.rule.variables, gen=[]).sample(random.Random(f"{self.rule.id}:open"), "normal")
        except SamplingError:
            return ""
        return f"; without `gen: {gen}` there are samples, so it contradicts the types, or narrows too much"

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
            sample = self._sample(rng, chosen, unless)
        except SamplingError as error:
            return None, f"no sample: {error}"
        names = self._names(sample, number, unless)
        if chosen == "special" and not self.rule.rule.equiv.is_exact:
            names.update({name: _without_overflow(names[name]) for name in sample.values})
        self._choose_operators(names, number, rng)
        if chosen == "normal" and number % 4 == 0 and not self.rule.rule.equiv.is_exact:
            names.update({name: self._magnified(name, names[name]) for name in sample.values})
        with_grids(names, self._on_grids, self._of_grids, random.Random(f"{self.rule.id}:{seed}:grids"))
        # What a guard is for may be just that: without it tensors without elements come in.
        if unless is None and is_undefined(self.rule, sample.values.values()):
            return None, "an operator that is not defined for empty tensors"
        shape = replace(shape, opened=least_values(self.open_arguments))
        if self._chains:
            lengths = random.Random(f"{self.rule.id}:{seed}:chains")
            shape = replace(
                shape, chains={one: (lengths.randint(0, 3), lengths.getrandbits(32)) for one in self._chains}
            )
        if self.rule.attributes:
            shape = with_drawn_attributes(self.rule, shape, random.Random(f"{self.rule.id}:{seed}:attributes"), unless)
        trial = Trial(seed, shape, names)
        try:
            self._run(trial, random.Random(f"{self.rule.id}:{seed}:open"))
        except CannotRunError as error:
            return None, str(error)
        except RAISED as error:
            where = "".join(f" ({note})" for note in getattr(error, "__notes__", ())[:1])
            return None, f"{_RAISES} {type(error).__name__}: {_first_line(error)}{where}"
        if not self.rule.rule.equiv.is_exact and _reduces_nothing(names.values(), trial.expected):
            return None, "a reduction over nothing"
        names[FACTS] = TrialFacts(self.rule, names, trial.shape)
        problem = self.against_guards(names, unless)
        return (trial, "") if problem is None else (None, problem)

    def _names(self, sample: Sample, number: int, unless: int | None) -> dict[str, Any]:
        """Return the values of a sample, changed so that guards hold that the sampler does not know."""
        tunings = self.rule.tunings
        names: dict[str, Any] = {**sample.symbols, **sample.values, **tunings[number % len(tunings)]}
        for index, repairs in self._repairs.items():
            for repair in repairs if index != unless else ():
                repair(names)
        if self.rule.pattern.kind == "stored" and number % 2 == 0:
            root = root_name(self.rule.pattern)
            names[root] = with_limit(names[root], random.Random(f"{self.rule.id}:{self.seed}:{number}:limit"))
        return names

    def against_guards(self, names: Mapping[str, Any], unless: int | None) -> str | None:
        """Return why a condition, or all but the one of a number, does not hold for values; None if they hold."""
        for index, guard in enumerate(self.rule.guards):
            holds = self._holds(guard, names)
            if holds is None and index == unless and "grid(" in guard.text:
                # Where no grid is known, the rule does not match.
                continue
            if holds is None:
                return f"`{guard.text}` cannot be computed"
            if holds == (index == unless):
                return f"`{guard.text}` is {holds}"
        return None

    def _run(self, trial: Trial, rng: random.Random) -> None:
        """Compute the pattern; arguments that it leaves open have values of their own if it can be computed so."""
        with torch.no_grad():
            if self.open_arguments:
                shape = replace(trial.shape, opened=chosen_values(self.open_arguments, rng))
                names = dict(trial.names)
                try:
                    trial.expected = PatternRun(self.rule.pattern, names, shape, TensorBuilder()).run()
                except RAISED:
                    pass
                else:
                    trial.shape = shape
                    trial.names.update(names)
                    return
            trial.expected = PatternRun(self.rule.pattern, trial.names, trial.shape, TensorBuilder()).run()

    def _magnified(self, name: str, value: Any) -> Any:
        """Return a tensor of larger values: exponentials overflow there, and differences cancel."""
        variable = self.rule.variables.get(name)
        is_free = isinstance(variable, TensorVariable) and variable.domain is None and not variable.qualifiers
        if not is_free or not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
            return value
        # Of equal large values only the rounding of their mean is left, which no contract speaks of.
        return value if bool((value == value.flatten()[0]).all()) else value * 100

    def _holds(self, guard: Any, names: Mapping[str, Any]) -> bool | None:
        try:
            return truth(guard.compiled(names)) is True
        except (ExpressionError, UndecidedError, TypeError):
            return None

    def judge(self, trial: Trial, *, names: Mapping[str, Any] | None = None) -> str | None:
        """Run the replacement; return how its results differ from those of the pattern, or None."""
        given = trial.names if names is None else names
        try:
            problem = self.compared(trial, self.replaced(given))
        except (ExpressionError, *RAISED) as error:
            problem = self._failure(error)
        if problem is None or is_about_layouts(self.rule):
            return problem
        # Kernels that reject or misread odd strides, as some of torch do, are not the rule's business.
        dense = row_by_row(given)
        return problem if dense is None else self._judge_row_by_row(trial, dense)

    def _judge_row_by_row(self, trial: Trial, names: dict[str, Any]) -> str | None:
        again = Trial(trial.seed, trial.shape, names)
        names[FACTS] = TrialFacts(self.rule, names, trial.shape)
        try:
            with torch.no_grad():
                again.expected = PatternRun(self.rule.pattern, names, trial.shape, TensorBuilder()).run()
            return self.compared(again, self.replaced(names))
        except (ExpressionError, CannotRunError, *RAISED) as error:
            return self._failure(error)

    @staticmethod
    def _failure(error: Exception) -> str:
        if isinstance(error, ExpressionError):
            return f"the replacement fails: {error.message}"
        return f"the replacement raises {type(error).__name__}: {_first_line(error)}"

    def compared(self, trial: Trial, found: Sequence[Any]) -> str | None:
        """Return how results differ from those of the pattern under the rule's contract, or None."""
        problem = disagreement(trial.expected, found, self.rule.rule.equiv)
        if problem is None or self.rule.rule.equiv.is_exact:
            return problem
        precise = self._precise(trial)
        problem = disagreement(trial.expected, found, self.rule.rule.equiv, precise)
        if problem is None or precise is None:
            return problem
        shaken = self._precise(trial, is_shaken=True)
        return disagreement(trial.expected, found, self.rule.rule.equiv, precise, shaken)

    def _precise(self, trial: Trial, *, is_shaken: bool = False) -> list[Any] | None:
        """Return the results of the pattern in float64, or None if it does not run in that.

        Args:
            trial: Values.
            is_shaken: Change the last bits of the values before.
        """
        change = _shaken if is_shaken else torch.Tensor.double
        names = {
            name: change(value) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for name, value in trial.names.items()
            if name not in self.rule.pattern.named
        }
        try:
            with torch.no_grad():
                results = PatternRun(self.rule.pattern, names, trial.shape, TensorBuilder()).run()
        except (CannotRunError, *RAISED):
            return None
        pairs = zip(results, trial.expected, strict=True)
        is_alike = all(isinstance(one, torch.Tensor) and one.shape == other.shape for one, other in pairs)
        return results if is_alike else None

    def replaced(self, given: Mapping[str, Any]) -> list[Any]:
        """Return the results of the replacement.

        Raises:
            ExpressionError: It cannot be computed.
        """
        with torch.no_grad():
            results = self.rule.replaced(dict(given), TensorBuilder())
            facts = given.get(FACTS)
            if not self.rule.rule.carried or not isinstance(facts, TrialFacts):
                return results
            return with_carried(self.rule, facts.shape, given, results)

    def _sample(self, rng: random.Random, profile: str, unless: int | None) -> Sample:
        return self._sampler(unless).sample(rng, profile)

    def _sampler(self, unless: int | None) -> Sampler:
        """Return what makes values that satisfy types and guards, but for one guard."""
        if unless not in self._samplers:
            sampler = Sampler(self.rule.variables, gen=_constraints(self.rule, unless))
            try:
                # A fixed attempt, so that a trial depends on its number alone and not on those before it.
                sampler.sample(random.Random(f"{self.rule.id}:{unless}"), self.profile)
            except SamplingError:
                # Guards that the sampler cannot solve for are left to chance.
                sampler = Sampler(self.rule.variables, gen=[self.rule.rule.gen] if self.rule.rule.gen else [])
            self._samplers[unless] = sampler
        return self._samplers[unless]

    def _operator(self, variable: OperatorVariable, number: int, rng: random.Random) -> Any:
        """Return an operator; a rule with tables gets all of them in turn, so that each row is tried equally often."""
        operators = variable.operators()
        return operators[number % len(operators)] if self.rule.tables else rng.choice(operators)

    def _choose_operators(self, names: dict[str, Any], number: int, rng: random.Random) -> None:
        for name, variable in self.rule.variables.items():
            if isinstance(variable, OperatorVariable) and name not in names:
                names[name] = self._operator(variable, number, rng)

    def _profile(self) -> str:
        declared = self.rule.rule.verify.values or self.rule.rule.equiv.values
        if declared is not None:
            return declared
        return "special" if self.rule.rule.equiv.is_exact or self.computes_nothing() else "normal"

    def computes_nothing(self) -> bool:
        """Whether the replacement only moves data: dropping arithmetic must be right for infinities and NaN."""
        operators = [op for case in self.rule.cases for op in case.replace.operators]
        return all(traits_of(op).moves_data or op in operators_with("creates") for op in operators)

    def _cell(self, trial: Trial) -> str:
        dtypes = [
            str(value.dtype).removeprefix("torch.")
            for name in self.rule.variables
            if isinstance(value := trial.names.get(name), torch.Tensor)
        ]
        return " ".join(part for part in (trial.shape.text, *dtypes[:2]) if part)


def _shaken(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float64 with the last bits of its own dtype moved up and down."""
    generator = torch.Generator().manual_seed(value.numel())
    signs = torch.randint(0, 2, value.shape, generator=generator) * 2 - 1
    return value.double() * (1 + signs * torch.finfo(value.dtype).eps)


def _without_overflow(value: Any) -> Any:
    """Return a tensor whose finite values are not near the limits: where sums overflow depends on their order."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return torch.where(torch.isfinite(value) & (value.abs() > 1e3), value.sign() * 1e3, value)


def _reduces_nothing(values: Any, results: Sequence[Any]) -> bool:
    """Whether values come from tensors without elements: what they are then is a convention of each operator."""
    is_empty = any(isinstance(value, torch.Tensor) and not value.numel() for value in values)
    return is_empty and any(isinstance(one, torch.Tensor) and bool(one.numel()) for one in results)


def _constraints(rule: CompiledRule, unless: int | None = None) -> list[str]:
    """Return `gen`, and the guards that speak of sizes only: samples are made to satisfy them, not thrown away."""
    texts = [rule.rule.gen] if rule.rule.gen else []
    for index, guard in enumerate(rule.guards):
        # What `let` computes is known once there are values.
        is_of_let = rule.let is not None and not set(rule.let.assigns).isdisjoint(_WORD.findall(guard.text))
        if index != unless and not is_of_let and _is_condition(guard.text):
            texts.append(guard.text)
    return texts


def _is_condition(text: str) -> bool:
    try:
        condition(text)
    except ExpressionError:
        return False
    return True


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
