"""Programs made from rules: a graph that computes a rule's pattern, on which the rule has to fire."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram

from exirkit.ir import GraphEditor, copy_program
from exirkit.patterns.checking.pattern_execution import PatternRun
from exirkit.patterns.checking.trials import RuleTrials, Trial
from exirkit.patterns.engine.report import RewriteReport
from exirkit.patterns.engine.rewriting import RuleEngine
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.types.tensors import TensorVariable

_STORED = ("const", "param", "buffer")


class _PatternModule(torch.nn.Module):
    """Computes a pattern; constants of the rule are stored, its other tensors are inputs."""

    def __init__(self, trials: RuleTrials, trial: Trial, also: Sequence[str] = ()) -> None:
        super().__init__()
        self.also = tuple(also)
        self.trials = trials
        self.trial = trial
        self.inputs: list[str] = []
        self.stored: dict[str, str] = {}
        for name, variable in trials.rule.variables.items():
            value = trial.names.get(name)
            if not isinstance(variable, TensorVariable) or not isinstance(value, torch.Tensor):
                continue
            if not set(variable.qualifiers) & set(_STORED):
                self.inputs.append(name)
            elif "param" in variable.qualifiers and value.is_floating_point():
                self.register_parameter(f"stored_{name}", torch.nn.Parameter(value, requires_grad=False))
                self.stored[name] = f"stored_{name}"
            else:
                self.register_buffer(f"stored_{name}", value)
                self.stored[name] = f"stored_{name}"

    def forward(self, *values: torch.Tensor) -> tuple[Any, ...]:
        named = self.trials.rule.pattern.named
        names = {key: value for key, value in self.trial.names.items() if key not in named}
        names.update(zip(self.inputs, values, strict=True))
        names.update({name: getattr(self, attribute) for name, attribute in self.stored.items()})
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
    module = _PatternModule(trials, trial, also)
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
