"""What the `exirkit rule` commands do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exirkit.ir import ModelError
from exirkit.patterns import (
    BookVerdict,
    LoadedBook,
    RuleVerdict,
    check_book,
    language_words,
    load_book,
    relations_between,
    shipped_books,
)

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
class CheckTexts:
    """What is printed below the table.

    Attributes:
        found: What is wrong, or may be.
        notes: What is worth knowing.
    """

    found: list[str]
    notes: list[str]


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


def check_files(names: Sequence[str], options: CheckOptions, steps: Steps) -> tuple[RuleCheckReport, CheckTexts]:
    """Check books; of several also what their rules do to each other, as they do when they are applied together.

    Args:
        names: Paths of files, or names of shipped books.
        options: How.
        steps: Is told of every rule.

    Returns:
        The report, and the texts of what was found.

    Raises:
        OSError: A file cannot be read.
        UsageError: EK206, none of the books has such a rule.
    """
    books = []
    for name in dict.fromkeys(names):
        steps(f"loading {name}")
        books.append(load_book(name))
    chosen = _chosen(books, options.rules)
    verdict = BookVerdict(", ".join(book.file for book in books))
    for book in books:
        if options.rules and not chosen[book.file]:
            continue
        one = check_book(
            book,
            trials=options.trials,
            seed=options.seed,
            is_strict=options.strict,
            only=chosen[book.file] or None,
            progress=lambda rule, number, count: steps(f"{number}/{count} {rule}"),
        )
        verdict.found += one.found
        verdict.rules += one.rules
        verdict.notes += one.notes
    if len(books) > 1 and not options.rules:
        steps("what the books do to each other")
        between = relations_between(books)
        severity = "error" if options.strict else "warning"
        verdict.found += [one.model_copy(update={"severity": severity}) for one in between.found]
        verdict.notes += between.notes
    found = [*verdict.found, *(one for rule in verdict.rules for one in rule.found)]
    return _report(verdict, options.seed), CheckTexts(
        [one.render() for one in found], [one.render() for one in verdict.notes]
    )


def _chosen(books: Sequence[LoadedBook], rules: Sequence[str]) -> dict[str, list[str]]:
    """Return the rules to check by book; each has to be in one of the books."""
    chosen: dict[str, list[str]] = {book.file: [] for book in books}
    for rule in rules:
        holders = [book for book in books if any(one.id == rule for one in book.rules)]
        for book in holders or books[:1]:
            book.rule(rule)
            chosen[book.file].append(rule)
    return chosen


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
        notes=[Finding.model_validate(one.model_dump()) for one in verdict.notes],
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
