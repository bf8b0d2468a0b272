"""`exirkit rule list`, `words`, `schema` and `docs`: what is in rule books, and what may be."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.console import Steps, print_json, print_line, print_table
from exirkit.cli.errors import CommandError
from exirkit.cli.files import check_writable, expand_books, write_text
from exirkit.cli.options import Json, Libraries

if TYPE_CHECKING:
    from exirkit.patterns import LoadedBook


@dataclass(frozen=True)
class ListedRule:
    """One rule of a book."""

    book: str
    id: str
    kind: str
    doc: str | None
    operators: list[str]


@dataclass(frozen=True)
class RuleListReport:
    """The document of `exirkit rule list`: rules of a book or of the books in a directory, or names of books."""

    book: str | None
    rules: list[ListedRule] = field(default_factory=list)
    books: list[str] = field(default_factory=list)


def list_rules(
    book: Annotated[str | None, typer.Argument(metavar="[BOOK.yaml|DIR|NAME]", show_default=False)] = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """List the rules of a book or of the books in a directory, or the books that come with exirkit."""
    with Steps() as steps:
        steps("loading torch")
        from exirkit.patterns import backend_books, load_book, named_books, shipped_books

        if book is None:
            report = RuleListReport(None, books=[*shipped_books(), *named_books(), *backend_books()])
        else:
            names = expand_books((book,))
            rules = [rule for name in names for rule in _listed(name, load_book(name))]
            report = RuleListReport(book, rules, [] if names == (book,) else list(names))
    if json:
        print_json(report)
    elif book is None:
        for name in report.books:
            print_line(name)
    else:
        for name in report.books or [book]:
            if report.books:
                print_line(name)
            found = [rule for rule in report.rules if rule.book == name]
            rows = [[rule.id, rule.kind, ", ".join(rule.operators[:3]), rule.doc or ""] for rule in found]
            print_table(["rule", "kind", "starts at", "what it does"], rows)


def _listed(name: str, book: LoadedBook) -> list[ListedRule]:
    from exirkit.ir import ModelError

    if book.book is None:
        raise ModelError(book.found)
    operators: dict[str, set[str]] = {}
    for one in book.rules:
        operators.setdefault(one.rule.origin, set()).update(one.anchor_names)
    return [
        ListedRule(name, rule.id, rule.family, rule.doc, sorted(operators.get(rule.id, ()))) for rule in book.book.rules
    ]


def builtins(json: Json = False) -> None:
    """List the builtins that conditions and `let` may use."""
    from exirkit.patterns import language_words

    found = language_words()
    if json:
        print_json({"builtins": [{"builtin": name, "text": text} for name, text in found.items()]})
    else:
        print_table(["builtin", "what it is"], list(found.items()))


def words(json: Json = False) -> None:
    """List the builtins; deprecated name of `exirkit rule builtins`."""
    print_line("`rule words` is deprecated; write `rule builtins`", err=True)
    if json:
        from exirkit.patterns import language_words

        print_json({"words": [{"word": name, "text": text} for name, text in language_words().items()]})
    else:
        builtins()


def schema(
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE.json")] = None,
) -> None:
    """Print the JSON Schema of rule books, with which editors complete and check them."""
    from exirkit.patterns import rulebook_schema_text

    text = rulebook_schema_text()
    if output is None:
        typer.echo(text, nl=False)
    else:
        check_writable(output, ".json")
        write_text(output, text)


def docs(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", show_default=False)],
    books: Annotated[list[str] | None, typer.Argument(metavar="[BOOK.yaml|DIR|NAME]...", show_default=False)] = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Write Markdown pages about rule books: one for each book, and an index.

    Without a book, about the general ones that come with exirkit; `backends` stands for those of backends. The same
    books give the same pages. Nothing is written unless all pages can be made.
    """
    if output.exists() and not output.is_dir():
        raise CommandError(code="EK712", message="is not a directory", file=str(output))
    check_writable(output / "index.md" if output.is_dir() else output.with_name("index.md"), ".md")
    with Steps() as steps:
        steps("loading torch")
        from exirkit.patterns import load_book, rule_pages, shipped_books

        loaded = []
        for name in expand_books(books) or shipped_books():
            steps(f"loading {name}")
            loaded.append(load_book(name))
        pages = rule_pages(loaded)
        output.mkdir(exist_ok=True)
        for name, text in pages.items():
            write_text(output / name, text)
    rules = sum(len(book.rules) for book in loaded)
    if json:
        print_json({"ok": True, "output": os.fspath(output), "pages": list(pages), "rules": rules})
    else:
        print_line(f"{os.fspath(output)}: {len(pages)} pages, rules: {rules}")
