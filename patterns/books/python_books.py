"""Rules written as Python: functions that are parsed and never run.

```python
book = PythonBook("mine")

@book.rule("fuse.silu", equiv={"rtol": 1e-5})
class _:
    \"\"\"A value times its sigmoid is one operator.\"\"\"
    x: "f32 [*S]"
    def match(x): return aten.mul.Tensor(x, aten.sigmoid.default(x))
    def replace(x): return aten.silu.default(x)
```
"""

from __future__ import annotations

import ast
import linecache
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from exirkit.ir import Diagnostic, Location, SourceText, UsageError, YamlPath
from exirkit.patterns.books.model import AttributeDefinition, OperatorDefinition, Rule, RuleBook
from exirkit.patterns.matching.compiled_rule import RuleTexts, texts_of

from .loading import LoadedBook, compile_book

Written = TypeVar("Written", bound=type)

_PROGRAMS = ("match", "replace", "let", "uses")


class PythonBook:
    """A book of rules written in Python.

    Args:
        namespace: Prefix under which the rules are known elsewhere.
        ops: Operators with definitions, by name.
        attributes: Attributes of calls, by name, as under `attributes` of a book.
        tables: Tables, by name, as under `tables` of a book: names of operators and dtypes are strings.
    """

    def __init__(
        self,
        namespace: str = "local",
        *,
        ops: Mapping[str, OperatorDefinition] | None = None,
        attributes: Mapping[str, Mapping[str, str]] | None = None,
        tables: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.namespace = namespace
        self.ops = dict(ops or {})
        self.attributes = {
            name: AttributeDefinition.model_validate(dict(one)) for name, one in (attributes or {}).items()
        }
        self.tables = {name: dict(rows) for name, rows in (tables or {}).items()}
        self.rules: list[Rule] = []
        self._texts: dict[str, RuleTexts] = {}
        self._file = "<python>"

    def rule(self, rule_id: str, **fields: Any) -> Callable[[Written], Written]:
        """Make a class a rule: annotations are types of variables, functions are programs.

        Args:
            rule_id: Its id.
            fields: Other fields of `Rule`: `kind`, `where`, `equiv`, `priority` ...

        Raises:
            UsageError: EK207, the class cannot be read as a rule.
        """

        def register(written: Written) -> Written:
            definition, file = _definition_of(written, rule_id)
            given, places = _fields_of(definition, file, rule_id)
            try:
                rule = Rule.model_validate({"id": rule_id, **given, **fields})
            except ValidationError as error:
                first = error.errors()[0]
                what = ".".join(str(part) for part in first["loc"])
                raise _unreadable(rule_id, f"{what}: {first['msg'].lower()}", file, definition.lineno) from error
            self.rules.append(rule)
            self._texts[rule_id] = _texts_of(rule, places, file, definition.lineno)
            self._file = file
            return written

        return register

    def load(self) -> LoadedBook:
        """Return the book, compiled, with all that is wrong with it.

        Raises:
            UsageError: EK207, a table is not one.
        """
        try:
            book = RuleBook(
                rulebook=1,
                namespace=self.namespace,
                ops=self.ops,
                attributes=self.attributes,
                tables=self.tables,
                rules=tuple(self.rules),
            )
        except ValidationError as error:
            first = error.errors()[0]
            what = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg'].lower()}"
            raise UsageError(
                Diagnostic(code="EK207", message=f"book {self.namespace} cannot be read: {what}")
            ) from error
        return compile_book(book, self._file, lambda rule: self._texts[rule.id])


def _definition_of(written: type, rule_id: str) -> tuple[ast.ClassDef, str]:
    """Return the syntax of a class, found by where one of its functions stands: many are called `_`."""
    code = next((value.__code__ for value in vars(written).values() if hasattr(value, "__code__")), None)
    if code is None:
        raise _unreadable(rule_id, "the class has no function `match`", "<python>", 1)
    lines = linecache.getlines(code.co_filename)
    if not lines:
        raise _unreadable(rule_id, "its source cannot be found; rules are parsed from files", code.co_filename, 1)
    for node in ast.walk(ast.parse("".join(lines))):
        if isinstance(node, ast.ClassDef) and node.lineno <= code.co_firstlineno <= (node.end_lineno or node.lineno):
            return node, code.co_filename
    raise _unreadable(rule_id, "its source has changed since it was loaded", code.co_filename, 1)


def _fields_of(definition: ast.ClassDef, file: str, rule_id: str) -> tuple[dict[str, Any], dict[str, SourceText]]:
    given: dict[str, Any] = {"vars": {}}
    places: dict[str, SourceText] = {}
    doc = ast.get_docstring(definition)
    if doc is not None:
        given["doc"] = " ".join(doc.split())
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is None:
            if not (isinstance(node.annotation, ast.Constant) and isinstance(node.annotation.value, str)):
                raise _unreadable(rule_id, f"the type of {node.target.id!r} is a text", file, node.lineno)
            given["vars"][node.target.id] = node.annotation.value
            places[f"vars.{node.target.id}"] = _text(node.annotation.value, file, node.annotation, quote=1)
        elif isinstance(node, ast.FunctionDef) and node.name in _PROGRAMS:
            given[node.name] = _program(node, file)
            places[node.name] = _text(given[node.name], file, _first_statement(node))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            given[node.targets[0].id] = _literal(node, rule_id, file)
        elif not (isinstance(node, ast.Expr | ast.Pass)):
            what = f"a rule has annotations, {', '.join(_PROGRAMS)} and assignments"
            raise _unreadable(rule_id, what, file, node.lineno)
    return given, places


def _program(node: ast.FunctionDef, file: str) -> str:
    """Return the body of a function as text, as it is written."""
    lines = linecache.getlines(file)
    first, last = _first_statement(node), node.body[-1]
    if first.lineno == node.lineno:
        return "".join(lines[first.lineno - 1 : last.end_lineno])[first.col_offset :].strip()
    return textwrap.dedent("".join(lines[first.lineno - 1 : last.end_lineno])).strip() + "\n"


def _first_statement(node: ast.FunctionDef) -> ast.stmt:
    """Return the first statement of a function behind its docstring."""
    first = node.body[0]
    is_doc = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return node.body[1] if is_doc and len(node.body) > 1 else first


def _literal(node: ast.Assign, rule_id: str, file: str) -> Any:
    try:
        return ast.literal_eval(node.value)
    except (ValueError, TypeError):
        raise _unreadable(rule_id, "only literals can be assigned in a rule", file, node.lineno) from None


def _text(value: str, file: str, node: ast.AST, *, quote: int = 0) -> SourceText:
    lines = tuple(line.rstrip("\n") for line in linecache.getlines(file))
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    return SourceText(value, file, line, column + 1 + quote, True, lines)


def _texts_of(rule: Rule, places: Mapping[str, SourceText], file: str, line: int) -> RuleTexts:
    lines = tuple(one.rstrip("\n") for one in linecache.getlines(file))

    def text_at(path: YamlPath, value: str) -> SourceText:
        # What the decorator is given stands somewhere before the class.
        return places.get(".".join(map(str, path))) or SourceText(value, file, line, 1, False, lines)

    return texts_of(rule, text_at)


def _unreadable(rule_id: str, message: str, file: str, line: int) -> UsageError:
    text = linecache.getline(file, line).rstrip("\n") or None
    place = Location(file=file, line=line, column=1, text=text, span=len(text) if text else None)
    return UsageError(Diagnostic(code="EK207", message=f"rule {rule_id} cannot be read: {message}", location=place))
