"""Tables of a book: from operators, dtypes, numbers or strings to others, over which one rule ranges."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from exirkit.ir import Diagnostic, SourceText, YamlSource
from exirkit.patterns.books.model import Rule, RuleBook
from exirkit.patterns.operators.table import CONSTANTS, OperatorTable, UnknownNameError
from exirkit.patterns.types.scalars import family_members

_FAMILY = re.compile(r"\s*op(?:erator)?\s+in\s+([A-Za-z_]\w*)\s*")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){1,2}")


def tables_of_book(
    book: RuleBook, table: OperatorTable, source: YamlSource | None
) -> tuple[dict[str, dict[Any, Any]], list[Diagnostic]]:
    """Return the tables of a book with operators and dtypes instead of their names, and what is wrong with them.

    Args:
        book: The book.
        table: Operators that it knows.
        source: Where it stands.
    """
    made: dict[str, dict[Any, Any]] = {}
    found: list[Diagnostic] = []
    for name, rows in book.tables.items():
        text = source.text(("tables", name), name) if source else SourceText(name, file="<book>")
        problems = list(_problems(name, rows, table))
        found += [text.diagnostic("EK229", one, length=len(name), hint=hint) for one, hint in problems]
        if not problems:
            made[name] = {_value(key, table): _value(value, table) for key, value in rows.items()}
    return made, found


def _problems(name: str, rows: Mapping[str, Any], table: OperatorTable) -> Iterator[tuple[str, str | None]]:
    if name in CONSTANTS:
        yield f"{name!r} is a word of the language", "choose another name for the table"
    kinds: set[str] = set()
    for key, value in rows.items():
        try:
            kinds.add(_kind(_value(key, table)))
            _value(value, table)
        except UnknownNameError as error:
            yield f"table {name}: {error.message}", error.hint
            return
    if len(kinds) > 1:
        yield f"the keys of table {name} are of several kinds: {', '.join(sorted(kinds))}", "make a table of each kind"


def _value(written: Any, table: OperatorTable) -> Any:
    """Return what a text stands for: an operator, a dtype, a number, or itself."""
    if isinstance(written, list | tuple):
        return [_value(one, table) for one in written]
    if not isinstance(written, str):
        return written
    if written in CONSTANTS:
        return CONSTANTS[written]
    if written == "none":
        return None
    if _DOTTED.fullmatch(written):
        return table.find(written)
    try:
        return int(written)
    except ValueError:
        return written


def _kind(value: Any) -> str:
    if hasattr(value, "_schema"):
        return "operators"
    return "dtypes" if isinstance(value, torch.dtype) else "numbers" if isinstance(value, int | float) else "strings"


def with_tables(rule: Rule, book_tables: Mapping[str, Mapping[str, Any]]) -> Rule:
    """Replace `op in limits` by the operators that are the keys of a table."""
    changed = {}
    for name, text in rule.vars.items():
        family = _FAMILY.fullmatch(text)
        rows = book_tables.get(family[1]) if family else None
        if rows and all(map(_is_family_member, rows)):
            changed[name] = f"op in {', '.join(rows)}"
    return rule.model_copy(update={"vars": {**rule.vars, **changed}}) if changed else rule


def _is_family_member(name: str) -> bool:
    try:
        return bool(family_members((name,)))
    except LookupError:
        return False
