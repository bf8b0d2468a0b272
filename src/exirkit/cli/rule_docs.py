"""`exirkit rule docs`: pages made from rule books."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import typer

from exirkit.patterns import load_book, rule_pages, shipped_books

from .book_files import expand_books
from .console import Steps
from .failures import CommandError, printable
from .output_files import check_writable, write_whole
from .rule_use_reports import RuleDocsReport


def write_pages(names: Sequence[str], output: Path, steps: Steps) -> RuleDocsReport:
    """Write a page for every book, and then the index; nothing is written unless all pages can be made.

    Args:
        names: Files, or names of shipped books; all shipped books when empty.
        output: Directory; it is made if the one around it is there.
        steps: Is told of every book.

    Raises:
        CommandError: EK712, the directory cannot be written to.
        ModelError: A book has errors.
        UsageError: EK263, two books would have one page.
        OSError: A book cannot be read, or a page not be written.
    """
    _check_directory(output)
    books = []
    for name in expand_books(names) or shipped_books():
        steps(f"loading {name}")
        books.append(load_book(name))
    pages = rule_pages(books)
    output.mkdir(exist_ok=True)
    for name, text in pages.items():
        write_whole(output / name, lambda file, text=text: file.write(text.encode()))  # type: ignore[misc]
    rules = sum(len(book.rules) for book in books)
    return RuleDocsReport(output=os.fspath(output), pages=list(pages), rules=rules)


def print_written(report: RuleDocsReport) -> None:
    """Print what was written."""
    typer.echo(printable(f"{report.output}: {len(report.pages)} pages, rules: {report.rules}"))


def _check_directory(output: Path) -> None:
    if output.exists() and not output.is_dir():
        raise CommandError(code="EK712", message="is no directory", file=str(output))
    check_writable(output / "index.md" if output.is_dir() else output.with_name("index.md"), ".md")
