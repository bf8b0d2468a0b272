"""From text to Python's syntax tree, which is read and never run; how large and deep it may be is bounded."""

from __future__ import annotations

import ast
from typing import Any

MAX_DEPTH = 60
MAX_LINE = 20_000


class ExpressionError(Exception):
    """An expression is not in the language, or cannot be evaluated.

    Attributes:
        node: Where.
        hint: What to do.
    """

    def __init__(self, message: str, node: ast.AST | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.hint = hint


def parse_expression(text: str) -> ast.expr:
    """Parse one expression.

    Raises:
        ExpressionError: It is no expression; `node` is a `SyntaxPlace`.
    """
    return _parsed(text, "eval").body  # type: ignore[no-any-return]


def parse_statements(text: str) -> list[ast.stmt]:
    """Parse a program.

    Raises:
        ExpressionError: It is none.
    """
    return _parsed(text, "exec").body  # type: ignore[no-any-return]


class SyntaxPlace(ast.AST):
    """A place where Python's parser gave up."""

    def __init__(self, line: int, offset: int) -> None:
        super().__init__()
        self.lineno = line
        self.col_offset = offset
        self.end_lineno = line
        self.end_col_offset = offset + 1


def _parsed(text: str, mode: str) -> Any:
    _check_depth(text)
    try:
        return ast.parse(text, mode=mode)
    except SyntaxError as error:
        place = SyntaxPlace(error.lineno or 1, max(0, (error.offset or 1) - 1))
        raise ExpressionError(f"this is not a program: {error.msg}", place) from None
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise ExpressionError(f"this cannot be parsed: {type(error).__name__}", SyntaxPlace(1, 0)) from None


def _check_depth(text: str) -> None:
    depth = 0
    for number, line in enumerate(text.splitlines(), 1):
        for offset, each in enumerate(line):
            depth += (each in "([{") - (each in ")]}")
            if depth > MAX_DEPTH:
                raise ExpressionError(f"brackets nest deeper than {MAX_DEPTH}", SyntaxPlace(number, offset))
        if len(line) > MAX_LINE:
            raise ExpressionError(f"a line of more than {MAX_LINE:,} characters", SyntaxPlace(number, 0))
