"""Reading rule books, and checking what can be checked without running anything."""

from __future__ import annotations

import ast
import difflib
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exirkit.ir import (
    Diagnostic,
    DocumentCodes,
    ModelError,
    SourceText,
    UsageError,
    YamlPath,
    YamlSource,
    choices_hint,
    read_document,
    read_text,
)
from exirkit.patterns.books.model import OperatorDefinition, Rule, RuleBook
from exirkit.patterns.books.quantized_variables import expanded
from exirkit.patterns.books.shipped import BACKENDS, backend_books, book_text, is_shipped, shipped_books
from exirkit.patterns.books.tables import tables_of_book, with_tables
from exirkit.patterns.matching.compiled_rule import CompiledRule, RuleTexts, compile_rule, texts_of
from exirkit.patterns.operators.defined import define_operator, definition_of
from exirkit.patterns.operators.table import OperatorTable, UnknownNameError, dotted_name, name_of
from exirkit.patterns.syntax.attributes import Attribute, declared
from exirkit.patterns.syntax.expressions import ExpressionError, parse_statements
from exirkit.patterns.syntax.programs import MACROS, Scope, place_of
from exirkit.patterns.syntax.terms import Operator

_DEEPEST_IMPORT = 10
_LARGEST_CHARACTERS = 8 << 20
_CODES = DocumentCodes(syntax="EK201", form="EK202")


@dataclass
class LoadedBook:
    """A book, its compiled rules and all that is wrong with it.

    Attributes:
        book: As it was written; None if it could not even be read.
        file: Where it comes from.
        rules: Rules that were compiled.
        operators: Operators that it defines, by name.
        attributes: Attributes that it declares or imports, by name.
        found: Diagnostics.
        source: The YAML behind it, if there is one.
        imported: Books that it names under `imports`.
        tables: Its tables, with operators and dtypes instead of their names.
    """

    book: RuleBook | None
    file: str
    rules: list[CompiledRule] = field(default_factory=list)
    operators: dict[str, Operator] = field(default_factory=dict)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    found: list[Diagnostic] = field(default_factory=list)
    source: YamlSource | None = None
    imported: list[LoadedBook] = field(default_factory=list)
    tables: dict[str, dict[Any, Any]] = field(default_factory=dict)

    @property
    def errors(self) -> list[Diagnostic]:
        """Diagnostics that make the book unusable."""
        return [one for one in self.found if one.severity == "error"]

    def rule(self, rule_id: str) -> CompiledRule:
        """Return a rule by its id; of one that stands for several, by the id in the book, the first of these.

        Raises:
            UsageError: EK206, there is none.
        """
        for one in self.rules:
            if rule_id in (one.id, one.rule.origin):
                return one
        raise UsageError(
            Diagnostic(
                code="EK206",
                message=f"{self.file} has no rule {rule_id!r}",
                hint=choices_hint(rule_id, [one.id for one in self.rules], "it has"),
            )
        )

    def require_valid(self) -> LoadedBook:
        """Return the book itself if nothing is wrong with it.

        Raises:
            ModelError: All that is wrong.
        """
        if self.errors:
            raise ModelError(self.errors)
        return self


def load_book(path: str | Path) -> LoadedBook:
    """Read a book from a YAML file, or a shipped one by its name.

    Args:
        path: Path of a file, or a name as in `shipped_books()` or `backend_books()`.

    Returns:
        The book with all diagnostics; nothing is raised for what is wrong inside it.

    Raises:
        OSError: The file cannot be read.
    """
    return _load(path, ())


def load_books(paths: Iterable[str | Path]) -> list[LoadedBook]:
    """Read books that are used together.

    Args:
        paths: Files, or names of shipped books.

    Raises:
        OSError: A file cannot be read.
        ModelError: All that is wrong with a book; EK275, two of them give an operator different meanings.
    """
    books = [load_book(path).require_valid() for path in paths]
    found = _different_meanings(books)
    if found:
        raise ModelError(found)
    return books


def _different_meanings(books: Iterable[LoadedBook]) -> list[Diagnostic]:
    """Return a diagnostic for every operator to which two books give different meanings, EK275."""
    first: dict[str, tuple[Operator, SourceText]] = {}
    found: dict[str, Diagnostic] = {}
    for book in _with_imported(books):
        for name, op in book.operators.items():
            text = name if book.source is None else ""
            place = SourceText(text, file=book.file) if book.source is None else book.source.text(("ops", name), name)
            known = first.setdefault(name, (op, place))
            if known[0] is not op and name not in found:
                here, there = place.location(), known[1].location()
                found[name] = place.diagnostic(
                    "EK275",
                    f"{name} has another meaning in {there.file}",
                    length=len(name),
                    notes=(f"defined first: {there.file}, line {there.line}", f"again: {here.file}, line {here.line}"),
                    hint="rename one of them, or give both the same schema and definition",
                )
    return list(found.values())


def _with_imported(books: Iterable[LoadedBook]) -> Iterator[LoadedBook]:
    """Yield books after those that they import."""
    for one in books:
        yield from _with_imported(one.imported)
        yield one


def parse_book(text: str, file: str = "<book>") -> LoadedBook:
    """Read a book from its text."""
    return _parse(text, file, ())


def book_from_rules(rules: Iterable[Rule], *, ops: Mapping[str, OperatorDefinition] | None = None) -> LoadedBook:
    """Make a book of rules that were written in Python."""
    book = RuleBook(rulebook=1, ops=dict(ops or {}), rules=tuple(rules))
    return compile_book(book, "<python>", texts_of)


def _load(path: str | Path, above: tuple[str, ...]) -> LoadedBook:
    name = str(path)
    # Names of shipped books have no suffix.
    if not name.endswith(".yaml") and is_shipped(name):
        return _parse(book_text(name), f"{name}.yaml", above)
    try:
        text = read_text(path, _CODES.syntax)
    except ModelError as error:
        return LoadedBook(None, name, found=list(error.diagnostics))
    except FileNotFoundError as error:
        if Path(name).suffix or ("/" in name and not name.startswith(f"{BACKENDS}/")):
            raise
        # A bare name is more likely that of a shipped book than that of a file.
        what = f"no such file, and no shipped book ({choices_hint(name, (*shipped_books(), *backend_books()))})"
        raise FileNotFoundError(error.errno, what, name) from None
    return _parse(text, name, above)


def _parse(text: str, file: str, above: tuple[str, ...]) -> LoadedBook:
    try:
        document = read_document(text, RuleBook, _CODES, file=file, largest=_LARGEST_CHARACTERS)
    except ModelError as error:
        return LoadedBook(None, file, found=list(error.diagnostics))
    book, source = document.model, document.source
    imported: list[LoadedBook] = []
    found: list[Diagnostic] = []
    for index, name in enumerate(book.libraries):
        problem = import_library(name)
        if problem is not None:
            written = source.text(("libraries", index), name)
            found.append(written.diagnostic("EK225", problem, length=len(name), hint="install it, or correct the name"))
    for index, name in enumerate(book.imports):
        written = source.text(("imports", index), name)
        imported += _imported(name, file, (*above, file), written, found)
    loaded = compile_book(book, file, lambda rule: _texts(source, book, rule), imported=imported, source=source)
    loaded.found = found + loaded.found + _different_meanings([loaded])
    return loaded


def import_library(name: str) -> str | None:
    """Import a module that registers operators; return what is wrong, or None."""
    try:
        importlib.import_module(name)
    except Exception as error:
        # Whatever a foreign module raises is reported, and the rest of the book is read.
        return f"library {name} cannot be imported: {type(error).__name__}: {error}"
    return None


def import_libraries(names: Iterable[str]) -> None:
    """Import modules that register operators.

    Raises:
        UsageError: EK225, one cannot be imported.
    """
    for name in names:
        problem = import_library(name)
        if problem is not None:
            raise UsageError(Diagnostic(code="EK225", message=problem, hint="install it, or correct the name"))


def _imported(
    name: str, file: str, above: tuple[str, ...], place: SourceText, found: list[Diagnostic]
) -> list[LoadedBook]:
    path = name if is_shipped(name) else str(Path(file).parent / name)
    if path in above or len(above) > _DEEPEST_IMPORT:
        found.append(place.diagnostic("EK203", f"{name} imports itself, over {' -> '.join(above)}"))
        return []
    try:
        book = _load(path, above)
    except OSError as error:
        what = (error.strerror or str(error)).lower()
        found.append(place.diagnostic("EK203", f"{name} cannot be imported: {what}", length=len(name)))
        return []
    found.extend(book.errors)
    return [book]


def compile_book(
    book: RuleBook,
    file: str,
    texts: Callable[[Rule], RuleTexts],
    *,
    imported: Iterable[LoadedBook] = (),
    source: YamlSource | None = None,
) -> LoadedBook:
    """Compile the rules of a book; whatever is wrong is noted, and the others are compiled all the same."""
    loaded = LoadedBook(book, file, source=source, imported=list(imported))
    macros = dict(MACROS)
    types: dict[str, str] = {}
    operators: dict[str, Operator] = {}
    for one in loaded.imported:
        operators.update(one.operators)
        loaded.attributes.update(one.attributes)
        if one.book is not None:
            macros.update(one.book.macros)
            types.update(one.book.types)
    macros.update(book.macros)
    rows = {key: each for one in loaded.imported if one.book is not None for key, each in one.book.tables.items()}
    rows.update(book.tables)
    table = OperatorTable(operators)
    for name, definition in book.ops.items():
        text = source.text(("ops", name, "define"), definition.define) if source else SourceText(definition.define)
        schema = source.text(("ops", name, "schema"), definition.schema_) if source else SourceText(definition.schema_)
        scope = Scope(table, macros=macros)
        made = define_operator(name, definition, text, schema, scope)
        loaded.found += scope.found
        if made is not None:
            loaded.operators[name] = made
            table.defined[name] = made
    table.defined.update(loaded.operators)
    tables = dict(pair for one in loaded.imported for pair in one.tables.items())
    loaded.tables, wrong = tables_of_book(book, table, source)
    loaded.found += wrong
    tables.update(loaded.tables)
    _declare_attributes(loaded, book, Scope(table, macros=macros))
    seen: dict[str, SourceText] = {}
    for rule in book.rules:
        written = texts(rule)
        if rule.id in seen:
            first = seen[rule.id].location()
            loaded.found.append(
                written.rule.diagnostic(
                    "EK204", f"there are two rules {rule.id!r}", notes=(f"first: line {first.line}",)
                )
            )
            continue
        seen[rule.id] = written.rule
        open_literals = undecided(written)
        if open_literals:
            loaded.found += [_named(one, rule.id) for one in open_literals]
            continue
        made = expanded(with_tables(_with_types(rule, {**types, **book.types}), rows), written, table)
        loaded.found += [_named(one, rule.id) for one in made.found]
        for variant, texts_of_variant in made.rules:
            scope = Scope(table, macros=macros, tables=tables, attributes=loaded.attributes)
            compiled = compile_rule(variant, texts_of_variant, scope)
            loaded.found += [_named(one, rule.id) for one in scope.found]
            if compiled is None:
                # The other variants are wrong in the same way.
                break
            loaded.rules.append(compiled)
            loaded.found += illegal_operators(compiled, table)
    loaded.operators = {**operators, **loaded.operators}
    return loaded


def _declare_attributes(loaded: LoadedBook, book: RuleBook, scope: Scope) -> None:
    """Compile the attributes that a book declares."""
    for name, definition in book.attributes.items():
        written = definition.means or ""
        path: YamlPath = ("attributes", name, "means") if definition.means else ("attributes", name)
        text = loaded.source.text(path, written) if loaded.source else SourceText(written, file=loaded.file)
        known = loaded.attributes.get(name)
        if known is not None:
            scope.complain(text, "EK299", f"attribute {name} is declared in an imported book already", None)
            continue
        made = declared(name, definition, text, scope)
        if made is not None:
            loaded.attributes[name] = made
    loaded.found += scope.found


def _named(one: Diagnostic, rule_id: str) -> Diagnostic:
    return one.model_copy(update={"notes": (f"in rule {rule_id}", *one.notes)})


def _with_types(rule: Rule, types: Mapping[str, str]) -> Rule:
    """Replace the names of types that the book defines by the types."""
    if not any(text in types for text in rule.vars.values()):
        return rule
    return rule.model_copy(update={"vars": {key: types.get(text, text) for key, text in rule.vars.items()}})


def _texts(source: YamlSource, book: RuleBook, rule: Rule) -> RuleTexts:
    index = next(at for at, one in enumerate(book.rules) if one is rule)
    base: YamlPath = ("rules", index)
    # Cases may stand under `replace`, under `cases` in it, or under `cases` instead of it.
    lists: list[YamlPath] = [("replace",), ("replace", "cases"), ("cases",)]
    cases = next((path for path in lists if (*base, *path, 0) in source.places), lists[0])

    def text_at(path: YamlPath, value: str) -> SourceText:
        key, *inner = path
        if key == "replace" and inner:
            return source.text((*base, *cases, *inner), value)
        # One condition or pattern may be written instead of a list, and a condition with further keys.
        forms: list[YamlPath] = [(*path, "expr"), path, (key,)] if key == "where" else [path, (key,)]
        found = next((form for form in forms if (*base, *form) in source.places), path)
        return source.text((*base, *found), value)

    return texts_of(rule, text_at)


# Marks `DECIDE(name, value)` in rules that were made from traces; a rule with a mark is not loaded

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


# Operators that a replacement may not call, because the dialect that the rule leads to does not have them

_ONLY_EDGE = {"dim_order_ops._to_dim_order_copy": "aten._to_copy", "dim_order_ops._clone_dim_order": "aten.clone"}
"""Operators that exist because Edge has orders of dims in place of memory formats, and what they are in ATen."""


def illegal_operators(rule: CompiledRule, table: OperatorTable) -> list[Diagnostic]:
    """Return diagnostics about calls in replacements that are illegal in the rule's target dialect, EK222.

    Args:
        rule: A compiled rule.
        table: Operators of its book.
    """
    scope = rule.rule.dialect
    dialect = scope.source if scope.target == "same" else scope.target
    if dialect in ("any", "same"):
        return []
    found: list[Diagnostic] = []
    for _, _, text in rule.texts.cases:
        for node, dotted, op in _calls(text, table):
            reason = _reason(dialect, op)
            if reason is not None:
                at = place_of(node)
                found.append(
                    text.diagnostic(
                        "EK222", f"{dotted} is illegal in the dialect {dialect}: it {reason}",
                        line=at.line, offset=at.offset, length=at.length, hint=_hint(dialect, dotted, op, table),
                        notes=(f"in rule {rule.id}",),
                    )
                )  # fmt: skip
    return found


def _calls(text: SourceText, table: OperatorTable) -> Iterator[tuple[ast.AST, str, Operator]]:
    try:
        statements = parse_statements(text.value)
    except ExpressionError:
        return
    for statement in statements:
        for node in ast.walk(statement):
            dotted = dotted_name(node.func) if isinstance(node, ast.Call) else None
            if not isinstance(node, ast.Call) or dotted is None or "." not in dotted:
                continue
            try:
                yield node.func, dotted, table.find(dotted)
            except UnknownNameError:
                continue


def _reason(dialect: str, op: Operator) -> str | None:
    schema = op._schema
    if schema.is_mutable:
        return "writes to its arguments"
    if dialect == "aten":
        return "exists in Edge only" if _family(op) in _ONLY_EDGE else None
    if any(one.alias_info is not None for one in schema.returns):
        return "returns a view of its argument"
    if dialect == "edge" or definition_of(op) is None:
        return None
    namespace = name_of(op).partition(".")[0]
    wanted = dialect.partition(":")[2]
    # Books of one process that mean different things by one name get namespaces with a suffix.
    is_own = namespace == wanted or namespace.rpartition("_")[0] == wanted
    return None if is_own else "is an operator of another backend"


def _hint(dialect: str, dotted: str, op: Operator, table: OperatorTable) -> str | None:
    if definition_of(op) is not None:
        wanted = dialect.partition(":")[2]
        mine = [name for name in table.defined if name.startswith(f"{wanted}.")]
        close = difflib.get_close_matches(dotted.partition(".")[2], [name.partition(".")[2] for name in mine], n=1)
        return f"did you mean {wanted}.{close[0]}?" if close else f"define it as {wanted}.{dotted.partition('.')[2]}"
    name, overload = _family(op), op._schema.overload_name or "default"
    if name in _ONLY_EDGE:
        return f"did you mean {_ONLY_EDGE[name]}.default?"
    plain = name.removesuffix("_") if op._schema.is_mutable else f"{name}_copy"
    for candidate in (f"{plain}.{overload}", f"{plain}.default", plain, f"{name.removesuffix('_')}.default"):
        try:
            other = table.find(candidate)
        except UnknownNameError:
            continue
        if _reason(dialect, other) is None:
            return f"did you mean {name_of(other)}?"
    return None


def _family(op: Operator) -> str:
    return name_of(op).rpartition(".")[0]
