"""A pattern with values for its variables, ready to be run, and programs made of it, on which the rule must fire."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch.export import ExportedProgram

from exirkit.ir import GraphEditor, copy_program
from exirkit.patterns.checking.pattern_execution import CannotRunError, PatternRun, Shape
from exirkit.patterns.checking.trials import RuleTrials, Trial
from exirkit.patterns.engine.report import RewriteReport
from exirkit.patterns.engine.rewriting import RuleEngine
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.syntax.programs import Builder
from exirkit.patterns.types.tensors import TensorVariable

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


def instance_of(trials: RuleTrials, trial: Trial) -> PatternInstance:
    """Return the values of a trial as an instance of the pattern."""
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


class PatternModule(torch.nn.Module):
    """Computes a pattern; constants of the rule are stored, its other tensors are inputs."""

    def __init__(self, trials: RuleTrials, trial: Trial, also: Sequence[str] = ()) -> None:
        super().__init__()
        self.also = tuple(also)
        self.trials = trials
        self.trial = trial
        kinds = instance_of(trials, trial).kinds
        self.inputs = [name for name, kind in kinds.items() if kind == "input"]
        self.stored = {name: f"stored_{name}" for name, kind in kinds.items() if kind != "input"}
        for name, attribute in self.stored.items():
            value = trial.names[name]
            if kinds[name] == "parameter":
                self.register_parameter(attribute, torch.nn.Parameter(value, requires_grad=False))
            else:
                self.register_buffer(attribute, value)

    def given(self, values: Sequence[torch.Tensor]) -> dict[str, Any]:
        """Return what the variables and sizes of the rule stand for."""
        named = self.trials.rule.pattern.named
        names = {key: value for key, value in self.trial.names.items() if key not in named}
        names.update(zip(self.inputs, values, strict=True))
        names.update({name: getattr(self, attribute) for name, attribute in self.stored.items()})
        return names

    def forward(self, *values: torch.Tensor) -> tuple[Any, ...]:
        """Compute the roots."""
        names = self.given(values)
        results = PatternRun(self.trials.rule.pattern, names, self.trial.shape, TensorBuilder()).run()
        return (*results, *(names[name] for name in self.also))


def program_of(
    trials: RuleTrials, trial: Trial, *, also: Sequence[str] = ()
) -> tuple[ExportedProgram, tuple[torch.Tensor, ...]]:
    """Return a program that computes the pattern of a rule, and the inputs for which it was made.

    Args:
        trials: Of the rule.
        trial: Values, and a way through the pattern.
        also: Names of values inside the pattern that the program returns as well.
    """
    module = PatternModule(trials, trial, also)
    inputs = tuple(trial.names[name] for name in module.inputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(module, inputs, strict=False), inputs


def fire(trials: RuleTrials, trial: Trial) -> tuple[RewriteReport, str | None]:
    """Let a rule rewrite a program made from itself.

    Returns:
        What the engine did, and how the rewritten program differs from the pattern, or None.
    """
    program, inputs = program_of(trials, trial)
    editor = GraphEditor(copy_program(program))
    # Whether it gains anything is not asked here.
    rule = replace(trials.rule, rule=trials.rule.rule.model_copy(update={"choose": "always"}))
    report = RuleEngine([rule]).run(editor)
    results = editor.program.module()(*inputs)
    return report, trials.compared(trial, list(results))
