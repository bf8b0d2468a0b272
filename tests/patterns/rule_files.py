"""Rule books for tests: compiled once per process, and listed without being compiled."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from exirkit.patterns import CompiledRule, LoadedBook, book_text, is_shipped, load_book

HERE = Path(__file__).parent


@cache
def book(name: str) -> LoadedBook:
    """Return a shipped book, or one of the files in this folder by its stem."""
    return load_book(name if is_shipped(name) else HERE / f"{name}.yaml")


def rule(name: str, rule_id: str) -> CompiledRule:
    """Return a rule of a book."""
    return book(name).rule(rule_id)


def rule_ids(*names: str) -> list[tuple[str, str]]:
    """Return book and id of every rule; collecting tests must not compile books."""
    pattern = re.compile(r"^ *- \{?id: *([^,}\n]+)", re.MULTILINE)
    return [(name, found.strip()) for name in names for found in pattern.findall(_text(name))]


def _text(name: str) -> str:
    if is_shipped(name):
        return book_text(name)
    return (HERE / f"{name}.yaml").read_text(encoding="utf-8")
