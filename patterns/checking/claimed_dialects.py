"""Whether a rule matches its own pattern in every dialect that it claims: lowering may change what the pattern says.

Rules are below the chain that lowers programs, which is looked up by name when a rule is checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module

from torch.export import ExportedProgram

from exirkit.ir import Diagnostic, DiagnosticError, GraphEditor, copy_program
from exirkit.patterns.engine.application import RuleApplication
from exirkit.patterns.engine.program_facts import ProgramFacts
from exirkit.patterns.explain.explanation import explain_rule
from exirkit.patterns.matching.compiled_rule import CompiledRule

from .pattern_execution import CannotRunError
from .pattern_programs import program_of
from .trials import RAISED, RuleTrials

_LOWERED = ("edge",)
_MOST_TRIALS = 12
_ENOUGH = 3


def unmatched_dialects(rule: CompiledRule, *, seed: int = 0) -> Iterator[Diagnostic]:
    """Yield a diagnostic for every claimed dialect in which the rule does not match its own pattern, EK224.

    Args:
        rule: The rule.
        seed: Of the values that its pattern is exported with.
    """
    claimed = [rule.rule.dialect.source] if rule.rule.dialect.source in _LOWERED else []
    if rule.rule.dialect.source == "any":
        claimed = list(_LOWERED)
    bench = RuleTrials(rule, seed=seed)
    for dialect in claimed:
        tried = [lowered for program in _programs(bench) if (lowered := _lowered(program)) is not None]
        if tried and not any(_matches(rule, program) for program in tried):
            yield _unmatched(rule, dialect, tried[0])


def _programs(bench: RuleTrials) -> Iterator[ExportedProgram]:
    found = 0
    for number in range(1, _MOST_TRIALS + 1):
        trial, _ = bench.trial(number, profile="normal")
        if trial is None:
            continue
        try:
            program, _ = program_of(bench, trial)
        except (CannotRunError, *RAISED):
            # What torch does not export is no program in which the rule could match.
            continue
        found += 1
        yield program
        if found == _ENOUGH:
            return


def _lowered(program: ExportedProgram) -> ExportedProgram | None:
    # The chain is above this room; the verdict on a rule must not depend on what was imported before.
    to_edge = import_module("exirkit.program").to_edge
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lowered: ExportedProgram = to_edge(program).exported_program()
            return lowered
    except (DiagnosticError, *RAISED):
        return None


def _matches(rule: CompiledRule, program: ExportedProgram) -> bool:
    editor = GraphEditor(copy_program(program))
    application = RuleApplication(editor, ProgramFacts(editor))
    calls = [node for node in editor.graph.nodes if node.op == "call_function"]
    return any(application.match(rule, node) is not None for node in calls)


def _unmatched(rule: CompiledRule, dialect: str, program: ExportedProgram) -> Diagnostic:
    names = [
        str(getattr(node.target, "__name__", node.target)).removesuffix(".default")
        for node in program.graph.nodes
        if node.op == "call_function"
    ]
    notes = [f"lowered, the pattern is {', '.join(dict.fromkeys(names)) or 'empty'}"]
    nodes = explain_rule(replace(rule), GraphEditor(copy_program(program)), most=1).nodes
    notes += [f"the match ends here: {one.mismatch.message}" for one in nodes[:1] if one.mismatch is not None]
    is_said = "dialect" in rule.rule.model_fields_set
    return rule.texts.rule.diagnostic(
        "EK224",
        f"rule {rule.id} does not match its own pattern once that is lowered to {dialect}",
        length=len(rule.id),
        notes=tuple(notes),
        hint=f"write what lowering makes of it, or say which dialect the rule is for, as in `dialect: "
        f"{'edge' if dialect == 'aten' else 'aten'}`",
    ).model_copy(update={} if is_said else {"severity": "warning"})
