"""A pattern with values for its variables, ready to be run by any interpreter of calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.syntax.programs import Builder
from exirkit.patterns.types.tensors import TensorVariable

from .near_misses import others_than, parts_of
from .pattern_execution import CannotRunError, PatternRun, Shape
from .trials import RAISED, RuleTrials, Trial

Kind = Literal["input", "parameter", "buffer", "constant"]


@dataclass(frozen=True)
class PatternInstance:
    """Values for the variables of a rule, and one way through its pattern.

    Attributes:
        rule: The rule.
        names: Values of variables and sizes.
        shape: The way through the pattern.
        kinds: What each variable that is a tensor stands for in a program.
        changed: Literals that others take the place of, by identity.
        split: Values for the second and later occurrences of variables.
    """

    rule: CompiledRule
    names: Mapping[str, Any]
    shape: Shape
    kinds: Mapping[str, Kind]
    changed: Mapping[int, Any] = field(default_factory=dict)
    split: Mapping[str, Any] = field(default_factory=dict)

    def run(self, builder: Builder, values: Mapping[str, Any]) -> list[Any] | None:
        """Run the pattern.

        Args:
            builder: Meaning of calls.
            values: What stands for the tensors of `kinds`, by name.

        Returns:
            The values of the roots; None if the pattern leaves something open, or has nothing of what is to be changed.
        """
        given = {**self.names, **values}
        # A second value for an occurrence of a tensor is a tensor of the program too.
        split = {name: values.get(second_name(name), value) for name, value in self.split.items()}
        run = PatternRun(self.rule.pattern, given, self.shape, builder, changed=self.changed, split=split)
        try:
            results = run.run()
        except CannotRunError:
            return None
        # The way through the pattern may not come by what was to be changed.
        return None if (self.changed or self.split) and not run.was_changed else results


def second_name(name: str) -> str:
    """Return the name under which an instance has the value of the second occurrence of a variable."""
    return f"{name} again"


_MOST_KEPT = 512
_kept: dict[tuple[int, int], RuleTrials] = {}


def _trials(rule: CompiledRule, seed: int) -> RuleTrials:
    """Return the trials of a rule; what they found out about its types and guards is kept for the next instance."""
    found = _kept.get((id(rule), seed))
    if found is None or found.rule is not rule:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        found = _kept[(id(rule), seed)] = RuleTrials(rule, seed=seed)
    return found


def pattern_instance(rule: CompiledRule, number: int, *, seed: int = 0) -> PatternInstance | None:
    """Return the n-th instance of a rule, for which all its guards hold, or None if that number gives none."""
    trials = _trials(rule, seed)
    trial, _ = trials.trial(number, profile="normal")
    return None if trial is None else _instance(trials, trial)


def near_instances(
    rule: CompiledRule, number: int, *, seed: int = 0, first: int = 0
) -> Iterator[tuple[str, PatternInstance]]:
    """Yield instances that lack one part of a rule each, and that part: a guard, a literal, a repeated variable.

    Args:
        rule: The rule.
        number: Of the values.
        seed: Of the values.
        first: With which of the parts to begin.
    """
    trials = _trials(rule, seed)
    whole, _ = trials.trial(number, profile="normal")
    parts = parts_of(rule)
    first = first % len(parts) if parts else 0
    for part in (*parts[first:], *parts[:first]):
        if part.kind == "guard":
            trial, _ = (
                trials.trial(number, unless=part.index, profile="normal") if not part.is_structural else (None, "")
            )
            if trial is not None:
                yield part.text, _instance(trials, trial)
        elif whole is not None and part.term is not None:
            for other in part.others[:1]:
                yield part.text, replace(_instance(trials, whole), changed={id(part.term): other})
        elif whole is not None:
            for other in others_than(whole.names.get(part.text))[:1]:
                yield part.text, _split(_instance(trials, whole), part.text, other)


def takes_special_values(rule: CompiledRule) -> frozenset[str]:
    """Return the variables that may be infinite or NaN, as far as the contract of a rule is about such values."""
    if rule.rule.equiv.lhs_nan is not None or _trials(rule, 0).profile != "special":
        return frozenset()
    return frozenset(
        name
        for name, variable in rule.variables.items()
        if isinstance(variable, TensorVariable) and variable.domain is None and not variable.qualifiers
    )


def _split(instance: PatternInstance, name: str, other: Any) -> PatternInstance:
    if not isinstance(other, torch.Tensor):
        return replace(instance, split={name: other})
    second = second_name(name)
    kinds = {**instance.kinds, second: instance.kinds.get(name, "input")}
    return replace(instance, split={name: other}, names={**instance.names, second: other}, kinds=kinds)


def _instance(trials: RuleTrials, trial: Trial) -> PatternInstance:
    named = trials.rule.pattern.named
    names = {key: value for key, value in trial.names.items() if key not in named}
    kinds: dict[str, Kind] = {}
    for name, variable in trials.rule.variables.items():
        value = names.get(name)
        if isinstance(variable, TensorVariable) and isinstance(value, torch.Tensor):
            kinds[name] = _kind(variable, value)
    return PatternInstance(trials.rule, names, trial.shape, kinds)


def _kind(variable: TensorVariable, value: torch.Tensor) -> Kind:
    if "param" in variable.qualifiers and value.is_floating_point():
        return "parameter"
    if "buffer" in variable.qualifiers:
        return "buffer"
    return "constant" if {"const", "param"} & set(variable.qualifiers) else "input"


INSTANCE_ERRORS = RAISED
"""What operators raise for arguments that they do not take."""
