"""Reading rule books, and checking what can be checked without running anything."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

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
from exirkit.patterns.checking.dialect_operators import illegal_operators
from exirkit.patterns.matching.compiled_rule import CompiledRule, RuleTexts, compile_rule, texts_of
from exirkit.patterns.operators.defined import define_operator
from exirkit.patterns.operators.table import OperatorTable
from exirkit.patterns.syntax.scope import MACROS, Scope
from exirkit.patterns.syntax.terms import Operator
from exirkit.patterns.syntax.undecided_literals import undecided

SHIPPED = "rules"
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
        found: Diagnostics.
        source: The YAML behind it, if there is one.
        imported: Books that it names under `imports`.
    """

    book: RuleBook | None
    file: str
    rules: list[CompiledRule] = field(default_factory=list)
    operators: dict[str, Operator] = field(default_factory=dict)
    found: list[Diagnostic] = field(default_factory=list)
    source: YamlSource | None = None
    imported: list[LoadedBook] = field(default_factory=list)

    @property
    def errors(self) -> list[Diagnostic]:
        """Diagnostics that make the book unusable."""
        return [one for one in self.found if one.severity == "error"]

    def rule(self, rule_id: str) -> CompiledRule:
        """Return a rule by its id.

        Raises:
            UsageError: EK206, there is none.
        """
        for one in self.rules:
            if one.id == rule_id:
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
        path: Path of a file, or a name as in `shipped_books()`.

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


def shipped_books() -> tuple[str, ...]:
    """Return the names of the books that come with exirkit."""
    folder = files("exirkit.patterns").joinpath(SHIPPED)
    return tuple(sorted(each.name.removesuffix(".yaml") for each in folder.iterdir() if each.name.endswith(".yaml")))


def parse_book(text: str, file: str = "<book>") -> LoadedBook:
    """Read a book from its text."""
    return _parse(text, file, ())


def book_from_rules(rules: Iterable[Rule], *, ops: Mapping[str, OperatorDefinition] | None = None) -> LoadedBook:
    """Make a book of rules that were written in Python."""
    book = RuleBook(rulebook=1, ops=dict(ops or {}), rules=tuple(rules))
    return compile_book(book, "<python>", texts_of)


def _load(path: str | Path, above: tuple[str, ...]) -> LoadedBook:
    name = str(path)
    if name in shipped_books():
        resource = files("exirkit.patterns").joinpath(SHIPPED, f"{name}.yaml")
        return _parse(resource.read_text(encoding="utf-8"), f"{name}.yaml", above)
    try:
        text = read_text(path, _CODES.syntax)
    except ModelError as error:
        return LoadedBook(None, name, found=list(error.diagnostics))
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
    path = name if name in shipped_books() else str(Path(file).parent / name)
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
        if one.book is not None:
            macros.update(one.book.macros)
            types.update(one.book.types)
    macros.update(book.macros)
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
        rule = _with_types(rule, {**types, **book.types})
        scope = Scope(table, macros=macros)
        compiled = compile_rule(rule, written, scope)
        loaded.found += [_named(one, rule.id) for one in scope.found]
        if compiled is not None:
            loaded.rules.append(compiled)
            loaded.found += illegal_operators(compiled, table)
    loaded.operators = {**operators, **loaded.operators}
    return loaded


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

    def one(path: YamlPath, value: str | None) -> SourceText | None:
        return None if value is None else source.text((*base, *path), value)

    def known(path: YamlPath, value: str) -> SourceText:
        return source.text((*base, *path), value)

    def listed(key: str, at: int, value: str, *inner: str) -> SourceText:
        path: YamlPath = (key, at, *inner)
        if (*base, *path) in source.places:
            return known(path, value)
        return known((key, at) if (*base, key, at) in source.places else (key,), value)

    if isinstance(rule.replace, str):
        cases = ((None, None, known(("replace",), rule.replace)),)
    else:
        written: list[YamlPath] = [("replace",), ("replace", "cases"), ("cases",)]
        place = next((path for path in written if (*base, *path, 0) in source.places), written[0])
        cases = tuple(  # type: ignore[assignment]
            (
                one((*place, at, "when"), case.when),
                one((*place, at, "let"), case.let),
                known((*place, at, "replace"), case.replace),
            )
            for at, case in enumerate(rule.replace)
        )
    return RuleTexts(
        rule=known(("id",), rule.id),
        match=known(("match",), rule.match),
        vars={name: known(("vars", name), text) for name, text in rule.vars.items()},
        where=tuple(listed("where", at, guard.expr, "expr") for at, guard in enumerate(rule.where)),
        unless=tuple(listed("unless", at, pattern) for at, pattern in enumerate(rule.unless)),
        let=one(("let",), rule.let),
        gen=one(("gen",), rule.gen),
        cases=cases,
    )
