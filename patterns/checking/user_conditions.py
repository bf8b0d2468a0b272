"""What `users(y) == 1` is for: shown on a program in which something else uses the value as well."""

from __future__ import annotations

import warnings
from dataclasses import replace

import torch

from exirkit.ir import GraphEditor, copy_program
from exirkit.patterns.engine.rewriting import RuleEngine
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.matching.matcher import PatternCompiler

from .pattern_programs import program_of
from .trials import RuleTrials, Trial


def without_guard(rule: CompiledRule, index: int, kept: str) -> CompiledRule:
    """Return a rule without one of its guards, that may compute a value twice.

    Args:
        rule: The rule.
        index: Number of the guard.
        kept: Name of the value.
    """
    guards = tuple(guard for at, guard in enumerate(rule.guards) if at != index)
    return replace(
        rule,
        rule=rule.rule.model_copy(update={"keep": (*rule.rule.keep, kept), "choose": "always"}),
        guards=guards,
        match=PatternCompiler(rule.pattern, rule.variables, list(guards), rule.forms).compile(),
    )


def with_another_user(trials: RuleTrials, trial: Trial, index: int, name: str) -> str | None:
    """Let a rule rewrite a program that returns a value inside the pattern as well, with and without a guard.

    Args:
        trials: Of the rule.
        trial: Values for which the program is made.
        index: Number of the guard.
        name: Of the value.

    Returns:
        What the guard prevents, or None if it makes no difference.
    """
    if not isinstance(trial.names.get(name), torch.Tensor):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program, _ = program_of(trials, trial, also=(name,))
    before, kept = _rewritten(program, trials.rule)
    _, taken = _rewritten(program, without_guard(trials.rule, index, name))
    if kept is not None or taken is None:
        return None
    return f"with another user of {name} it would make {taken} calls of {before}, and {name} would still be computed"


def _rewritten(program: torch.export.ExportedProgram, rule: CompiledRule) -> tuple[int, int | None]:
    """Return the calls of a program, and those after a rule was applied, or None if it was not."""
    editor = GraphEditor(copy_program(program))
    before = _calls(editor.program)
    report = RuleEngine([rule]).run(editor)
    return before, _calls(editor.program) if report.journal else None


def _calls(program: torch.export.ExportedProgram) -> int:
    return sum(node.op == "call_function" for node in program.graph.nodes)
