"""Operators of a program file that rule books define: who runs the file has to know the books."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from exirkit.emit import Program

from .inspection import operator_label
from .reports import BookOperatorReport


def register_operators(books: Sequence[str]) -> None:
    """Make the operators of books known to this process.

    Args:
        books: Files, or names of shipped books.

    Raises:
        ModelError: A book has errors.
        OSError: A book cannot be read.
    """
    if not books:
        return
    from exirkit.patterns import load_book

    for name in books:
        load_book(name).require_valid()


def book_operators(program: Program) -> list[BookOperatorReport]:
    """Return the operators of a file that books of this process define, each once, in the order of their names."""
    names = {operator_label(plan, index) for plan in program.execution_plan for index in range(len(plan.operators))}
    return [BookOperatorReport(name=name, book=book) for name in sorted(names) if (book := book_of(name)) is not None]


def book_of(name: str) -> str | None:
    """Return the book that defines an operator, as `--rules` takes it; None if no book of this process does."""
    from exirkit.patterns import book_of_operator, shipped_books

    file = book_of_operator(name)
    if file is None:
        return None
    shipped = file.removesuffix(".yaml")
    return shipped if shipped in shipped_books() and not Path(file).exists() else file
