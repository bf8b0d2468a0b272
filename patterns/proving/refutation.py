"""From a model of the solver to a program that torch runs: a rule is refuted only by that."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import z3

from exirkit.patterns.checking.pattern_execution import CannotRunError, PatternRun, shapes_of
from exirkit.patterns.checking.trials.rule_trials import RAISED, RuleTrials, Trial, shown
from exirkit.patterns.checking.trials.trial_facts import TrialFacts
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.proving.elements import Scalar, float_of
from exirkit.patterns.proving.paths import Number, Truth
from exirkit.patterns.proving.tensors import SymbolicTensor
from exirkit.patterns.syntax.constant_names import FACTS
from exirkit.patterns.types.variable import admit

_MOST_ELEMENTS = 4096
_TRIES = 12


@dataclass(frozen=True)
class Refutation:
    """Values for which torch computes different results.

    Attributes:
        problem: What differs.
        values: Variables, as text.
    """

    problem: str
    values: Mapping[str, str]

    @property
    def text(self) -> str:
        """On one line."""
        return f"{self.problem}, for {', '.join(f'{name} = {one}' for name, one in self.values.items())}"


def refuted(rule: CompiledRule, found: Mapping[str, Any] | None) -> Refutation | None:
    """Return values for which the rule is wrong, confirmed by running both sides; None if none were found.

    Args:
        rule: A compiled rule.
        found: The solver's model and the symbolic values of the names, of an attempt to prove it.
    """
    if found is None:
        return None
    model, symbols = found["model"], found["names"]
    for attempt in range(_TRIES):
        names = _concrete(rule, model, symbols, random.Random(f"{rule.id}:{attempt}"), uses_model=attempt == 0)
        if names is None:
            return None
        if rule.rule.equiv.values == "normal" and not _is_finite(names):
            # The rule makes no claim about infinities and NaN.
            continue
        problem = _problem(rule, names)
        if problem is not None:
            return Refutation(problem, shown(rule, names))
    return None


def _is_finite(names: Mapping[str, Any]) -> bool:
    return all(
        bool(one.isfinite().all())
        for one in names.values()
        if isinstance(one, torch.Tensor) and one.is_floating_point()
    )


def tried(rule: CompiledRule, count: int) -> Refutation | None:
    """Return values for which trials find a rule wrong; None if they find none.

    Args:
        rule: A compiled rule.
        count: How many trials are made.
    """
    report = RuleTrials(rule).positives(count)
    if report.counterexamples:
        found = report.counterexamples[0]
        return Refutation(found.problem, found.values)
    if not report.passed:
        return Refutation("trials have no values for it", {})
    return None


def _problem(rule: CompiledRule, names: dict[str, Any]) -> str | None:
    trials = RuleTrials(rule)
    for shape in shapes_of(rule.pattern):
        given = dict(names)
        trial = Trial("model", shape, given)
        if not all(_is_of_type(rule, name, given) for name in rule.variables):
            return None
        try:
            with torch.no_grad():
                trial.expected = PatternRun(rule.pattern, given, shape, TensorBuilder()).run()
        except (CannotRunError, *RAISED):
            continue
        given[FACTS] = TrialFacts(rule, given, shape)
        if trials.against_guards(given, None) is not None:
            continue
        problem = trials.judge(trial)
        if problem is not None:
            return problem
    return None


def _is_of_type(rule: CompiledRule, name: str, names: Mapping[str, Any]) -> bool:
    variable, value = rule.variables[name], names.get(name)
    if not hasattr(variable, "match"):
        return True
    known = {key: one for key, one in names.items() if key != name}
    return any(True for _ in admit(variable, value, known))


def _concrete(
    rule: CompiledRule, model: Any, symbols: Mapping[str, Any], rng: random.Random, *, uses_model: bool
) -> dict[str, Any] | None:
    names: dict[str, Any] = {}
    for name, value in symbols.items():
        if name.startswith("$") or name == FACTS or name in rule.pattern.named:
            continue
        made = _value(model, value, rng, uses_model)
        if made is _TOO_LARGE:
            return None
        names[name] = made
    return names


_TOO_LARGE = object()


def _value(model: Any, value: Any, rng: random.Random, uses_model: bool) -> Any:
    if isinstance(value, SymbolicTensor):
        return _tensor(model, value, rng, uses_model)
    if isinstance(value, Number):
        return model.eval(value.term, model_completion=True).as_long()
    if isinstance(value, Scalar):
        found = float_of(model.eval(value.term, model_completion=True))
        return 0.5 if found is None else found
    if isinstance(value, Truth):
        return bool(z3.is_true(model.eval(value.term, model_completion=True)))
    if isinstance(value, list | tuple):
        made = [_value(model, one, rng, uses_model) for one in value]
        return _TOO_LARGE if any(one is _TOO_LARGE for one in made) else type(value)(made)
    return value


def _tensor(model: Any, tensor: SymbolicTensor, rng: random.Random, uses_model: bool) -> Any:
    sizes = [
        model.eval(one.term, model_completion=True).as_long() if isinstance(one, Number) else one
        for one in tensor.shape
    ]
    count = 1
    for size in sizes:
        count *= max(size, 0)
    if count > _MOST_ELEMENTS or any(size < 0 for size in sizes):
        return _TOO_LARGE
    values = _random(tensor.dtype, count, rng)
    made = values.reshape(sizes)
    if uses_model:
        _fill(model, tensor, made)
    for known in tensor.path.values.get(getattr(tensor, "input_name", ""), ()):
        made = torch.full_like(made, known)
    return made


def _random(dtype: torch.dtype, count: int, rng: random.Random) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rng.getrandbits(48))
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    if dtype.is_floating_point:
        return torch.randn(count, generator=generator).to(dtype)
    least = 0 if not dtype.is_signed else -8
    return torch.randint(least, 9, (count,), generator=generator).to(dtype)


def _fill(model: Any, tensor: SymbolicTensor, made: torch.Tensor) -> None:
    name = getattr(tensor, "input_name", None)
    declared = next((one for one in model.decls() if one.name() == name and one.arity() == made.dim()), None)
    if declared is None:
        return
    for place in itertools.product(*(range(size) for size in made.shape)):
        term = declared(*place) if place else declared()
        value = model.eval(term, model_completion=True)
        index = tuple(place)
        if z3.is_true(value) or z3.is_false(value):
            made[index] = bool(z3.is_true(value))
        elif z3.is_bv_value(value):
            made[index] = value.as_signed_long() if tensor.dtype.is_signed else value.as_long()
        else:
            known = float_of(value)
            made[index] = 0.5 if known is None else known
