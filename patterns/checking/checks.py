"""Checking rules: everything that can be found out about a rule before it is used."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import Diagnostic, DiagnosticError, GraphEditor, OpOverload, SourceText, copy_program
from exirkit.patterns.books.loading import LoadedBook
from exirkit.patterns.checking.abstract_evaluation import abstract_findings
from exirkit.patterns.checking.adopted_operators import adopted_findings
from exirkit.patterns.checking.near_misses import NearMiss, NearMisses
from exirkit.patterns.checking.other_users import demand_without_witness
from exirkit.patterns.checking.pattern_execution import CannotRunError
from exirkit.patterns.checking.pattern_programs import program_of
from exirkit.patterns.checking.relations import Relations, relations_of_book
from exirkit.patterns.checking.trials.bodies import body_findings, reading_without_witness, untried_values
from exirkit.patterns.checking.trials.chains import links_without_witness
from exirkit.patterns.checking.trials.loops import loop_without_witness
from exirkit.patterns.checking.trials.rule_trials import RAISED, Counterexample, PositiveReport, RuleTrials
from exirkit.patterns.checking.trials.tables import row_without_witness
from exirkit.patterns.checking.trials.value_roots import uses_without_witness, value_findings
from exirkit.patterns.checking.trials.varying import varying_findings
from exirkit.patterns.checking.witnesses import StoredRule, WitnessBook, replay, rule_text_hash
from exirkit.patterns.engine.application import RuleApplication
from exirkit.patterns.engine.program_facts import ProgramFacts
from exirkit.patterns.engine.rewriting import RewriteOptions, RuleEngine
from exirkit.patterns.explain.explanation import explain_rule
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.operators.arguments import source_of
from exirkit.patterns.propagation.fixpoint import tell_ranges, told_ranges
from exirkit.patterns.syntax.attributes import attributed_terms
from exirkit.patterns.syntax.terms import Call, walk

_LOWERED = ("edge",)
_MOST_TRIALS = 12
_ENOUGH = 3


def unmatched_dialects(rule: CompiledRule, *, seed: int = 0, made: Collection[Any] = ()) -> Iterator[Diagnostic]:
    """Yield a diagnostic for every claimed dialect in which the rule does not match its own pattern, EK224.

    Nothing is simplified while the pattern is lowered, so that it is there as a whole. A rule that does what lowering
    does has nothing to match in the lowered program, and is not complained about.

    Args:
        rule: The rule.
        seed: Of the values that its pattern is exported with.
        made: Operators that other rules of the book write: what a rule meets among their results was never lowered.
    """
    if rule.pattern.kind != "calls":
        # What a program stores, takes and gives is the same in all dialects.
        return
    if attributed_terms(rule.pattern.terms):
        # Other rules give calls their attributes, in programs that are lowered already.
        return
    source = rule.rule.dialect.source
    claimed = list(_LOWERED) if source == "any" else [source] if source in _LOWERED else []
    bench = RuleTrials(rule, seed=seed)
    named = {term.op for root in rule.pattern.roots for term in walk(root) if isinstance(term, Call)}
    kept = tuple(op for op in named & set(made) if isinstance(op, OpOverload))
    for dialect in claimed:
        tried: list[tuple[ExportedProgram, ExportedProgram]] = []
        for program in _programs(bench):
            lowered = _lowered(program)
            if lowered is None:
                continue
            if _matches(rule, lowered):
                # One program is enough, and exporting further ones is most of what this costs.
                tried.clear()
                break
            tried.append((program, lowered))
        if not tried:
            continue
        if any(_is_done_by_lowering(rule, *one) for one in tried):
            continue
        ways: list[dict[str, Any]] = [{"simplifies": True}, *([{"kept": kept}] if kept else [])]
        others = (_lowered(program, **way) for way in ways for program, _ in tried)
        if not any(_matches(rule, lowered) for lowered in others if lowered is not None):
            yield _unmatched(rule, dialect, tried[0][1])


def _programs(bench: RuleTrials) -> Iterator[ExportedProgram]:
    found = 0
    for number in range(1, _MOST_TRIALS + 1):
        trial, _ = bench.trial(number, profile="normal")
        if trial is None:
            continue
        try:
            program, _ = program_of(bench, trial)
        except (CannotRunError, *RAISED):
            # What torch does not export is not a program in which the rule could match.
            continue
        found += 1
        yield program
        if found == _ENOUGH:
            return


def _lowered(program: ExportedProgram, kept: Sequence[Any] = (), *, simplifies: bool = False) -> ExportedProgram | None:
    """Return a program in Edge; operators that are kept are not decomposed."""
    # The chain is above this room; the verdict on a rule must not depend on what was imported before.
    chain, passes = import_module("exirkit.program"), import_module("exirkit.passes")
    options = {"preserve_ops": list(kept), "_core_aten_ops_exception_list": list(kept), "_check_ir_validity": False}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pipeline = None if simplifies else _without_simplification()
            config = passes.EdgeCompileConfig(**options)
            lowered: ExportedProgram = chain.to_edge(
                program, compile_config=config, pipeline=pipeline
            ).exported_program()
            tell_ranges(lowered, told_ranges(program))
            return lowered
    except (DiagnosticError, *RAISED):
        return None


@cache
def _without_simplification() -> Any:
    """Return the pipeline that lowers to Edge without the pass that removes what computes nothing."""
    passes = import_module("exirkit.passes")
    lines = passes.shipped_text("to_edge").splitlines(keepends=True)
    return passes.Pipeline.parse("".join(line for line in lines if "pass: remove-noops" not in line), "to_edge.yaml")


def _is_done_by_lowering(rule: CompiledRule, program: ExportedProgram, lowered: ExportedProgram) -> bool:
    """Whether lowering makes of a pattern what it makes of the replacement, so that nothing is left to the rule."""
    editor = GraphEditor(copy_program(program))
    if not RuleEngine([rule]).run(editor, RewriteOptions(limit=1)).journal:
        return False
    replaced = _lowered(editor.program)
    return replaced is not None and _outline(replaced) == _outline(lowered)


def _outline(program: ExportedProgram) -> list[Any]:
    """Return what a program computes, without names and whatever the order of its calls."""
    known: dict[Any, str] = {}

    def said(value: Any) -> str:
        if isinstance(value, Node):
            return known[value]
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(said, value))}]"
        # An integer and an equal float limit and scale alike.
        return str(float(value)) if isinstance(value, int | float) else str(value)

    for node in program.graph.nodes:
        source = source_of(node)
        if source is not None:
            known[node] = known[source]
        elif node.op == "placeholder":
            known[node] = "number" if "scalar" in node.name else node.name
        elif node.op == "output":
            return [said(one) for one in node.args[0]]
        else:
            whole = (
                f"{node.target}({said(node.args)}, {[(key, said(one)) for key, one in sorted(node.kwargs.items())]})"
            )
            # Long expressions would repeat what is below them.
            known[node] = f"%{hashlib.sha256(whole.encode()).hexdigest()[:16]}"
    return []


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


# Checking rules: everything that can be found out about a rule before it is used


TRIALS = 200

Progress = Callable[[str, int, int], None]
"""Called with the id of a rule, its number from 1 on, and how many there are."""


@dataclass
class RuleVerdict:
    """What is known of one rule.

    Attributes:
        rule: Its id.
        found: Diagnostics.
        positives: Trials on values that the rule is for.
        near_misses: What became of its guards, literals and repeated variables.
        seconds: What checking took.
    """

    rule: str
    found: list[Diagnostic] = field(default_factory=list)
    positives: PositiveReport | None = None
    near_misses: list[NearMiss] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_accepted(self) -> bool:
        """Whether there is no error."""
        return not any(one.severity == "error" for one in self.found)


@dataclass
class BookVerdict:
    """What is known of a book: its own diagnostics, those about each rule, and notes."""

    file: str
    found: list[Diagnostic] = field(default_factory=list)
    rules: list[RuleVerdict] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)

    @property
    def is_accepted(self) -> bool:
        """Whether every rule is accepted and nothing else is wrong."""
        return not any(one.severity == "error" for one in self.found) and all(one.is_accepted for one in self.rules)


def check_book(
    book: LoadedBook,
    *,
    trials: int = TRIALS,
    seed: int = 0,
    is_strict: bool = False,
    only: Iterable[str] | None = None,
    progress: Progress | None = None,
    witnesses: WitnessBook | None = None,
    is_fast: bool = False,
    is_complete: bool = True,
) -> BookVerdict:
    """Check every rule of a book.

    Args:
        book: A loaded book; what is wrong with it already becomes part of the verdict.
        trials: Positive trials per rule.
        seed: Of all random choices.
        is_strict: A guard without a witness, and rules in the way of each other, are errors, as in the shipped books.
        only: Ids of the rules to check; all, and what they do to each other, when absent.
        progress: Called before each rule.
        witnesses: Stored ones.
        is_fast: Those that fit the text of a rule are tried again, and nothing is searched.
        is_complete: A rule whose witnesses are not stored, or show nothing, is an error, where there are `witnesses`.
    """
    verdict = BookVerdict(book.file, list(book.found))
    wanted = None if only is None else set(only)
    rules = [rule for rule in book.rules if wanted is None or rule.is_named_in(wanted)]
    for number, rule in enumerate(rules, 1):
        if progress is not None:
            progress(rule.id, number, len(rules))
        verdict.rules.append(
            check_one(
                book, rule, trials=trials, seed=seed, is_strict=is_strict, witnesses=witnesses, is_fast=is_fast,
                is_complete=is_complete,
            )
        )  # fmt: skip
    if wanted is None:
        if not book.errors:
            verdict.found += adopted_findings(book, partial(_definition, book), seed=seed)
        add_relations(verdict, relations_of_book(book), is_strict=is_strict)
    return verdict


def _definition(book: LoadedBook, name: str) -> SourceText:
    assert book.book is not None, "a book without errors was read"
    text = book.book.ops[name].define
    return SourceText(text) if book.source is None else book.source.text(("ops", name, "define"), text)


def add_relations(verdict: BookVerdict, relations: Relations, *, is_strict: bool) -> None:
    """Add what rules do to each other; a book may be a collection to choose from, so alone this does not reject it."""
    verdict.found += [_severe(one, is_strict) for one in relations.found]
    verdict.notes += relations.notes


def check_one(
    book: LoadedBook,
    rule: CompiledRule,
    *,
    trials: int = TRIALS,
    seed: int = 0,
    is_strict: bool = False,
    witnesses: WitnessBook | None = None,
    is_fast: bool = False,
    is_complete: bool = True,
) -> RuleVerdict:
    """Check a rule of a book, with what is stored about it; the arguments are those of `check_book`."""
    stored = None if witnesses is None else fitting(rule, book, witnesses)
    others = [one for one in book.rules if one is not rule]
    made = frozenset(op for one in others for case in one.cases for op in case.replace.operators)
    verdict = check_rule(rule, trials=trials, seed=seed, is_strict=is_strict, stored=stored, is_fast=is_fast, made=made)
    if not is_complete:
        # They were searched again.
        verdict.found = [one for one in verdict.found if one.code != "EK273"]
    elif witnesses is not None and stored is None:
        verdict.found.append(_not_stored(rule, is_known=witnesses.of(rule.id) is not None))
    return verdict


def check_rule(
    rule: CompiledRule,
    *,
    trials: int = TRIALS,
    seed: int = 0,
    is_strict: bool = False,
    stored: StoredRule | None = None,
    is_fast: bool = False,
    made: Collection[Any] = (),
) -> RuleVerdict:
    """Evaluate a rule without values, try it on values of its types, and look for what its parts are good for.

    Args:
        rule: The rule.
        trials: Positive trials.
        seed: Of all random choices.
        is_strict: A guard without a witness, or one that is called what it is not, is an error.
        stored: Witnesses of this text of the rule; they are tried again.
        is_fast: With stored witnesses nothing is searched.
        made: Operators that other rules of the book write.
    """
    started = time.perf_counter()
    # What Python does with tensors without values says nothing about the rule.
    if rule.opaque:
        abstract = [_opaque(rule)]
    else:
        abstract = [untried_values(rule)] if rule.runs_bodies else abstract_findings(rule, seed=seed)
    verdict = RuleVerdict(rule.id, [one for one in abstract if one.severity == "error"])
    if verdict.is_accepted:
        bench = RuleTrials(rule, seed=seed)
        _try(bench, verdict, rule.rule.verify.trials or trials)
        if verdict.is_accepted:
            _miss(bench, verdict, stored, is_fast=is_fast)
            verdict.found += [one for miss in verdict.near_misses for one in _about(rule, miss, is_strict)]
            verdict.found += varying_findings(bench)
            is_structural = any(one.is_structural for one in verdict.near_misses)
            verdict.found += value_findings(bench, asks_the_graph=is_structural)
            verdict.found += body_findings(bench, asks_the_graph=is_structural)
            verdict.found += unmatched_dialects(rule, seed=seed, made=made)
        # What is only worth knowing comes after what is wrong.
        verdict.found += abstract
    verdict.seconds = time.perf_counter() - started
    return verdict


def fitting(rule: CompiledRule, book: LoadedBook, witnesses: WitnessBook) -> StoredRule | None:
    """Return what is stored of a rule, if it is about the text that the rule has now."""
    stored = witnesses.of(rule.id)
    return stored if stored is not None and stored.text == rule_text_hash(rule, book) else None


def _try(bench: RuleTrials, verdict: RuleVerdict, trials: int) -> None:
    verdict.positives = bench.positives(trials)
    for counterexample in verdict.positives.counterexamples[:1]:
        verdict.found.append(_wrong(bench.rule, counterexample))
    if verdict.positives.open is not None:
        verdict.found.append(_untried(bench.rule, verdict.positives))


def _miss(bench: RuleTrials, verdict: RuleVerdict, stored: StoredRule | None, *, is_fast: bool) -> None:
    """Search for witnesses, or try those that are stored."""
    replayed, wrong = ([], []) if stored is None else replay(bench.rule, stored)
    verdict.found += [_shows_nothing(bench.rule, text) for text in wrong]
    if stored is not None and is_fast and not wrong:
        verdict.near_misses = replayed
    else:
        verdict.near_misses = list(NearMisses(bench).all())


def _about(rule: CompiledRule, one: NearMiss, is_strict: bool) -> Iterator[Diagnostic]:
    """Yield what is wrong with a guard, loop or row: nothing shows what it is for, or it is not what it is called."""
    if one.what == "loop" and one.witness is None:
        yield loop_without_witness(rule, one.text, is_tried=one.outcome != "not_run")
    if one.what == "uses" and one.witness is None:
        yield uses_without_witness(rule)
    if one.what == "row" and one.witness is None:
        yield from _about_row(rule, one, is_strict)
    if one.what == "chain" and one.outcome == "none" and not _is_skipped(rule, one.text):
        yield _severe(links_without_witness(rule, one.text), is_strict)
    if one.what == "body" and one.witness is None:
        yield reading_without_witness(rule, one.text)
    if one.what == "users" and one.outcome == "none" and one.text.startswith("some("):
        yield demand_without_witness(rule, one.text)
    if one.what != "guard" or _is_skipped(rule, one.text):
        return
    kinds = {guard.kind for guard in rule.guards if guard.text == one.text}
    if one.witness is None and not one.is_structural and kinds == {"sound"}:
        yield _severe(_without_witness(rule, one), is_strict)
    if one.witness is not None and not one.is_structural and "sound" not in kinds:
        yield _severe(_mislabelled(rule, one, min(kinds)), is_strict)


def _is_skipped(rule: CompiledRule, text: str) -> bool:
    return any(skip.what.strip() == text.strip() for skip in rule.rule.verify.skip)


def _about_row(rule: CompiledRule, one: NearMiss, is_strict: bool) -> Iterator[Diagnostic]:
    """Yield that a row is not tried, or makes no difference, as one that only says what the target has."""
    is_tried = one.outcome != "not_run"
    found = row_without_witness(rule, one.text, is_tried=is_tried)
    if not is_tried:
        yield found
    elif not _is_skipped(rule, one.text):
        yield _severe(found, is_strict)


def _severe(diagnostic: Diagnostic, is_strict: bool) -> Diagnostic:
    return diagnostic if is_strict else diagnostic.model_copy(update={"severity": "warning"})


def _not_stored(rule: CompiledRule, *, is_known: bool) -> Diagnostic:
    what = "are those of another text of it" if is_known else "are not stored"
    return rule.texts.rule.diagnostic(
        "EK272", f"the witnesses of rule {rule.id} {what}", length=len(rule.id), hint="write them with --update"
    )


def _shows_nothing(rule: CompiledRule, text: str) -> Diagnostic:
    return rule.texts.rule.diagnostic(
        "EK273", f"rule {rule.id}: {text}", length=len(rule.id), hint="search again with --update"
    )


def _mislabelled(rule: CompiledRule, one: NearMiss, kind: str) -> Diagnostic:
    values = tuple(f"{name}: {value}" for name, value in (one.witness or {}).items())
    return _place(rule, one.text).diagnostic(
        "EK271",
        f"the guard `{one.text}` is called `{kind}`, but without it the rule is wrong: {one.problem}",
        length=len(one.text),
        notes=(f"in rule {rule.id}", *values, f"trial {one.number}"),
        hint="call it `sound`, or write it as a plain text",
    )


def _place(rule: CompiledRule, text: str) -> SourceText:
    return rule.texts.where[next(at for at, guard in enumerate(rule.guards) if guard.text == text)]


def _opaque(rule: CompiledRule) -> Diagnostic:
    return rule.texts.rule.diagnostic(
        "EK247",
        f"rule {rule.id} is opaque in: {', '.join(rule.opaque)}",
        length=len(rule.id),
        notes=("it is tried on values, and not evaluated without them",),
    ).model_copy(update={"severity": "note"})


def _wrong(rule: CompiledRule, example: Counterexample) -> Diagnostic:
    values = tuple(f"{name}: {value}" for name, value in example.values.items())
    return rule.texts.rule.diagnostic(
        "EK240",
        f"rule {rule.id} is wrong: {example.problem}",
        length=len(rule.id),
        notes=(*values, f"seed {example.seed}"),
        hint="add the guard that is missing, narrow the types, or state the contract under `equiv`",
    )


def _untried(rule: CompiledRule, report: PositiveReport) -> Diagnostic:
    reason = report.main_reason()
    guard = next((guard.text for guard in rule.guards if reason.startswith(f"`{guard.text}`")), None)
    place = rule.texts.rule if guard is None else _place(rule, guard)
    if guard is not None:
        hint = f"say in `vars` what `{guard}` demands, or make such values under `gen`"
    elif reason.startswith("no sample"):
        hint = "take what contradicts itself out of `vars` and `gen`"
    else:
        hint = "narrow `vars` to what the operators take: sizes that have to agree have one name, dims a range"
    return place.diagnostic(
        "EK241",
        f"rule {rule.id} cannot be tried: {report.open}",
        length=len(rule.id if guard is None else guard),
        notes=() if guard is None else (f"in rule {rule.id}",),
        hint=hint,
    )


def _without_witness(rule: CompiledRule, one: NearMiss) -> Diagnostic:
    return _place(rule, one.text).diagnostic(
        "EK242",
        f"nothing shows what the guard `{one.text}` is for: without it the rule is right for {one.tried} samples",
        length=len(one.text),
        notes=(f"in rule {rule.id}",),
        hint="take it out, label it `kind: profit`, or list it under `verify: {skip: ...}` with the reason",
    )
