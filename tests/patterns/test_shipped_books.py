"""The books that come with exirkit are accepted as strictly as they can be."""

from __future__ import annotations

import pytest

from exirkit.patterns import check_rule, load_book, shipped_books

BOOKS = {name: load_book(name) for name in shipped_books()}
RULES = [(book, rule.id) for book, loaded in BOOKS.items() for rule in loaded.rules]


@pytest.mark.parametrize("book", BOOKS)
def test_book_loads(book: str) -> None:
    loaded = BOOKS[book]
    assert not loaded.found
    assert loaded.book is not None
    assert all(rule.doc and rule.doc.endswith(".") for rule in loaded.book.rules)
    assert len(loaded.rules) == len(loaded.book.rules)


def test_ids_are_unique_across_books() -> None:
    ids = [rule for _, rule in RULES]
    assert len(set(ids)) == len(ids)


@pytest.mark.slow
@pytest.mark.parametrize(("book", "rule"), RULES, ids=[rule for _, rule in RULES])
def test_rule_is_accepted(book: str, rule: str) -> None:
    verdict = check_rule(BOOKS[book].rule(rule), is_strict=True)
    assert verdict.is_accepted, "\n".join(one.render() for one in verdict.found)
    assert verdict.positives is not None
    assert verdict.positives.passed >= 200
