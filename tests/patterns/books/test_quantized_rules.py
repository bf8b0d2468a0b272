"""Rules about quantized values: the book that comes with exirkit, and wrong ones, which must be rejected."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.patterns.rule_files import book, rule_ids
from tests.thoroughness import TRIES_ALL

from exirkit.patterns import book_text, check_book, named_books, shipped_books, shipped_witnesses
from exirkit.patterns.checking.near_misses import parts_of
from exirkit.patterns.checking.witnesses import rule_text_hash

WRONG = "unsound_quantized_rules"
DIFFERENT = {"EK219", "EK240"}
"""Pattern and replacement differ in sizes or dtypes, or in values."""


@pytest.mark.parametrize("rule_id", [rule_id for _, rule_id in rule_ids(WRONG)])
def test_a_wrong_rule_is_rejected_for_what_it_computes(rule_id: str) -> None:
    loaded = book(WRONG).require_valid()
    assert loaded.rule(rule_id).rule.doc, "each states why it is wrong"
    verdict = check_book(loaded, only=[rule_id])
    assert verdict.rules
    for one in verdict.rules:
        assert not one.is_accepted
        assert DIFFERENT & {found.code for found in one.found}


def test_there_are_at_least_as_many_as_were_asked_for() -> None:
    assert len(rule_ids(WRONG)) >= 25
    assert len(rule_ids("quantized", "quant")) >= 60


def test_the_book_is_the_one_that_was_accepted() -> None:
    loaded, witnesses = book("quantized"), shipped_witnesses("quantized")
    assert witnesses is not None
    assert loaded.book is not None
    assert all(one.doc and one.doc.endswith(".") for one in loaded.book.rules)
    assert [one.rule for one in witnesses.rules] == [one.id for one in loaded.rules]
    for one, stored in zip(loaded.rules, witnesses.rules, strict=True):
        assert stored.text == rule_text_hash(one, loaded), f"{one.id}: search again with --update"
        assert stored.samples >= 200
        assert [(miss.what, miss.text) for miss in stored.near_misses] == [
            (part.kind, part.text) for part in parts_of(one)
        ]


def test_the_book_is_read_only_where_it_is_named() -> None:
    assert "quantized" in named_books()
    assert not set(named_books()) & set(shipped_books())
    source = Path(__file__).parents[3] / "src" / "exirkit"
    for file in (*source.rglob("*.yaml"), *source.rglob("levels*.py")):
        assert not re.search(r"books?:.*\bquantized\b", file.read_text(encoding="utf-8")), file
    assert "No level of optimization" in book_text("quantized")


def test_every_rule_of_the_book_is_tried_again() -> None:
    verdict = check_book(
        book("quantized"), trials=30 if TRIES_ALL else 8, witnesses=shipped_witnesses("quantized"), is_fast=True
    )
    assert verdict.is_accepted, [found.message for one in verdict.rules for found in one.found]
