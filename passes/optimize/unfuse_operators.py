"""Operators that a book defines, taken apart again."""

from __future__ import annotations

from collections.abc import Collection

from exirkit.patterns import LoadedBook, RewriteOptions, unfuse

from .apply_rules import ApplyRules


class UnfuseOperators(ApplyRules):
    """Replace operators that a book defines by their definitions, for targets that do not have them.

    Definitions may call operators that books define; these are taken apart as well.

    Args:
        book: A loaded book.
        keep: Operators to leave, by name: those that the target has.
        options: Limit, bound.

    Raises:
        ModelError: The book has errors.
    """

    name = "unfuse-operators"

    def __init__(self, book: LoadedBook, *, keep: Collection[str] = (), options: RewriteOptions | None = None) -> None:
        super().__init__(unfuse(book, keep=keep), options)
