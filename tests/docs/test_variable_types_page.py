"""The page about the types of variables is made from the types; every type, qualifier and keyword has an example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exirkit.patterns import load_book, variable_types_page
from exirkit.patterns.types.parser import TYPES, parse_variable
from exirkit.patterns.types.reference import QUALIFIER_TEXTS, parsed_examples
from exirkit.patterns.types.scanner import QUALIFIERS
from exirkit.patterns.types.variable import Variable

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "variable_types.md"


def test_page_is_made_from_the_tables() -> None:
    assert PAGE.read_text() == variable_types_page(), "write variable_types_page() to docs/reference/variable_types.md"


def test_every_type_is_listed_and_has_an_example() -> None:
    def below(kind: type[Variable]) -> set[type[Variable]]:
        return {one for each in kind.__subclasses__() for one in {each} | below(each)}

    # Others are the common part of several types.
    common = {one for one in below(Variable) if one.__subclasses__()}
    assert below(Variable) - common <= set(TYPES) <= below(Variable)
    assert all(kind.EXAMPLES for kind in TYPES)
    assert set(QUALIFIERS) == set(QUALIFIER_TEXTS)


@pytest.mark.parametrize("text", list(parsed_examples()))
def test_examples_are_of_the_type(text: str) -> None:
    (kind,) = (kind for kind in TYPES if text in kind.EXAMPLES)
    parsed = parse_variable("v", text)
    assert type(parsed) is kind
    assert parse_variable("v", str(parsed)) == parsed, "the canonical string parses to the same type"


def test_every_keyword_occurs() -> None:
    words = {word for text in parsed_examples() for word in text.replace("|", " ").split()}
    for kind in TYPES:
        assert not kind.KEYWORDS or set(kind.KEYWORDS) & words, kind


def test_book_of_the_page(tmp_path: Path) -> None:
    (book,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    path = tmp_path / "book.yaml"
    path.write_text(book)
    assert len(load_book(path).require_valid().rules) == 2
