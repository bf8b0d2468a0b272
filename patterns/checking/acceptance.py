"""Which rules of a book were accepted by a check: hashes of their texts, kept in a file beside the book."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from exirkit.patterns.books.loading import LoadedBook
from exirkit.patterns.books.shipped import is_shipped

from .checks import TRIALS, BookVerdict
from .witnesses import rule_text_hash

SUFFIX = ".accepted"


class _Accepted(BaseModel):
    """The file: hashes of texts by the ids of rules."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    accepted: Literal[1]
    rules: dict[str, str]


def acceptance_file(book: str | Path) -> Path:
    """Return where the hashes of a book are kept: `book.yaml.accepted` beside `book.yaml`."""
    path = Path(book)
    return path.with_name(path.name + SUFFIX)


def record_acceptance(book: LoadedBook, verdict: BookVerdict, trials: int = TRIALS) -> Path | None:
    """Write beside a book which of its rules were accepted.

    Rules that were not checked now keep what was known of them; those that were rejected lose it. A check with fewer
    samples than usual accepts nothing. A file that says the same already is not touched.

    Args:
        book: As it was checked.
        verdict: Of the check.
        trials: Samples per rule.

    Returns:
        The file, or None if there is nothing to keep: the book comes with exirkit, or none of its rules was accepted.

    Raises:
        OSError: The file cannot be written.
    """
    if book.book is None or not Path(book.file).is_file():
        return None
    path = acceptance_file(book.file)
    before = _read(path)
    hashes = {rule.id: rule_text_hash(rule, book) for rule in book.rules}
    known = {name: text for name, text in before.items() if hashes.get(name) == text}
    for one in verdict.rules:
        if not one.is_accepted or book.errors:
            known.pop(one.rule, None)
        elif trials >= TRIALS:
            known[one.rule] = hashes[one.rule]
    if known == before:
        return path if known else None
    if not known:
        path.unlink(missing_ok=True)
        return None
    ordered = {rule.id: known[rule.id] for rule in book.rules if rule.id in known}
    path.write_text(json.dumps({"accepted": 1, "rules": ordered}, indent=1) + "\n", encoding="utf-8")
    return path


def unaccepted_rules(book: LoadedBook, path: str | Path) -> tuple[str, ...]:
    """Return the ids of the rules of a book that no check has accepted with the text that they have now.

    Args:
        book: The book.
        path: Its file, or the name of a shipped one; those are checked before they are shipped.
    """
    if is_shipped(str(path)):
        return ()
    known = _read(acceptance_file(path))
    return tuple(_differing(book, known))


def _differing(book: LoadedBook, known: dict[str, str]) -> Iterable[str]:
    return (rule.id for rule in book.rules if known.get(rule.id) != rule_text_hash(rule, book))


def _read(path: Path) -> dict[str, str]:
    """Return the hashes in a file; one that is not there, or is something else, has none."""
    try:
        return dict(_Accepted.model_validate_json(path.read_text(encoding="utf-8")).rules)
    except (OSError, ValidationError, UnicodeDecodeError):
        return {}
