"""What the `exirkit rule` commands do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from exirkit.ir import Diagnostic, ModelError
from exirkit.patterns import (
    BookVerdict,
    CheckRequest,
    CheckSettings,
    LoadedBook,
    Relations,
    RuleVerdict,
    StoredRule,
    WitnessBook,
    acceptance_file,
    check_books,
    import_libraries,
    language_words,
    load_book,
    read_witnesses,
    record_acceptance,
    relations_between,
    shipped_books,
    shipped_witnesses,
    stored_rule,
    witness_text,
)

from .book_files import expand_books
from .console import Steps
from .failures import WRONG_USAGE, CommandError
from .output_files import check_writable, write_whole
from .reports import Finding
from .rule_reports import (
    CatalogueReport,
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
        witnesses: File, or directory of files, of stored witnesses.
        update: Search witnesses and write them there.
        fast: Stored witnesses take the place of a search.
        jobs: Processes.
        together: The books are applied together.
        libraries: Modules that register operators.
    """

    rules: tuple[str, ...]
    trials: int
    seed: int
    strict: bool
    witnesses: Path | None = None
    update: bool = False
    fast: bool = False
    jobs: int = 1
    together: bool = False
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckTexts:
    """What is printed below a table.

    Attributes:
        found: What is wrong, or may be.
        notes: What is worth knowing.
    """

    found: list[str]
    notes: list[str]

    @classmethod
    def of(cls, found: Sequence[Diagnostic], notes: Sequence[Diagnostic]) -> CheckTexts:
        """Return the texts of findings."""
        return cls([one.render() for one in found], [one.render() for one in notes])


def check_files(names: Sequence[str], options: CheckOptions, steps: Steps) -> tuple[CatalogueReport, list[CheckTexts]]:
    """Check books.

    Args:
        names: Paths of files, or names of shipped books; without any, all shipped books.
        options: How.
        steps: Is told of every rule.

    Returns:
        The report, and the texts of what was found: for each book, and last for all of them together.

    Raises:
        OSError: A file cannot be read.
        UsageError: EK206, the book has no such rule.
        UsageError: EK225, a library cannot be imported.
        CommandError: EK711, the options do not go together; EK712, the witnesses cannot be written.
        ModelError: EK274, stored witnesses cannot be read.
    """
    import torch

    # Trials are small: what a second thread would gain is lost in waking it.
    torch.set_num_threads(1)
    import_libraries(options.libraries)
    chosen = list(expand_books(names)) or list(shipped_books())
    places = _places(chosen, options)
    for name in chosen:
        steps(f"loading {name}")
        book = load_book(name)
        for rule in options.rules:
            book.rule(rule)
    requests = [CheckRequest(name, _stored(name, places[name], options)) for name in chosen]
    settings = CheckSettings(
        trials=options.trials,
        seed=options.seed,
        is_strict=options.strict,
        only=frozenset(options.rules),
        is_fast=options.fast,
        is_complete=options.witnesses is not None and not options.update,
        libraries=options.libraries,
    )
    verdicts = check_books(
        requests,
        settings,
        jobs=options.jobs,
        progress=lambda rule, number, count: steps(f"{number}/{count} {rule}"),
    )
    for name, verdict in zip(chosen, verdicts, strict=True):
        if options.update:
            _write(name, verdict, places[name], options)
        _record(name, verdict, options)
    texts = [CheckTexts.of([*v.found, *(one for rule in v.rules for one in rule.found)], v.notes) for v in verdicts]
    between = _between(chosen, options, steps)
    texts.append(CheckTexts.of(between.found, between.notes))
    report = CatalogueReport(
        ok=all(one.is_accepted for one in verdicts) and not (options.strict and between.found),
        seed=options.seed,
        books=[_report(verdict, options.seed) for verdict in verdicts],
        diagnostics=[_finding(one) for one in between.found],
        notes=[_finding(one) for one in between.notes],
    )
    return report, texts


def _between(names: Sequence[str], options: CheckOptions, steps: Steps) -> Relations:
    """Return what the rules of one book do to those of another, if they are said to be applied together."""
    if not options.together:
        return Relations()
    steps("what the books do to each other")
    between = relations_between([load_book(name) for name in names])
    severity = "error" if options.strict else "warning"
    return Relations([one.model_copy(update={"severity": severity}) for one in between.found], between.notes)


def _places(names: Sequence[str], options: CheckOptions) -> dict[str, Path | None]:
    """Return the file of witnesses of each book.

    Raises:
        CommandError: EK711, there is none to update, or one for several books; EK712, it cannot be written.
    """
    given = options.witnesses
    if given is None:
        if options.update:
            raise _usage("--update writes the file that --witnesses names", "--witnesses FILE.json --update")
        return dict.fromkeys(names)
    is_directory = given.is_dir()
    if len(names) > 1 and not is_directory:
        raise _usage("several books have a directory of witnesses", "--witnesses DIR, which has to be there")
    places: dict[str, Path | None] = {
        name: given / f"{Path(name).name.removesuffix('.yaml')}.json" if is_directory else given for name in names
    }
    if len(set(places.values())) < len(names):
        raise _usage("two of these books would have one file of witnesses", "check them one after the other")
    for place in places.values():
        if options.update and place is not None:
            check_writable(place, ".json")
    return places


def _usage(message: str, hint: str) -> CommandError:
    return CommandError(code="EK711", message=message, hint=hint, exit_code=WRONG_USAGE)


def _stored(name: str, place: Path | None, options: CheckOptions) -> WitnessBook | None:
    if options.update and not (options.fast and place is not None and place.is_file()):
        return None
    if place is not None:
        return read_witnesses(place)
    return shipped_witnesses(name) if options.fast and name in shipped_books() else None


def _record(name: str, verdict: BookVerdict, options: CheckOptions) -> None:
    """Keep beside the book which of its rules were accepted, so that `lower --rules` knows."""
    try:
        record_acceptance(load_book(name), verdict, options.trials)
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        typer.echo(f"not kept in {acceptance_file(name)}: {what}", err=True)


def _write(name: str, verdict: BookVerdict, place: Path | None, options: CheckOptions) -> None:
    """Write the witnesses of the rules that were accepted; those of rules that were not checked stay."""
    assert place is not None, "the options were looked at before"
    book = load_book(name)
    kept: dict[str, StoredRule] = {}
    if options.rules and place.is_file():
        kept = {one.rule: one for one in read_witnesses(place).rules}
    for found in verdict.rules:
        if found.positives is not None and found.is_accepted:
            rule = book.rule(found.rule)
            kept[rule.id] = stored_rule(rule, book, options.seed, found.positives.passed, found.near_misses)
    text = witness_text(kept[rule.id] for rule in book.rules if rule.id in kept)
    write_whole(place, lambda file: file.write(text.encode()))


def list_book(name: str | None) -> RuleListReport:
    """Return the rules of a book or of all books in a directory, or the names of the shipped books."""
    if name is None:
        return RuleListReport(book=None, books=list(shipped_books()))
    names = expand_books((name,))
    rules = [rule for one in names for rule in _rules_of(one)]
    return RuleListReport(book=name, rules=rules, books=[] if names == (name,) else list(names))


def list_words() -> WordsReport:
    """Return the words of the language."""
    return WordsReport(words=[WordReport(word=word, text=text) for word, text in language_words().items()])


def _rules_of(name: str) -> list[ListedRule]:
    book = load_book(name)
    if book.book is None:
        raise ModelError(book.found)
    return [_listed(name, book, index) for index in range(len(book.book.rules))]


def _listed(name: str, book: LoadedBook, index: int) -> ListedRule:
    assert book.book is not None, "only books that were read are listed"
    rule = book.book.rules[index]
    compiled = next((one for one in book.rules if one.id == rule.id), None)
    operators = sorted(compiled.anchor_names) if compiled is not None else []
    return ListedRule(book=name, id=rule.id, kind=rule.family, doc=rule.doc, operators=operators)


def _report(verdict: BookVerdict, seed: int) -> RuleCheckReport:
    return RuleCheckReport(
        ok=verdict.is_accepted,
        file=verdict.file,
        seed=seed,
        rules=[_rule_report(rule, seed) for rule in verdict.rules],
        diagnostics=[_finding(one) for one in verdict.found],
        notes=[_finding(one) for one in verdict.notes],
    )


def _rule_report(verdict: RuleVerdict, seed: int) -> RuleReport:
    positives = verdict.positives
    return RuleReport(
        rule=verdict.rule,
        ok=verdict.is_accepted,
        trials=positives.passed if positives else 0,
        rejected=positives.rejected.total() if positives else 0,
        witnesses=[
            WitnessReport(
                part=one.what,
                text=one.text,
                outcome=one.outcome,
                witness=one.witness,
                instead=one.instead,
                seed=None if one.number is None else f"{seed}:{one.number}",
                difference=one.problem,
                tried=one.tried,
            )
            for one in verdict.near_misses
        ],
        diagnostics=[_finding(one) for one in verdict.found],
        seconds=round(verdict.seconds, 3),
    )


def _finding(one: Diagnostic) -> Finding:
    return Finding.model_validate(one.model_dump())
