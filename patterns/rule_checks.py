"""Checking rules: everything that can be found out about a rule before somebody relies on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from exirkit.ir import Diagnostic

from .abstract_evaluation import abstract_findings
from .compiled_rule import CompiledRule
from .near_misses import NearMiss, NearMisses
from .rule_books import LoadedBook
from .rule_relations import relations_of_book
from .rule_trials import Counterexample, PositiveReport, RuleTrials

TRIALS = 200

Progress = Callable[[str, int, int], None]
"""Called with the id of a rule, its number from 1 on, and how many there are."""


@dataclass
class RuleVerdict:
    """What is known of one rule.

    Attributes:
        rule: Its id.
        found: Complaints.
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
    """What is known of a book: its own complaints, those about each rule, and what is no fault but worth knowing."""

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
) -> BookVerdict:
    """Check every rule of a book.

    Args:
        book: A loaded book; what is wrong with it already becomes part of the verdict.
        trials: Positive trials per rule.
        seed: Of all random choices.
        is_strict: A guard without a witness, and rules in the way of each other, are errors, as in the shipped books.
        only: Ids of the rules to check; all, and what they do to each other, when absent.
        progress: Called before each rule.
    """
    verdict = BookVerdict(book.file, list(book.found))
    wanted = None if only is None else set(only)
    rules = [rule for rule in book.rules if wanted is None or rule.id in wanted]
    for number, rule in enumerate(rules, 1):
        if progress is not None:
            progress(rule.id, number, len(rules))
        verdict.rules.append(check_rule(rule, trials=trials, seed=seed, is_strict=is_strict))
    if wanted is None:
        relations = relations_of_book(book)
        # A book may be a collection from which others choose, so alone this does not reject it.
        verdict.found += [
            one if is_strict else one.model_copy(update={"severity": "warning"}) for one in relations.found
        ]
        verdict.notes += relations.notes
    return verdict


def check_rule(rule: CompiledRule, *, trials: int = TRIALS, seed: int = 0, is_strict: bool = False) -> RuleVerdict:
    """Evaluate a rule without values, try it on values of its types, and look for what its parts are good for."""
    started = time.perf_counter()
    # What Python does with tensors without values says nothing about the rule.
    abstract = [_opaque(rule)] if rule.opaque else abstract_findings(rule, seed=seed)
    verdict = RuleVerdict(rule.id, [one for one in abstract if one.severity == "error"])
    if verdict.is_accepted:
        _try(rule, verdict, trials=trials, seed=seed, is_strict=is_strict)
        # What is only worth knowing comes after what is wrong.
        verdict.found += abstract
    verdict.seconds = time.perf_counter() - started
    return verdict


def _try(rule: CompiledRule, verdict: RuleVerdict, *, trials: int, seed: int, is_strict: bool) -> None:
    bench = RuleTrials(rule, seed=seed)
    verdict.positives = bench.positives(rule.rule.verify.trials or trials)
    for counterexample in verdict.positives.counterexamples[:1]:
        verdict.found.append(_wrong(rule, counterexample))
    if verdict.positives.open is not None:
        verdict.found.append(_untried(rule, verdict.positives))
    if verdict.is_accepted:
        verdict.near_misses = list(NearMisses(bench).all())
        verdict.found += [
            _without_witness(rule, one, is_strict) for one in verdict.near_misses if _is_missing(rule, one)
        ]


def _opaque(rule: CompiledRule) -> Diagnostic:
    return rule.texts.rule.diagnostic(
        "EK247",
        f"rule {rule.id} is opaque in: {', '.join(rule.opaque)}",
        length=len(rule.id),
        notes=("it is tried on values, and not looked at without them",),
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
    return rule.texts.rule.diagnostic(
        "EK241",
        f"rule {rule.id} cannot be tried: {report.open}",
        length=len(rule.id),
        hint="say in `vars` what the guards demand, or under `gen` what follows from the operators",
    )


def _is_missing(rule: CompiledRule, one: NearMiss) -> bool:
    if one.what != "guard" or one.witness is not None or one.is_structural:
        return False
    if any(guard.text == one.text and guard.kind != "sound" for guard in rule.guards):
        return False
    return not any(skip.what.strip() == one.text.strip() for skip in rule.rule.verify.skip)


def _without_witness(rule: CompiledRule, one: NearMiss, is_strict: bool) -> Diagnostic:
    index = next(at for at, guard in enumerate(rule.guards) if guard.text == one.text)
    place = rule.texts.where[index].diagnostic(
        "EK242",
        f"nothing shows what the guard `{one.text}` is for: without it the rule is right for {one.tried} samples",
        length=len(one.text),
        notes=(f"in rule {rule.id}",),
        hint="take it out, label it `kind: profit`, or list it under `verify: {skip: ...}` with the reason",
    )
    return place if is_strict else place.model_copy(update={"severity": "warning"})
