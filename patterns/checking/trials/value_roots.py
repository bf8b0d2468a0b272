"""Trials of rules about values of the program: the engine must apply them, and `uses` must have something to do."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram

from exirkit.ir import Diagnostic, DiagnosticError, GraphEditor
from exirkit.patterns.checking.trials.rule_trials import RuleTrials, Trial
from exirkit.patterns.engine.rewriting import RewriteOptions, RuleEngine
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.syntax.value_roots import INTERFACE, WITHOUT_USES, ValueReplacement, root_name

_PROGRAMS = 4
_MOST_TRIALS = 24


def without_uses(trial: Trial) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names with which `uses` is left out, and what that is called."""
    yield "without it", {**trial.names, WITHOUT_USES: True}


def uses_without_witness(rule: CompiledRule) -> Diagnostic:
    """Return the diagnostic about `uses` that makes no difference, EK235."""
    return (rule.texts.uses or rule.texts.rule).diagnostic(
        "EK235",
        f"rule {rule.id}: nothing shows what `uses` is for: without it the rule is right as well",
        notes=(f"in rule {rule.id}",),
        hint="take it out",
    )


def value_findings(trials: RuleTrials, *, asks_the_graph: bool) -> Iterator[Diagnostic]:
    """Yield what is wrong with a rule about values of the program in programs that have one, EK235; one at most.

    Args:
        trials: Of the rule.
        asks_the_graph: The rule has conditions on what surrounds a match, which these programs may not satisfy.
    """
    if trials.rule.pattern.kind == "calls":
        return
    find = _in_interface if trials.rule.pattern.kind in INTERFACE else _in_store
    if trials.rule.rule.graphs == "bodies":
        find = _in_bodies
    made = 0
    for number in range(1, _MOST_TRIALS + 1):
        trial, _ = trials.trial(number)
        if trial is None:
            continue
        made += 1
        try:
            problem = find(trials, trial, asks_the_graph)
        except DiagnosticError as error:
            problem = f"fails: {error.diagnostics[0].message}"
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


def _in_store(trials: RuleTrials, trial: Trial, asks_the_graph: bool) -> str | None:
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


class _Branching(torch.nn.Module):
    """Uses a stored tensor in both branches of a condition."""

    value: torch.Tensor

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value)

    def forward(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return a copy of the tensor."""
        value = self.value
        found: torch.Tensor = torch.cond(
            chosen, lambda: torch.clone(value), lambda: torch.clone(torch.clone(value)), ()
        )
        return found


def _in_bodies(trials: RuleTrials, trial: Trial, asks_the_graph: bool) -> str | None:
    """Return what is wrong where the bodies of a condition use a tensor."""
    rule = trials.rule
    chosen = torch.tensor([True, False])
    module = _Branching(trial.names[root_name(rule.pattern)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program: ExportedProgram = torch.export.export(module, (chosen[0],), strict=False)
    editor = GraphEditor(program)
    report = RuleEngine([rule]).run(editor)
    if not report.journal:
        reasons = [one.reason for one in report.rejections]
        return None if asks_the_graph else f"is not applied: {reasons[0] if reasons else 'its conditions do not hold'}"
    for one in chosen:
        problem = trials.compared(trial, [program.module()(one)])
        if problem is not None:
            return f"is wrong: {problem}"
    return None


class _Passing(torch.nn.Module):
    """Returns a copy of its input, so that the program has one input and one output of a form."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the copy."""
        return (torch.clone(x),)


def _in_interface(trials: RuleTrials, trial: Trial, asks_the_graph: bool) -> str | None:
    """Return what is wrong where a program takes or gives a value: callers do outside what `uses` does inside."""
    rule = trials.rule
    value = trial.names[root_name(rule.pattern)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program: ExportedProgram = torch.export.export(_Passing(), (value,), strict=False)
    editor = GraphEditor(program)
    report = RuleEngine([rule]).run(editor, RewriteOptions(interface=True))
    if not report.journal:
        reasons = [one.reason for one in report.rejections]
        return None if asks_the_graph else f"is not applied: {reasons[0] if reasons else 'its conditions do not hold'}"
    names = dict(trial.names)
    with torch.no_grad():
        if rule.pattern.kind == "input":
            (given,) = trials.replaced({**names, WITHOUT_USES: True})
            results = list(program.module()(given))
        else:
            (found,) = program.module()(value)
            case = rule.case_for(names).replace
            assert isinstance(case, ValueReplacement), "it is about a value of the program"
            results = case.wrapped(names, found, TensorBuilder())
    problem = trials.compared(trial, results)
    return None if problem is None else f"is wrong: {problem}"


def _diagnostic(rule: CompiledRule, problem: str, trial: Trial) -> Diagnostic:
    return rule.texts.rule.diagnostic(
        "EK235",
        f"rule {rule.id}, in a program that has such a value, {problem}",
        length=len(rule.id),
        notes=(f"seed {trial.seed}",),
        hint="compute the old value from `new` under `uses`; say `measure: once` if the rule matches its own results",
    )
