"""`exirkit rule ...`: checking rule books, and looking into them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .console import Steps, print_json

rule_app = typer.Typer(rich_markup_mode=None, help="Check rule books, and look into them.", no_args_is_help=True)


class TraceDialect(StrEnum):
    """Dialects that functions can be traced in."""

    ATEN = "aten"
    EDGE = "edge"


Libraries = Annotated[
    list[str] | None,
    typer.Option("--import", metavar="MODULE", help="Python module that registers operators; repeatable."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
BookFile = Annotated[str, typer.Argument(metavar="BOOK.yaml|NAME", show_default=False)]


@rule_app.command()
def check(
    books: Annotated[list[str] | None, typer.Argument(metavar="[BOOK.yaml|DIR|NAME]...", show_default=False)] = None,
    rules: Annotated[list[str] | None, typer.Option("--rule", metavar="ID", help="Only this rule; repeatable.")] = None,
    trials: Annotated[int, typer.Option(min=1, max=100_000, help="Samples that each rule must be right for.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of the samples.")] = 0,
    strict: Annotated[
        bool, typer.Option("--strict", help="A guard without a witness, or called what it is not, is an error.")
    ] = False,
    witnesses: Annotated[
        Path | None, typer.Option(metavar="FILE.json|DIR", help="Where the witnesses of the parts of rules are kept.")
    ] = None,
    update: Annotated[
        bool,
        typer.Option("--update", help="Search witnesses and write them there; with --fast those that are missing."),
    ] = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="Try stored witnesses that fit the text of a rule; do not search.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=256, help="Processes.")] = 1,
    together: Annotated[
        bool, typer.Option("--together", help="The books are applied together: see what they do to each other.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print what is no fault but worth knowing, too.")] = False,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Check every rule of a book: exit code 0 if all are accepted, 1 otherwise.

    Each rule is read against the schemas of its operators, run on values made from the types of its variables, and
    tried without each of its guards, literals and repetitions to see what they are for. Without a book, all that come
    with exirkit are checked.
    """
    with Steps() as steps:
        steps("loading torch")
        from .rule_checking import CheckOptions, check_files

        options = CheckOptions(tuple(rules or ()), trials, seed, strict, witnesses, update, fast, jobs, together,
                               libraries=tuple(libraries or ()))  # fmt: skip
        report, texts = check_files(tuple(books or ()), options, steps)
    if json:
        print_json(report.books[0] if books and len(books) == len(report.books) == 1 else report)
    else:
        from .rule_rendering import print_checked, print_findings

        for one, found in zip(report.books, texts, strict=False):
            print_checked(one, found, is_verbose=verbose)
        print_findings(texts[-1], is_verbose=verbose)
    raise typer.Exit(0 if report.ok else 1)


@rule_app.command()
def explain(
    model: Annotated[str, typer.Argument(metavar="MODULE:FACTORY|FILE.pt2", show_default=False)],
    books: Annotated[list[str], typer.Option("--rules", metavar="BOOK", help="A file, or a shipped book; repeatable.")],
    rule: Annotated[str, typer.Option("--rule", metavar="ID", help="Id of the rule.")],
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Node to look at; else those at which it gets furthest.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="Name of the method; else all.")] = None,
    after_others: Annotated[
        bool, typer.Option("--after-others", help="Apply the other rules of the books before.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Export with TorchDynamo.")] = False,
    official: Annotated[bool, typer.Option("--official", help="Look in the official exporter's Edge.")] = False,
    exported: Annotated[bool, typer.Option("--exported", help="Look in the exported program.")] = False,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Say why a rule does or does not fire in a model.

    For a node: the part of the rule that stops the match, what it asks for, and what the program has there. MODEL is
    what `exirkit lower` takes; rules are looked at in the Edge program, where `lower --rules` applies them.
    """
    from .model_source import parse_source

    source = parse_source(model)
    with Steps() as steps:
        steps("loading torch")
        from exirkit.patterns import import_libraries

        from .rule_explaining import ExplainOptions, explain_source, print_explained

        options = ExplainOptions(tuple(books), rule, node, method, after_others, strict, official, exported)
        import_libraries(libraries or ())
        report, texts = explain_source(source, options, steps)
    if json:
        print_json(report)
        return
    print_explained(report, texts)


@rule_app.command("list")
def list_rules(
    book: Annotated[str | None, typer.Argument(metavar="[BOOK.yaml|DIR|NAME]", show_default=False)] = None,
    json: Json = False,
) -> None:
    """List the rules of a book or of the books in a directory, or the books that come with exirkit."""
    with Steps() as steps:
        steps("loading torch")
        from .rule_checking import list_book

        report = list_book(book)
    if json:
        print_json(report)
        return
    from .rule_rendering import print_rules

    print_rules(report)


@rule_app.command()
def schema(
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE.json")] = None,
) -> None:
    """Print the JSON Schema of rule books, with which editors complete and check them."""
    from exirkit.patterns import rulebook_schema_text

    text = rulebook_schema_text()
    if output is None:
        typer.echo(text, nl=False)
        return
    from .output_files import check_writable, write_whole

    check_writable(output, ".json")
    write_whole(output, lambda file: file.write(text.encode()))


@rule_app.command()
def docs(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", show_default=False)],
    books: Annotated[list[str] | None, typer.Argument(metavar="[BOOK.yaml|DIR|NAME]...", show_default=False)] = None,
    json: Json = False,
) -> None:
    """Write pages about the rules of books: Markdown, one for each book, and an index.

    Without a book, about those that come with exirkit. The same books give the same pages.
    """
    with Steps() as steps:
        steps("loading torch")
        from .rule_docs import print_written, write_pages

        report = write_pages(books or (), output, steps)
    if json:
        print_json(report)
        return
    print_written(report)


@rule_app.command("from-trace")
def from_trace(
    target: Annotated[str, typer.Argument(metavar="MODULE:FUNCTION", show_default=False)],
    replace: Annotated[
        str | None, typer.Option("--replace", metavar="FUNCTION", help="What to put in its place; in the same module.")
    ] = None,
    examples: Annotated[
        list[str] | None,
        typer.Option("--example", metavar="NAME=VALUE", help="x='f32 [2, 3]', w='const f32 [3]', alpha=0.25"),
    ] = None,
    decide: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=WAY", help="exact, any, default, sizes, a type, or the name of a literal."),
    ] = None,
    rule: Annotated[str | None, typer.Option("--id", help="Id of the rule; else from the name.")] = None,
    dialect: Annotated[TraceDialect, typer.Option(help="Where the rule is to be applied.")] = TraceDialect.EDGE,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="BOOK.yaml")] = None,
    json: Json = False,
) -> None:
    """Make a rule of two functions that are traced on examples.

    Every literal of the trace is to be decided on: what is not decided by `--decide` is marked in the book, which is
    not loaded before no mark is left. FUNCTION takes the examples, in their order; or it takes nothing and returns
    (pattern, replacement, examples), examples a dict of tensors and numbers.
    """
    from .model_source import parse_source

    source = parse_source(target)
    with Steps() as steps:
        steps("loading torch")
        from .rule_tracing import TraceOptions, print_traced, trace_source

        options = TraceOptions(
            replace, tuple(examples or ()), tuple(decide or ()), rule, dialect is TraceDialect.EDGE, output
        )
        report = trace_source(source, options, steps)
    if json:
        print_json(report)
        return
    print_traced(report)


@rule_app.command()
def words(json: Json = False) -> None:
    """List the words that conditions and `let` may use."""
    from .rule_checking import list_words

    report = list_words()
    if json:
        print_json(report)
        return
    from .rule_rendering import print_words

    print_words(report)
