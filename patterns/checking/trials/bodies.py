"""Trials of rules about control flow: programs with such calls are rewritten, and bodies read more than they may."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from exirkit.ir import Diagnostic, DiagnosticError
from exirkit.patterns.checking.pattern_programs import fire
from exirkit.patterns.checking.trials.rule_trials import RAISED, RuleTrials, Trial
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.syntax.bodies import bodies_of, hidden_parameters
from exirkit.patterns.syntax.terms import Applied, Parameter, walk

_PROGRAMS = 3
_MOST_TRIALS = 16
Reading = tuple[str, Applied, tuple[Parameter, ...]]
"""How a part is named, what is applied in a body, and the parameters that it may not read."""


def readings_of(rule: CompiledRule) -> Iterator[Reading]:
    """Yield what the bodies of a pattern apply without giving it all that they are given."""
    for body in bodies_of(rule.pattern.terms):
        for one in walk(body.result):
            if isinstance(one, Applied) and (hidden := hidden_parameters(body, one)):
                name = one.function.name
                yield f"{name} reads no {' and no '.join(each.name for each in hidden)}", one, tuple(hidden)


def untried_values(rule: CompiledRule) -> Diagnostic:
    """Return the note that a rule is tried on values alone, EK239."""
    return rule.texts.rule.diagnostic(
        "EK239",
        f"rule {rule.id} is about bodies of control flow, for which functions were drawn",
        length=len(rule.id),
        notes=("it is tried on values and in programs, and not evaluated without values",),
    ).model_copy(update={"severity": "note"})


def reading_without_witness(rule: CompiledRule, text: str) -> Diagnostic:
    """Return the diagnostic about a body that may read more without a difference, EK270."""
    return rule.texts.match.diagnostic(
        "EK270",
        f"rule {rule.id}: nothing shows why {text}: the rule is right for bodies that read it as well",
        notes=(f"in rule {rule.id}",),
        hint="give it what the body around is given, as in f(x, *rest)",
    )


def body_findings(trials: RuleTrials, *, asks_the_graph: bool) -> Iterator[Diagnostic]:
    """Yield what is wrong with a rule about control flow in programs made from it, EK269; one at most.

    Args:
        trials: Of the rule.
        asks_the_graph: The rule has conditions on what surrounds a match, which these programs may not satisfy.
    """
    if not trials.rule.runs_bodies:
        return
    made = 0
    for number in range(1, _MOST_TRIALS + 1):
        trial, _ = trials.trial(number)
        if trial is None:
            continue
        made += 1
        problem = _problem(trials, trial, asks_the_graph)
        if problem is not None:
            yield trials.rule.texts.rule.diagnostic(
                "EK269",
                f"rule {trials.rule.id}, in a program made from it, {problem}",
                length=len(trials.rule.id),
                notes=(f"seed {trial.seed}",),
                hint="give the bodies what the program gives them, and the call its results",
            )
            return
        if made == _PROGRAMS:
            return


def _problem(trials: RuleTrials, trial: Trial, asks_the_graph: bool) -> str | None:
    try:
        report, problem = fire(trials, trial)
    except DiagnosticError as error:
        return f"fails: {error.diagnostics[0].message}"
    except RAISED as error:
        return f"fails: {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
    if problem is not None:
        return f"is wrong: {problem}"
    if not report.journal and not asks_the_graph and not _is_strided(trial):
        reasons = [one.reason for one in report.rejections]
        return f"is not applied: {reasons[0] if reasons else 'it does not match'}"
    return None


def _is_strided(trial: Trial) -> bool:
    """Whether a tensor has gaps: loops return all in the layout in which they take it, and drawn bodies have none."""
    return any(isinstance(one, torch.Tensor) and not one.is_contiguous() for one in trial.names.values())
