"""Pages made from rule books, as Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from exirkit.ir import Diagnostic, UsageError
from exirkit.patterns.books.loading import LoadedBook
from exirkit.patterns.books.model import Rule, RuleBook
from exirkit.patterns.books.sentences import code, contract, facts, longest_ticks, plain, words
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.proving.standing import RuleStanding, standings, weakest


def block(text: str, language: str = "python") -> list[str]:
    """Return the lines of a block of code."""
    fence = "`" * max(3, longest_ticks(text) + 1)
    return [f"{fence}{language}", *text.rstrip("\n").splitlines(), fence]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table; cells are Markdown already."""
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return lines + [f"| {' | '.join(_cell(one) for one in row)} |" for row in rows]


class Anchors:
    """Anchors of headings, as Markdown viewers make them: one page, in order."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def of(self, heading: str) -> str:
        """Return the anchor of the next heading with this text."""
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        count = self._seen.get(slug, 0)
        self._seen[slug] = count + 1
        return f"{slug}-{count}" if count else slug


def _cell(text: str) -> str:
    # In code a table splits cells at bars as well.
    return re.sub(r"(?<!\\)\|", r"\\|", text)


# Pages made from rule books: what every rule looks for, under which conditions, what it puts there and promises


_KINDS_OF_GUARDS = {
    "sound": "results would be wrong",
    "profit": "it would be slower",
    "target": "the target has it not",
}


def rule_pages(books: Sequence[LoadedBook]) -> dict[str, str]:
    """Return a page of Markdown for every book, and an index of them.

    Args:
        books: Books without errors.

    Returns:
        Texts by file name, `index.md` the last.

    Raises:
        ModelError: A book has errors.
        UsageError: EK263, two books would have one page.
    """
    pages: dict[str, str] = {}
    entries: list[tuple[str, RuleBook, dict[str, RuleStanding]]] = []
    for loaded in books:
        book = loaded.require_valid().book
        assert book is not None, "a book without errors was read"
        name = f"{PurePath(loaded.file).stem}.md"
        if name in pages or name == "index.md":
            message = f"two pages would be called {name}"
            hint = f"rename {loaded.file}, or give it an output directory of its own"
            raise UsageError(Diagnostic(code="EK263", message=message, hint=hint))
        known = _standings(loaded)
        pages[name] = _page(loaded, book, known)
        entries.append((name, book, known))
    pages["index.md"] = _index(entries)
    return pages


def _standings(loaded: LoadedBook) -> dict[str, RuleStanding]:
    """Return what is known of the rules of a book, as they are written there."""
    known, found = standings(loaded), dict[str, list[RuleStanding]]()
    for rule in loaded.rules:
        found.setdefault(rule.rule.origin or rule.id, []).append(known[rule.id])
    return {origin: weakest(ones) for origin, ones in found.items()}


def _index(entries: Sequence[tuple[str, RuleBook, dict[str, RuleStanding]]]) -> str:
    lines = ["# Rule books", ""]
    rows = [
        (
            _link(_title(name), name),
            str(len(book.rules)),
            str(sum(one.status == "proved" for one in known.values())),
            plain(book.doc or ""),
        )
        for name, book, known in entries
    ]
    lines += table(["book", "rules", "proved", "what it is for"], rows)
    for name, book, known in entries:
        anchors = _anchors(book)
        lines += ["", f"## {plain(_title(name))}", ""]
        listed = [
            (_link(rule.id, f"{name}#{anchors[rule.id]}"), known[rule.id].status, plain(rule.doc or ""))
            for rule in book.rules
        ]
        lines += table(["rule", "status", "what it does"], listed)
    return "\n".join(lines) + "\n"


def _page(loaded: LoadedBook, book: RuleBook, known: dict[str, RuleStanding]) -> str:
    title = PurePath(loaded.file).stem
    lines = [f"# {plain(title)}", ""]
    lines += [plain(book.doc), ""] if book.doc else []
    lines += _needs(book)
    anchors = _anchors(book)
    lines += table(
        ["rule", "kind", "status", "what it does"],
        [
            (
                _link(rule.id, f"#{anchors[rule.id]}"),
                plain(rule.family),
                known[rule.id].status,
                plain(rule.doc or ""),
            )
            for rule in book.rules
        ],
    )
    compiled = {one.rule.origin: one for one in reversed(loaded.rules)}
    for rule in book.rules:
        lines += ["", f"## {plain(rule.id)}", "", *_rule(rule, compiled[rule.id], known[rule.id])]
    lines += _definitions(book)
    return "\n".join(lines) + "\n"


def _needs(book: RuleBook) -> list[str]:
    said = [f"Rules are known elsewhere as {code(book.namespace + '.ID')}."] if book.namespace != "local" else []
    said += [f"Uses what {', '.join(map(code, book.imports))} define."] if book.imports else []
    said += [f"Imports {', '.join(map(code, book.libraries))} for their operators."] if book.libraries else []
    said += [f"Declares properties of {', '.join(map(code, book.traits))}."] if book.traits else []
    return [*(f"- {one}" for one in said), ""] if said else []


def _anchors(book: RuleBook) -> dict[str, str]:
    anchors = Anchors()
    return {rule.id: anchors.of(rule.id) for rule in book.rules}


# One rule


def _rule(rule: Rule, compiled: CompiledRule, known: RuleStanding) -> list[str]:
    lines = [plain(rule.doc), ""] if rule.doc else []
    lines += ["Looks for", "", *block(rule.match)]
    if rule.vars:
        rows = [(code(name), code(str(compiled.variables.get(name, rule.vars[name])))) for name in rule.vars]
        lines += ["", *table(["name", "what it stands for"], rows)]
    lines += _conditions(rule)
    if rule.let:
        lines += ["", "Computes once, from constants", "", *block(rule.let)]
    lines += _replacements(rule)
    lines += ["", *(f"- {line}" for line in [*words(compiled), *contract(rule.equiv), *facts(rule, compiled)])]
    lines += [f"- Status: {plain(known.sentence)}"]
    return lines


def _conditions(rule: Rule) -> list[str]:
    lines: list[str] = []
    if rule.where:
        rows = [
            (
                code(guard.expr),
                plain(guard.why or "") or f"without it {_KINDS_OF_GUARDS[guard.kind]}",
                "asserted at run time where sizes do not decide" if guard.assume else "",
            )
            for guard in rule.where
        ]
        columns = ["condition", "why", "assumed"]
        if not any(row[2] for row in rows):
            columns, rows = columns[:2], [row[:2] for row in rows]  # type: ignore[misc]
        lines += ["", *table(columns, rows)]
    for pattern in rule.unless:
        lines += ["", "Not where this matches", "", *block(pattern)]
    return lines


def _replacements(rule: Rule) -> list[str]:
    lines: list[str] = []
    is_one = len(rule.cases) == 1 and rule.cases[0].when is None
    for index, case in enumerate(rule.cases):
        if is_one:
            said = "Replaces it with"
        elif case.when is None:
            said = "Otherwise replaces it with"
        else:
            said = f"{'Else if' if index else 'If'} {code(case.when)} replaces it with"
        lines += ["", said, "", *(block(case.let) if case.let else []), *([""] if case.let else [])]
        lines += block(case.replace)
    if rule.uses:
        lines += ["", "The uses of the old value get, from the `new` one", "", *block(rule.uses)]
    return lines


# What rules of a book use


def _definitions(book: RuleBook) -> list[str]:
    lines: list[str] = []
    for name, definition in book.ops.items():
        lines += ["", f"## Operator {plain(name)}", ""]
        lines += [plain(definition.doc), ""] if definition.doc else []
        lines += [f"{code(name + definition.schema_)} means", "", *block(definition.define)]
    for name, attribute in book.attributes.items():
        lines += ["", f"## Attribute {plain(name)}", ""]
        lines += [plain(attribute.doc), ""] if attribute.doc else []
        means = f"the value of the call is {code(attribute.means)}" if attribute.means else "it changes no value"
        lines += [f"Stands in the metadata as {code(attribute.key)}; {means}.", ""]
        lines += table(["field", "type"], [(code(field), code(kind)) for field, kind in attribute.fields.items()])
    for name, held in book.tables.items():
        rows = [(code(str(key)), code(str(value))) for key, value in held.items()]
        lines += ["", f"## Table {plain(name)}", "", *table(["row", "value"], rows)]
    if book.macros:
        rows = [(code(signature), code(text)) for signature, text in book.macros.items()]
        lines += ["", "## Macros", "", *table(["macro", "stands for"], rows)]
    if book.types:
        rows = [(code(name), code(text)) for name, text in book.types.items()]
        lines += ["", "## Types", "", *table(["type", "stands for"], rows)]
    if book.sets:
        sets = [(code(name), ", ".join(code(one) for one in chosen.rules)) for name, chosen in book.sets.items()]
        lines += ["", "## Sets", "", *table(["set", "rules"], sets)]
    return lines


def _title(name: str) -> str:
    return name.removesuffix(".md")


def _link(text: str, target: str) -> str:
    return f"[{plain(text)}](<{target}>)" if " " in target else f"[{plain(text)}]({target})"


# The keys of a rule as a page, made from the model that reads rules, so that the page cannot fall behind


_HEAD = """# The keys of a rule

Made from the model that reads rule books; `exirkit.patterns.rule_keys_page` makes it again.
[Rules](rules.md) explains the language.

| key | needed | what it says |
|---|---|---|
"""


def rule_keys_page() -> str:
    """Return the page, as Markdown."""
    texts = key_texts()
    rows = [
        f"| `{name}` | {'yes' if field.is_required() else ''} | {texts[name].replace('|', chr(92) + '|')} |"
        for name, field in Rule.model_fields.items()
    ]
    return _HEAD + "\n".join(rows) + "\n"


def key_texts() -> dict[str, str]:
    """Return the documentation of every key of a rule."""
    _, _, attributes = (inspect.getdoc(Rule) or "").partition("Attributes:\n")
    found = re.findall(r"^    (\w+): ((?:.*\n?)(?:^        .*\n?)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}
