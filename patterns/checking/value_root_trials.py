"""Trials of rules about values of the program: the engine must apply them, and `uses` must have something to do."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch.export import ExportedProgram

from exirkit.ir import Diagnostic, GraphEditor
from exirkit.patterns.checking.trials import RAISED, RuleTrials, Trial
from exirkit.patterns.engine.rewriting import RuleEngine
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.syntax.expressions import ExpressionError
from exirkit.patterns.syntax.value_roots import WITHOUT_USES, differs, root_name

_PROGRAMS = 4
_MOST_TRIALS = 24


def without_uses(trials: RuleTrials, trial: Trial) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names with which `uses` is left out, and what that is called.

    Nothing is yielded for values that it does not run for: what replaces them has their dtype and sizes.
    """
    names = {**trial.names, WITHOUT_USES: True}
    with suppress(ExpressionError, *RAISED):
        results = trials.replaced(names)
        if len(results) == 1 and differs(trial.names[root_name(trials.rule.pattern)], results[0]):
            yield "without it", names


def uses_without_witness(rule: CompiledRule) -> Diagnostic:
    """Return the diagnostic about `uses` that runs in no trial, EK235."""
    text = rule.texts.uses or rule.texts.rule
    return text.diagnostic(
        "EK235",
        f"rule {rule.id}: `uses` is never run in trials: what replaces the value has its dtype and sizes",
        notes=(f"in rule {rule.id}",),
        hint="take it out",
    )


def stored_findings(trials: RuleTrials, *, asks_the_graph: bool) -> Iterator[Diagnostic]:
    """Yield what is wrong with a rule about stored tensors in programs that store one, EK235; at most one diagnostic.

    Args:
        trials: Of the rule.
        asks_the_graph: The rule has conditions on what surrounds a match, which these programs may not satisfy.
    """
    if trials.rule.pattern.kind != "stored":
        return
    made = 0
    for number in range(1, _MOST_TRIALS + 1):
        trial, _ = trials.trial(number)
        if trial is None:
            continue
        made += 1
        problem = _problem(trials, trial, asks_the_graph)
        if problem is not None:
            yield _diagnostic(trials.rule, problem, trial)
            return
        if made == _PROGRAMS:
            return


class _Storing(torch.nn.Module):
    """Stores a tensor and returns copies of it."""

    def __init__(self, value: torch.Tensor, copies: int, *, is_parameter: bool) -> None:
        super().__init__()
        if is_parameter and (value.is_floating_point() or value.is_complex()):
            self.value = torch.nn.Parameter(value, requires_grad=False)
        else:
            self.register_buffer("value", value)
        self.copies = copies

    def forward(self) -> tuple[torch.Tensor, ...]:
        """Return the copies."""
        return tuple(torch.clone(self.value) for _ in range(self.copies))


def _problem(trials: RuleTrials, trial: Trial, asks_the_graph: bool) -> str | None:
    rule = trials.rule
    root = root_name(rule.pattern)
    is_parameter = "param" in rule.variables[root].qualifiers
    for copies in (1, 2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program: ExportedProgram = torch.export.export(
                _Storing(trial.names[root], copies, is_parameter=is_parameter), (), strict=False
            )
        editor = GraphEditor(program)
        report = RuleEngine([rule]).run(editor)
        is_wanted = copies == 1 or rule.rule.shared == "all"
        if not report.journal:
            reasons = [one.reason for one in report.rejections]
            if is_wanted and not asks_the_graph:
                return f"is not applied: {reasons[0] if reasons else 'its conditions do not hold'}"
            continue
        results = list(program.module()())
        for result in results:
            problem = trials.compared(trial, [result])
            if problem is not None:
                return f"is wrong: {problem}"
    return None


def _diagnostic(rule: CompiledRule, problem: str, trial: Trial) -> Diagnostic:
    return rule.texts.rule.diagnostic(
        "EK235",
        f"rule {rule.id}, in a program that stores such a tensor, {problem}",
        length=len(rule.id),
        notes=(f"seed {trial.seed}",),
        hint="store a value of the dtype and sizes of the old one, or compute that from `new` under `uses`",
    )
