"""Classes of the official package, read from its sources without importing them."""

from __future__ import annotations

import ast
import io
import tokenize
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_NOT_CODE = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
)


def folder_of(package: str) -> Path:
    """Return the folder of a package, given as a path from the top of the official tree."""
    spec = find_spec("executorch")
    assert spec is not None, "the official package is installed for these tests"
    top, _, rest = package.partition("/")
    assert top == "executorch"
    return Path(next(iter(spec.submodule_search_locations or ()))) / rest


@cache
def lines_of_classes(file: Path) -> dict[str, int]:
    """Return the number of lines of code of every class of a file: without comments, docstrings and empty lines.

    Functions of the file that a class uses, directly or not, belong to it. Of two classes of a name that at the top of
    the file counts.
    """
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOT_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node):
            docstring = node.body[0]
            code -= set(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    return {
        node.name: sum(
            sum(one.lineno <= line <= (one.end_lineno or 0) for line in code) for one in _with_used(node, functions)
        )
        for node in (*(one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)), *tree.body)
        if isinstance(node, ast.ClassDef)
    }


def _with_used(node: ast.stmt, functions: dict[str, ast.FunctionDef]) -> list[ast.stmt]:
    found: dict[str, ast.FunctionDef] = {}
    waiting = [node]
    while waiting:
        names = {each.id for each in ast.walk(waiting.pop()) if isinstance(each, ast.Name)} & functions.keys()
        waiting += [functions[name] for name in sorted(names - found.keys())]
        found.update({name: functions[name] for name in sorted(names)})
    return [node, *found.values()]
