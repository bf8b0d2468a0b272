"""Marks `DECIDE(name, value)` in rules that were made from traces; a rule with a mark is not loaded."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from exirkit.ir import Diagnostic, SourceText
from exirkit.patterns.matching.compiled_rule import RuleTexts
from exirkit.patterns.syntax.expressions import ExpressionError, parse_statements

from .scope import place_of

MARK = "DECIDE"


def mark(name: str, value: str) -> str:
    """Return the mark of an undecided literal."""
    return f"{MARK}({name}, {value})"


def undecided(texts: RuleTexts) -> list[Diagnostic]:
    """Return a diagnostic for every undecided literal in a rule, each with its place."""
    found: list[Diagnostic] = []
    for text in (texts.match, *texts.unless, *(part for case in texts.cases for part in case[1:] if part is not None)):
        if MARK in text.value:
            found += [_diagnostic(text, node, text is texts.match) for node in _marks(text)]
    return found


def _marks(text: SourceText) -> Iterator[ast.Call]:
    try:
        statements = parse_statements(text.value)
    except ExpressionError:
        # What is not a program is reported when it is compiled.
        return
    found = [node for statement in statements for node in ast.walk(statement) if isinstance(node, ast.Call)]
    for node in sorted(found, key=lambda one: (one.lineno, one.col_offset)):
        if isinstance(node.func, ast.Name) and node.func.id == MARK:
            yield node


def _diagnostic(text: SourceText, node: ast.Call, is_pattern: bool) -> Diagnostic:
    parts = [ast.unparse(one) for one in node.args]
    name, value = (parts[0] if parts else "?"), (", ".join(parts[1:]) or "?")
    place = place_of(node)
    ways = f"{value} for exactly this, nothing for the default of the argument"
    ways += ", or a name with a type under `vars` for others too" if is_pattern else ", or a name of the pattern"
    return text.diagnostic(
        "EK264",
        f"undecided literal {name}, {value} in the trace",
        line=place.line,
        offset=place.offset,
        length=place.length,
        hint=f"write {ways}",
    )
