"""The page about the types of variables is what the tables say; every type, qualifier and word has an example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exirkit.patterns import load_book, variable_types_page
from exirkit.patterns.types import variables as types
from exirkit.patterns.types.parser import _STARTERS, parse_variable
from exirkit.patterns.types.reference import QUALIFIER_TEXTS, VARIABLE_EXAMPLES, parsed_examples

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "variable_types.md"


def test_page_is_made_from_the_tables() -> None:
    assert PAGE.read_text() == variable_types_page(), "write variable_types_page() to docs/reference/variable_types.md"


def test_every_type_has_an_example() -> None:
    kinds = {kind for kind in vars(types).values() if isinstance(kind, type) and issubclass(kind, types.Variable)}
    assert kinds - {types.Variable, types.AboutVariable} == set(VARIABLE_EXAMPLES)
    assert set(types.QUALIFIERS) == set(QUALIFIER_TEXTS)


@pytest.mark.parametrize("text", list(parsed_examples()))
def test_examples_are_of_the_type(text: str) -> None:
    (kind,) = (kind for kind, examples in VARIABLE_EXAMPLES.items() if text in examples)
    parsed = parse_variable("v", text)
    assert type(parsed) is kind
    assert parse_variable("v", str(parsed)) == parsed, "the canonical text says the same"


def test_every_word_occurs() -> None:
    words = {word for text in parsed_examples() for word in text.replace("|", " ").split()}
    starters: dict[object, set[str]] = {}
    for word, starter in _STARTERS.items():
        starters.setdefault(starter, set()).add(word)
    for alternatives in starters.values():
        assert alternatives & words, alternatives


def test_book_of_the_page(tmp_path: Path) -> None:
    (book,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "book.yaml"
    path.write_text(book)
    assert len(load_book(path).require_valid().rules) == 2
