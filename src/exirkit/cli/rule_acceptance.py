"""Books in `exirkit lower`: whether their rules were checked, and checking them if that is asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from exirkit.fuzz import rejected_rules, unchecked_book
from exirkit.ir import Diagnostic, ModelError
from exirkit.passes import Pipeline
from exirkit.patterns import LoadedBook, check_book, load_book, record_acceptance, shipped_books, unaccepted_rules

from .console import Steps
from .failures import one_line


def require_checked(
    books: Sequence[str], pipelines: Sequence[Pipeline], steps: Steps, *, checks: bool
) -> list[Diagnostic]:
    """Read books, and say which of their rules no check has accepted.

    Args:
        books: Files, or names of shipped books.
        pipelines: Pipelines whose books are looked at as well.
        steps: Is told of every rule that is checked.
        checks: Check such rules, instead of warning of them.

    Returns:
        A warning for each book with such rules; they are on standard error already.

    Raises:
        ModelError: A book has errors; EK815, a rule was rejected.
        OSError: A book cannot be read.
    """
    found = []
    for name in dict.fromkeys((*books, *(one for pipeline in pipelines for one in _books_of(pipeline)))):
        book = load_book(name).require_valid()
        rules = unaccepted_rules(book, name)
        if rules and checks:
            _check(name, book, rules, steps)
        elif rules:
            found.append(unchecked_book(name, rules, len(book.rules)))
            typer.echo(one_line(found[-1].headline()), err=True)
    return found


def _check(name: str, book: LoadedBook, rules: Sequence[str], steps: Steps) -> None:
    verdict = check_book(
        book, only=rules, progress=lambda rule, number, count: steps(f"checking {number}/{count} {rule}")
    )
    # Where nothing can be written, they are checked again the next time.
    with contextlib.suppress(OSError):
        record_acceptance(book, verdict)
    rejected = [one for one in verdict.rules if not one.is_accepted]
    if rejected:
        findings = [each for one in rejected for each in one.found]
        raise ModelError(rejected_rules(name, [one.rule for one in rejected], findings))


def _books_of(pipeline: Pipeline) -> Iterator[str]:
    """Yield the files of the books of a pipeline that do not come with exirkit or with plug-ins."""
    for stage in (inner for one in pipeline.stages for inner in one.walk()):
        for name in stage.stage.rules or ():
            beside = Path(pipeline.file).parent / name
            if name not in shipped_books() and beside.is_file():
                yield str(beside)
