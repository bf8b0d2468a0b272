"""A pattern with values for its variables, ready to be run by anybody who knows what calls mean to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from .compiled_rule import CompiledRule
from .near_miss_parts import others_than, parts_of
from .pattern_execution import CannotRunError, PatternRun, Shape
from .program_compiler import Builder
from .rule_trials import RAISED, RuleTrials, Trial
from .variable_types import TensorVariable

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
        run = PatternRun(self.rule.pattern, given, self.shape, builder, changed=self.changed, split=self.split)
        try:
            results = run.run()
        except CannotRunError:
            return None
        # The way through the pattern may not come by what was to be changed.
        return None if (self.changed or self.split) and not run.was_changed else results


def pattern_instance(rule: CompiledRule, number: int, *, seed: int = 0) -> PatternInstance | None:
    """Return the n-th instance of a rule, for which all its guards hold, or None if that number gives none."""
    trials = RuleTrials(rule, seed=seed)
    trial, _ = trials.trial(number, profile="normal")
    return None if trial is None else _instance(trials, trial)


def near_instances(rule: CompiledRule, number: int, *, seed: int = 0) -> Iterator[tuple[str, PatternInstance]]:
    """Yield instances that lack one part of a rule each, and that part: a guard, a literal, a repeated variable."""
    trials = RuleTrials(rule, seed=seed)
    whole, _ = trials.trial(number, profile="normal")
    for part in parts_of(rule):
        if part.kind == "guard":
            trial, _ = (
                trials.trial(number, unless=part.index, profile="normal") if not part.is_structural else (None, "")
            )
            if trial is not None:
                yield part.text, _instance(trials, trial)
        elif whole is not None and part.term is not None:
            for other in part.others[:1]:
                yield part.text, replace(_instance(trials, whole), changed={id(part.term): other})
        elif whole is not None and not isinstance(whole.names.get(part.text), torch.Tensor):
            for other in others_than(whole.names.get(part.text))[:1]:
                yield part.text, replace(_instance(trials, whole), split={part.text: other})


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
