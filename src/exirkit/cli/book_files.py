"""Rule books that options name: files, shipped books, or directories of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .failures import WRONG_USAGE, CommandError

_SUFFIXES = (".yaml", ".yml")


def expand_books(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of books, with the rule books of a directory and those below it, sorted, instead of the directory.

    A name of a shipped book means that book, even where there is a directory of that name. YAML files that are not rule
    books, such as pipelines, are left out.

    Raises:
        CommandError: EK711, there is no rule book in a directory.
        OSError: A directory cannot be read.
    """
    from exirkit.patterns import shipped_books

    found: list[str] = []
    for name in names:
        folder = Path(name)
        if name in shipped_books() or not folder.is_dir():
            found.append(name)
            continue
        books = sorted(str(one) for one in folder.rglob("*") if one.suffix in _SUFFIXES and _is_book(one))
        if not books:
            raise CommandError(
                code="EK711",
                message="there is no rule book in this directory",
                file=name,
                hint="a rule book is a .yaml file with the key `rulebook`",
                exit_code=WRONG_USAGE,
            )
        found += books
    return tuple(found)


def _is_book(path: Path) -> bool:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return False
    return any(line.startswith("rulebook:") for line in lines)
