"""Operators that books define, decomposed again: their definitions as rules, from the operator to what it means."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from exirkit.patterns.books.model import OperatorDefinition, Rule, RuleBook
from exirkit.patterns.books.traced_literals import unused
from exirkit.patterns.matching.compiled_rule import texts_of
from exirkit.patterns.operators.defined import definition_of
from exirkit.patterns.syntax.terms import Operator

from .loading import LoadedBook, compile_book

_TYPES = {
    "Tensor": "any",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "number": "scalar",
    "Scalar": "scalar",
    "ScalarType": "dtype",
    "SymInt": "int",
    "List[int]": "ints",
    "List[SymInt]": "ints",
    "List[Tensor]": "list of any",
}


def unfuse(
    book: LoadedBook, *, keep: Collection[str] = (), types: Mapping[str, Mapping[str, str]] | None = None
) -> LoadedBook:
    """Return rules that replace the operators of a book, and of those that it imports, by their definitions.

    They are rules like any other: they can be checked, applied, limited and undone.

    Args:
        book: A book that defines operators.
        keep: Operators to leave, by name: those that the target has.
        types: Types of the arguments by operator, as under `vars`, where they are to be narrower than the schema says:
            a condition of the rule, and what it is tried on.

    Returns:
        A book with a rule `unfuse.NAME` for every operator whose arguments rules can name.

    Raises:
        ModelError: The book has errors.
    """
    book.require_valid()
    definitions = {name: one for name, one in _definitions(book) if name not in keep}
    operators = book.operators
    narrower = types or {}
    rules = [
        rule
        for name, definition in definitions.items()
        if (rule := _rule(name, definition, operators[name], narrower.get(name, {}))) is not None
    ]
    macros = {key: text for one in _books(book) if one.book is not None for key, text in one.book.macros.items()}
    # Definitions may call operators that stay.
    every = dict(_definitions(book))
    made = RuleBook(rulebook=1, namespace="unfuse", macros=macros, ops=every, rules=tuple(rules))
    return compile_book(made, f"<unfused {book.file}>", texts_of)


def _books(book: LoadedBook) -> Iterator[LoadedBook]:
    """Yield a book after those that it imports, so that definitions come before their uses."""
    for one in book.imported:
        yield from _books(one)
    yield book


def _definitions(book: LoadedBook) -> Iterator[tuple[str, OperatorDefinition]]:
    for one in _books(book):
        yield from one.book.ops.items() if one.book is not None else ()


def _rule(name: str, definition: OperatorDefinition, op: Operator, narrower: Mapping[str, str]) -> Rule | None:
    assert definition_of(op) is not None, "operators of books have definitions"
    types: dict[str, str] = {}
    arguments: list[str] = []
    for argument in op._schema.arguments:
        kind = narrower.get(argument.name) or _type_of(argument.type)
        if kind is None:
            return None
        types[argument.name] = kind
        arguments.append(f"{argument.name}={argument.name}" if argument.kwarg_only else argument.name)
    count = len(op._schema.returns)
    call = f"{name}({', '.join(arguments)})"
    results = [unused(f"result{index}", types) for index in range(count)]
    match = f"return {call}" if count == 1 else f"{', '.join(results)} = {call}\nreturn {', '.join(results)}"
    doc = definition.doc or f"What {name} means."
    return Rule.model_validate(
        {
            "id": f"unfuse.{name}",
            "doc": doc,
            "vars": types,
            "match": match,
            "replace": definition.define,
            "measure": {"bound": 1000},
        }
    )


def _type_of(kind: Any) -> str | None:
    text = str(kind)
    if text.startswith("Optional["):
        inner = _TYPES.get(text.removeprefix("Optional[").removesuffix("]"))
        return None if inner is None else f"{inner} | none"
    return _TYPES.get(text)
