"""What the `exirkit rule` commands do."""

from __future__ import annotations

from dataclasses import dataclass

from exirkit.ir import ModelError
from exirkit.patterns import BookVerdict, LoadedBook, RuleVerdict, check_book, language_words, load_book, shipped_books

from .console import Steps
from .reports import Finding
from .rule_reports import (
    ListedRule,
    RuleCheckReport,
    RuleListReport,
    RuleReport,
    WitnessReport,
    WordReport,
    WordsReport,
)


@dataclass(frozen=True)
class CheckOptions:
    """How to check.

    Attributes:
        rules: Ids of the rules to check; all when empty.
        trials: Samples per rule.
        seed: Of the samples.
        strict: A guard without a witness is an error.
    """

    rules: tuple[str, ...]
    trials: int
    seed: int
    strict: bool


def check_file(name: str, options: CheckOptions, steps: Steps) -> tuple[RuleCheckReport, list[str]]:
    """Check a book.

    Args:
        name: Path of a file, or name of a shipped book.
        options: How.
        steps: Is told of every rule.

    Returns:
        The report, and the text of every finding.

    Raises:
        OSError: The file cannot be read.
        UsageError: EK206, the book has no such rule.
    """
    steps(f"loading {name}")
    book = load_book(name)
    for rule in options.rules:
        book.rule(rule)
    verdict = check_book(
        book,
        trials=options.trials,
        seed=options.seed,
        is_strict=options.strict,
        only=options.rules or None,
        progress=lambda rule, number, count: steps(f"{number}/{count} {rule}"),
    )
    found = [*verdict.found, *(one for rule in verdict.rules for one in rule.found)]
    return _report(verdict, options.seed), [one.render() for one in found]


def list_book(name: str | None) -> RuleListReport:
    """Return the rules of a book, or the names of the shipped books."""
    if name is None:
        return RuleListReport(book=None, books=list(shipped_books()))
    book = load_book(name)
    if book.book is None:
        raise ModelError(book.found)
    return RuleListReport(book=name, rules=[_listed(book, index) for index in range(len(book.book.rules))])


def list_words() -> WordsReport:
    """Return the words of the language."""
    return WordsReport(words=[WordReport(word=word, text=text) for word, text in language_words().items()])


def _listed(book: LoadedBook, index: int) -> ListedRule:
    assert book.book is not None, "only books that were read are listed"
    rule = book.book.rules[index]
    compiled = next((one for one in book.rules if one.id == rule.id), None)
    operators = sorted(compiled.anchor_names) if compiled is not None else []
    return ListedRule(id=rule.id, kind=rule.family, doc=rule.doc, operators=operators)


def _report(verdict: BookVerdict, seed: int) -> RuleCheckReport:
    return RuleCheckReport(
        ok=verdict.is_accepted,
        file=verdict.file,
        seed=seed,
        rules=[_rule_report(rule) for rule in verdict.rules],
        diagnostics=[Finding.model_validate(one.model_dump()) for one in verdict.found],
    )


def _rule_report(verdict: RuleVerdict) -> RuleReport:
    positives = verdict.positives
    return RuleReport(
        rule=verdict.rule,
        ok=verdict.is_accepted,
        trials=positives.passed if positives else 0,
        rejected=positives.rejected.total() if positives else 0,
        witnesses=[
            WitnessReport(part=one.what, text=one.text, witness=one.witness, difference=one.problem, tried=one.tried)
            for one in verdict.near_misses
        ],
        diagnostics=[Finding.model_validate(one.model_dump()) for one in verdict.found],
        seconds=round(verdict.seconds, 3),
    )
