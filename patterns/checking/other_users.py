"""Programs in which something else uses a value of a pattern: what `users(y) == 1`, `users=1`, `users(d)` are for."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import torch
from torch.export import ExportedProgram

from exirkit.ir import Diagnostic, GraphEditor, OpOverload, copy_program
from exirkit.patterns.checking.numeric_agreement import disagreement
from exirkit.patterns.checking.pattern_programs import program_of
from exirkit.patterns.checking.trials.rule_trials import RuleTrials, Trial
from exirkit.patterns.engine.meanings import with_meanings
from exirkit.patterns.engine.rewriting import RuleEngine
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.matching.matcher import PatternCompiler
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.chains import chains_of
from exirkit.patterns.syntax.terms import Call, Chain, EveryUser, OperatorCall, walk

_OTHERS = (torch.ops.aten.neg.default, torch.ops.aten.logical_not.default, torch.ops.aten.clone.default)


@dataclass(frozen=True)
class Demand:
    """What a pattern says about who uses a value.

    Attributes:
        term: A chain whose values nothing else uses, or all users of a value, or some.
        text: How it is named in reports.
    """

    term: Chain | EveryUser
    text: str


def demands_of(rule: CompiledRule) -> list[Demand]:
    """Return what a pattern says about users, but for its conditions."""
    found = [
        Demand(one, f"{one.name}: users=1") for one in chains_of(rule.pattern.terms) if one.is_private and one.name
    ]
    for one in rule.pattern.roots:
        if isinstance(one, EveryUser):
            value = getattr(one.of, "name", None) or name_of(getattr(one.of, "op", ""))
            found.append(Demand(one, f"some(users({value}))" if one.is_some else f"users({value})"))
    return found


def without_guard(rule: CompiledRule, index: int, kept: str) -> CompiledRule:
    """Return a rule without one of its guards, that may compute a value twice.

    Args:
        rule: The rule.
        index: Number of the guard.
        kept: Name of the value.
    """
    guards = tuple(guard for at, guard in enumerate(rule.guards) if at != index)
    return _keeping(replace(rule, guards=guards), (kept,))


def _keeping(rule: CompiledRule, kept: Collection[str], *, loose: Collection[int] = ()) -> CompiledRule:
    """Return a rule that may compute values twice, and does not ask who uses what some of its terms stand for."""
    compiler = PatternCompiler(rule.pattern, rule.variables, list(rule.guards), rule.forms, loose=frozenset(loose))
    changed = rule.rule.model_copy(update={"keep": (*rule.rule.keep, *kept), "choose": "always"})
    return replace(rule, rule=changed, match=compiler.compile())


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
    return _prevented(
        _program(trials, trial, also=(name,))[0], trials.rule, without_guard(trials.rule, index, name), name
    )


def against_demand(trials: RuleTrials, trial: Trial, demand: Demand) -> Iterator[tuple[str, str | None]]:
    """Yield how something else uses a value, and what the demand is for there, or None if it makes no difference.

    Args:
        trials: Of the rule.
        trial: Values for which the program is made.
        demand: What the pattern says about users.
    """
    term, rule = demand.term, trials.rule
    if isinstance(term, Chain):
        # Without links nothing is between.
        if trial.names.get(f"{term.name}.links"):
            program, _ = _program(trials, trial, also=(str(term.name),))
            loose = _keeping(rule, (str(term.name),), loose=(id(term),))
            yield "returned as well", _prevented(program, rule, loose, str(term.name))
        return
    used = {one.op for one in walk(term.element) if isinstance(one, Call)}
    if any(isinstance(one, OperatorCall) for one in walk(term.element)):
        return
    op = next(one for one in _OTHERS if one not in used)
    program, inputs = _program(trials, trial, beside=(term, op))
    instead = f"{name_of(op)} as a user"
    if term.is_some:
        yield instead, _applied_to_some(program, inputs, rule, instead)
        return
    name = getattr(term.of, "name", None)
    is_inside = isinstance(term.of, Call | OperatorCall)
    loose = _keeping(rule, (name,) if is_inside and name else (), loose=(id(term),))
    yield instead, _prevented(program, rule, loose, name or "the value", is_inside=is_inside)


def _prevented(
    program: ExportedProgram, rule: CompiledRule, loose: CompiledRule, name: str, *, is_inside: bool = True
) -> str | None:
    before, kept = _rewritten(program, rule)
    _, taken = _rewritten(program, loose)
    if kept is not None or taken is None:
        return None
    stays = f", and {name} would still be computed" if is_inside else ""
    return f"with another user of {name} it would make {_calls(taken)} calls of {before}{stays}"


def _applied_to_some(
    program: ExportedProgram, inputs: tuple[torch.Tensor, ...], rule: CompiledRule, instead: str
) -> str | None:
    """Return what becomes of users that match beside one that does not; None if the rule is not applied."""
    _, taken = _rewritten(program, rule)
    if taken is None:
        return None
    runs = with_meanings(taken, rule.attributes.values()) if rule.uses_attributes else taken
    difference = disagreement(list(program.module()(*inputs)), list(runs.module()(*inputs)), rule.rule.equiv)
    return f"beside {instead} the others are replaced" if difference is None else difference


def _program(
    trials: RuleTrials,
    trial: Trial,
    *,
    also: tuple[str, ...] = (),
    beside: tuple[EveryUser, OpOverload] | None = None,
) -> tuple[ExportedProgram, tuple[torch.Tensor, ...]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return program_of(trials, trial, also=also, beside=beside)


def _rewritten(program: ExportedProgram, rule: CompiledRule) -> tuple[int, ExportedProgram | None]:
    """Return the calls of a program, and what a rule makes of it, or None if it was not applied."""
    editor = GraphEditor(copy_program(program))
    before = _calls(editor.program)
    report = RuleEngine([rule]).run(editor)
    return before, editor.program if report.journal else None


def _calls(program: ExportedProgram) -> int:
    return sum(node.op == "call_function" for node in program.graph.nodes)


def demand_without_witness(rule: CompiledRule, text: str) -> Diagnostic:
    """Return the diagnostic about a pattern of some users that leaves none alone, EK268.

    Args:
        rule: The rule.
        text: The demand, as `demands_of` names it.
    """
    return rule.texts.match.diagnostic(
        "EK268",
        f"`{text}`: where another user does not match, the rule is not applied to those that do",
        length=1,
        notes=(f"in rule {rule.id}",),
        hint=f"list the value under `keep`, if it may be computed as well, or write {text.removeprefix('some(')[:-1]}",
    )
