"""`exirkit rule prove`: which rules are right for all sizes, shown by a solver."""

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
    from exirkit.patterns import Certificate, LoadedBook


@dataclass(frozen=True)
class ProvedRule:
    """What is shown of one rule."""

    book: str
    rule: str
    status: str
    ranks: str
    arithmetic: str
    axioms: Sequence[str]
    paths: int
    reason: str | None

    @classmethod
    def of(cls, book: str, one: Certificate) -> ProvedRule:
        """Return the document of a certificate."""
        return cls(book, one.rule, one.status, one.ranks, one.arithmetic, one.axioms, one.paths, one.reason)


@dataclass(frozen=True)
class ProofReport:
    """The document of `exirkit rule prove`.

    Attributes:
        ok: No rule is refuted, and no certificate fails.
        rules: What is shown of each.
        proved: How many are proved for all sizes.
        of_all_ranks: How many of these for all ranks that their types admit.
        unconfirmed: Certificates that do not hold, and why.
    """

    ok: bool
    rules: list[ProvedRule]
    proved: int
    of_all_ranks: int
    unconfirmed: list[Diagnostic]


def prove(  # noqa: C901 - options that exclude each other
    targets: Annotated[list[str] | None, typer.Argument(metavar="[BOOK.yaml|DIR|NAME]...", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="All books that come with exirkit.")] = False,
    rules: Annotated[list[str] | None, typer.Option("--rule", metavar="ID", help="Only this rule; repeatable.")] = None,
    certificates: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="File of the certificates of the book.")
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Write that file.")] = False,
    stored: Annotated[
        bool, typer.Option("--stored", help="Show what certificates say of the rules as they are; prove nothing.")
    ] = False,
    recheck: Annotated[bool, typer.Option("--recheck", help="Prove again what certificates say is proved.")] = False,
    bound: Annotated[
        int | None, typer.Option(min=1, max=16, metavar="N", help="Enumerate sizes up to N where loops need it.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="CPU seconds for a rule.")] = 20.0,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Prove rules for all sizes: exit code 0 if none is refuted and every certificate holds, 1 otherwise.

    Pattern and replacement are run on tensors whose sizes and elements are symbols, and the solver z3 compares the
    results. A rule is proved, proved up to a bound, refuted by a program that torch runs, or neither, with the reason.
    """
    with Steps() as steps:
        steps("loading torch")
        from exirkit.patterns import backend_books, load_book, named_books, shipped_books

        if sum((stored, recheck, update)) > 1:
            raise usage_error("--stored, --recheck and --update exclude each other")
        if update and certificates is None:
            raise usage_error("--update writes the file that --certificates names", hint="--certificates FILE --update")
        shipped = [*shipped_books(), *named_books(), *backend_books()]
        only = list(rules or ())
        books: tuple[str, ...] = tuple(shipped) if every else expand_books(targets) or tuple(shipped_books())
        if certificates is not None and len(books) != 1:
            raise usage_error("a file of certificates is that of one book")
        if update and certificates is not None:
            check_writable(certificates, ".json")
        report, found = ProofReport(True, [], 0, 0, []), list["Certificate"]()
        loaded: list[LoadedBook] = []
        for name in books:
            steps(f"loading {name}")
            book = load_book(name).require_valid()
            for one in only:
                if len(books) == 1:
                    book.rule(one)
            loaded.append(book)
        for name, book in zip(books, loaded, strict=True):
            made = _certificates(name, book, only, certificates, stored, recheck, bound, seconds, report, steps)
            found += made
            report.rules.extend(ProvedRule.of(name, one) for one in made)
        if update and certificates is not None:
            _write(certificates, loaded[0], found, only)
    refuted = [one for one in found if one.status == "refuted"]
    report = ProofReport(
        not refuted and not report.unconfirmed,
        report.rules,
        sum(one.is_proved for one in found),
        sum(one.is_of_all_ranks for one in found),
        report.unconfirmed,
    )
    if json:
        print_json(report)
    else:
        _print(report)
    raise typer.Exit(0 if report.ok else 1)


def _certificates(
    name: str, book: LoadedBook, only: Sequence[str], file: Path | None, stored: bool, recheck: bool,
    bound: int | None, seconds: float, report: ProofReport, steps: Steps,
) -> list[Certificate]:  # fmt: skip
    from exirkit.patterns import (
        prove_rules,
        read_certificates,
        shipped_certificates,
        unconfirmed_certificate,
        valid_certificates,
    )

    def show(rule: str, number: int, count: int) -> None:
        steps(f"{name}: {number}/{count} {rule}")

    if not (stored or recheck):
        return list(prove_rules(book, only, bound=bound, seconds=seconds, progress=show))
    known = read_certificates(file.read_bytes(), str(file)) if file is not None else shipped_certificates(name)
    valid = valid_certificates(book, known)
    chosen = [valid[rule.id] for rule in book.rules if rule.id in valid and (not only or rule.is_named_in(only))]
    if recheck:
        by_id = {rule.id: rule for rule in book.rules}
        for number, one in enumerate(known.rules, 1):
            if only and one.rule not in only:
                continue
            show(one.rule, number, len(known.rules))
            if one.rule not in by_id:
                continue
            wrong = unconfirmed_certificate(one, by_id[one.rule], book, seconds=4 * seconds)
            if wrong is not None:
                report.unconfirmed.append(wrong)
    return chosen


def _write(file: Path, book: LoadedBook, found: Sequence[Certificate], only: Sequence[str]) -> None:
    """Write the certificates of a book; those of rules that were not asked for stay."""
    from exirkit.patterns import certificate_text, read_certificates, valid_certificates

    kept: dict[str, Certificate] = {}
    if only and file.is_file():
        kept = valid_certificates(book, read_certificates(file.read_bytes(), str(file)))
    kept |= {one.rule: one for one in found}
    write_text(file, certificate_text(kept[rule.id] for rule in book.rules if rule.id in kept))


def _print(report: ProofReport) -> None:
    rows = []
    for one in report.rules:
        said = one.reason if one.status in ("open", "refuted") else f"{one.arithmetic}; ranks: {one.ranks}"
        rows.append([one.status, one.rule, " ".join(str(said or "").split())[:150]])
    if rows:
        print_table(["status", "rule", "what is shown"], rows)
    for wrong in report.unconfirmed:
        print_text(f"\n{wrong.render()}", err=True)
    count = len(report.rules)
    share = f" ({report.proved / count:.0%})" if count else ""
    print_line()
    print_line(f"{report.proved} of {count} rules{share} are proved for all sizes, {report.of_all_ranks} for all ranks")
