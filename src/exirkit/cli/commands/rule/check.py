"""`exirkit rule check`: the verdict on rule books."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.console import Steps, print_json, print_line, print_table, print_text
from exirkit.cli.errors import usage_error
from exirkit.cli.files import check_writable, expand_books, write_text
from exirkit.cli.options import Json, Libraries

if TYPE_CHECKING:
    from exirkit.ir import Diagnostic
    from exirkit.patterns import BookVerdict, CheckSettings, Relations, RuleVerdict, WitnessBook


@dataclass(frozen=True)
class WitnessReport:
    """What a part of a rule is for: values for which the rule would be wrong without it."""

    part: str
    text: str
    outcome: str
    witness: dict[str, str] | None
    instead: str | None
    seed: str | None
    difference: str | None
    tried: int


@dataclass(frozen=True)
class RuleReport:
    """What is known of one rule."""

    rule: str
    ok: bool
    trials: int
    rejected: int
    witnesses: list[WitnessReport]
    diagnostics: Sequence[Diagnostic]
    seconds: float

    @classmethod
    def of(cls, verdict: RuleVerdict, seed: int) -> RuleReport:
        """Return the document of the verdict on a rule."""
        positives = verdict.positives
        return cls(
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
            diagnostics=verdict.found,
            seconds=round(verdict.seconds, 3),
        )


@dataclass(frozen=True)
class BookReport:
    """The verdict on a book.

    `notes` are not errors: rules whose order decides, and cycles without a count that is known to decrease.
    """

    ok: bool
    file: str
    seed: int
    rules: list[RuleReport]
    diagnostics: Sequence[Diagnostic]
    notes: Sequence[Diagnostic]

    @classmethod
    def of(cls, verdict: BookVerdict, seed: int) -> BookReport:
        """Return the document of the verdict on a book."""
        rules = [RuleReport.of(rule, seed) for rule in verdict.rules]
        return cls(verdict.is_accepted, verdict.file, seed, rules, verdict.found, verdict.notes)


@dataclass(frozen=True)
class BooksReport:
    """The verdict on several books, and what the rules of one do to those of another if that was asked for."""

    ok: bool
    seed: int
    books: list[BookReport]
    diagnostics: Sequence[Diagnostic]
    notes: Sequence[Diagnostic]


@dataclass(frozen=True)
class WitnessOptions:
    """Which stored witnesses are used, and whether they are written.

    Attributes:
        place: File, or directory of files.
        updates: Search witnesses and write them there.
        is_fast: Use stored witnesses instead of a search.
    """

    place: Path | None
    updates: bool
    is_fast: bool

    def files(self, names: Sequence[str]) -> dict[str, Path | None]:
        """Return the file of witnesses of each book.

        Raises:
            CommandError: EK711, there is none to update, or one for several books; EK712, it cannot be written.
        """
        if self.place is None:
            if self.updates:
                hint = "--witnesses FILE.json --update"
                raise usage_error("--update writes the file that --witnesses names", hint=hint)
            return dict.fromkeys(names)
        place, is_directory = self.place, self.place.is_dir()
        if len(names) > 1 and not is_directory:
            hint = "--witnesses DIR, which has to be there"
            raise usage_error("several books have a directory of witnesses", hint=hint)
        files: dict[str, Path | None] = {
            name: place / f"{Path(name).name.removesuffix('.yaml')}.json" if is_directory else place for name in names
        }
        if len(set(files.values())) < len(names):
            hint = "check them one after the other"
            raise usage_error("two of these books would have one file of witnesses", hint=hint)
        for file in files.values() if self.updates else ():
            check_writable(file, ".json")
        return files

    def stored(self, name: str, file: Path | None) -> WitnessBook | None:
        """Return the stored witnesses of a book, if they are used."""
        from exirkit.patterns import is_shipped, read_witnesses, shipped_witnesses

        if self.updates and not (self.is_fast and file is not None and file.is_file()):
            return None
        if file is not None:
            return read_witnesses(file)
        return shipped_witnesses(name) if self.is_fast and is_shipped(name) else None


def check(
    books: Annotated[list[str] | None, typer.Argument(metavar="[BOOK.yaml|DIR|NAME]...", show_default=False)] = None,
    rules: Annotated[list[str] | None, typer.Option("--rule", metavar="ID", help="Only this rule; repeatable.")] = None,
    trials: Annotated[int, typer.Option(min=1, max=100_000, help="Number of samples per rule.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the samples.")] = 0,
    strict: Annotated[
        bool, typer.Option("--strict", help="A guard without a witness, or with the wrong kind, is an error.")
    ] = False,
    witnesses: Annotated[
        Path | None, typer.Option(metavar="FILE.json|DIR", help="File or directory of witnesses.")
    ] = None,
    update: Annotated[
        bool,
        typer.Option("--update", help="Search for witnesses and store them; with --fast only missing ones."),
    ] = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="Check stored witnesses that match the text of a rule; do not search.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=256, help="Processes.")] = 1,
    together: Annotated[
        bool, typer.Option("--together", help="Apply the books together, to see how their rules interact.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Also print notes.")] = False,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Check every rule of a book: exit code 0 if all are accepted, 1 otherwise.

    Each rule is read against the schemas of its operators, run on values made from the types of its variables, and
    tried without each of its guards, literals and repetitions to see what they are for. Without a book, all general
    ones that come with exirkit are checked; `backends` stands for those of backends.
    """
    with Steps() as steps:
        steps("loading torch")
        from exirkit.patterns import CheckSettings, shipped_books

        settings = CheckSettings(
            trials=trials,
            seed=seed,
            is_strict=strict,
            only=frozenset(rules or ()),
            is_fast=fast,
            is_complete=witnesses is not None and not update,
            libraries=tuple(libraries or ()),
        )
        names = expand_books(books) or tuple(shipped_books())
        report = check_files(names, settings, WitnessOptions(witnesses, update, fast), jobs, together, steps)
    if json:
        print_json(report.books[0] if books and len(books) == len(report.books) == 1 else report)
    else:
        for one in report.books:
            _print_checked(one, verbose)
        _print_findings(report.diagnostics, report.notes, verbose)
    raise typer.Exit(0 if report.ok else 1)


def check_files(
    names: Sequence[str], settings: CheckSettings, witnesses: WitnessOptions, jobs: int, together: bool, steps: Steps
) -> BooksReport:
    """Check books.

    Args:
        names: Paths of files, or names of shipped books.
        settings: How each is checked.
        witnesses: Stored witnesses.
        jobs: Processes.
        together: The books are applied together.
        steps: Is told of every rule.

    Raises:
        OSError: A file cannot be read.
        UsageError: EK206, the book has no such rule.
        CommandError: EK711, the options exclude each other; EK712, the witnesses cannot be written.
        ModelError: EK274, stored witnesses cannot be read.
    """
    import torch

    from exirkit.patterns import CheckRequest, Relations, check_books, load_book

    # Trials are small: what a second thread would gain is lost in waking it.
    torch.set_num_threads(1)
    files = witnesses.files(names)
    for name in names:
        steps(f"loading {name}")
        book = load_book(name)
        for rule in sorted(settings.only):
            book.rule(rule)
    verdicts = check_books(
        [CheckRequest(name, witnesses.stored(name, files[name])) for name in names],
        settings,
        jobs=jobs,
        progress=lambda rule, number, count: steps(f"{number}/{count} {rule}"),
    )
    for name, verdict in zip(names, verdicts, strict=True):
        file = files[name]
        if witnesses.updates and file is not None:
            _write_witnesses(name, verdict, file, settings)
        _record(name, verdict, settings.trials)
    between = _between(names, settings, steps) if together else Relations()
    return BooksReport(
        ok=all(one.is_accepted for one in verdicts) and not (settings.is_strict and between.found),
        seed=settings.seed,
        books=[BookReport.of(verdict, settings.seed) for verdict in verdicts],
        diagnostics=between.found,
        notes=between.notes,
    )


def _between(names: Sequence[str], settings: CheckSettings, steps: Steps) -> Relations:
    """Return what the rules of one book do to those of another."""
    from exirkit.patterns import Relations, load_books, relations_between

    steps("what the books do to each other")
    between = relations_between(load_books(names))
    severity = "error" if settings.is_strict else "warning"
    return Relations([one.model_copy(update={"severity": severity}) for one in between.found], between.notes)


def _record(name: str, verdict: BookVerdict, trials: int) -> None:
    """Record beside the book which of its rules were accepted, so that `lower --rules` knows."""
    from exirkit.patterns import acceptance_file, load_book, record_acceptance

    try:
        record_acceptance(load_book(name), verdict, trials)
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        print_line(f"not recorded in {acceptance_file(name)}: {what}", err=True)


def _write_witnesses(name: str, verdict: BookVerdict, file: Path, settings: CheckSettings) -> None:
    """Write the witnesses of the rules that were accepted; those of rules that were not checked stay."""
    from exirkit.patterns import load_book, read_witnesses, stored_rule, witness_text

    book = load_book(name)
    kept = {one.rule: one for one in read_witnesses(file).rules} if settings.only and file.is_file() else {}
    for found in verdict.rules:
        if found.positives is not None and found.is_accepted:
            rule = book.rule(found.rule)
            kept[rule.id] = stored_rule(rule, book, settings.seed, found.positives.passed, found.near_misses)
    write_text(file, witness_text(kept[rule.id] for rule in book.rules if rule.id in kept))


def _print_checked(report: BookReport, verbose: bool) -> None:
    """Print a line per rule, all findings, and the notes if they are asked for."""
    rows = []
    for rule in report.rules:
        guards = [one for one in rule.witnesses if one.part == "guard"]
        shown = f"{sum(one.witness is not None for one in guards)} of {len(guards)}" if guards else "-"
        verdict = "accepted" if rule.ok else "REJECTED"
        rows.append([verdict, rule.rule, rule.trials, shown, f"{rule.seconds:.1f} s"])
    if rows:
        print_table(["verdict", "rule", ">samples", ">guards with witness", ">time"], rows)
    found = [*report.diagnostics, *(one for rule in report.rules for one in rule.diagnostics)]
    _print_findings(found, report.notes, verbose)
    accepted = sum(rule.ok for rule in report.rules)
    verdict = "accepted" if report.ok else "REJECTED"
    print_line()
    print_line(f"{report.file}: {verdict}, {accepted} of {len(report.rules)} rules (seed {report.seed})")


def _print_findings(found: Sequence[Diagnostic], notes: Sequence[Diagnostic], verbose: bool) -> None:
    """Print what was found on standard error, and the notes or how many there are."""
    for one in found:
        print_text(f"\n{one.render()}", err=True)
    for one in notes if verbose else ():
        print_text(f"\n{one.render()}")
    if notes and not verbose:
        print_text(f"\nnotes: {len(notes)}, shown with --verbose")
