"""Rules written in Python: parsed, never run, and the same model as those in YAML."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.patterns.syntax import python_rules

from exirkit.ir import UsageError
from exirkit.patterns import PythonBook, check_book, load_book, parse_book, shipped_books, write_book


def test_rules_are_accepted() -> None:
    loaded = python_rules.GOOD.load()
    assert not loaded.found, loaded.found
    assert [rule.id for rule in loaded.rules] == ["fuse.silu", "fold.linear-bias"]
    assert loaded.rules[0].rule.doc == "A value times its sigmoid is one operator."
    assert check_book(loaded, trials=40).is_accepted


def test_python_and_yaml_are_one_model() -> None:
    loaded = python_rules.GOOD.load()
    assert loaded.book is not None
    again = parse_book(write_book(loaded.book))
    assert not again.found
    assert again.book == loaded.book


@pytest.mark.parametrize("name", [*shipped_books(), "example_rules.yaml"])
def test_books_survive_writing(name: str) -> None:
    loaded = load_book(Path(__file__).parents[1] / name if name.endswith(".yaml") else name)
    assert loaded.book is not None
    again = parse_book(write_book(loaded.book))
    assert not again.errors
    assert again.book == loaded.book


def test_diagnostics_point_into_the_source() -> None:
    (finding,) = python_rules.WRONG.load().found
    place = finding.location
    assert (finding.code, place.file) == ("EK213", python_rules.__file__)
    assert place.text is not None
    assert place.line is not None
    assert place.column is not None
    assert Path(python_rules.__file__).read_text().splitlines()[place.line - 1] == place.text
    assert place.text[place.column - 1 :].startswith("aten.rellu.default")


def test_a_class_that_is_not_a_rule() -> None:
    with pytest.raises(UsageError, match="EK207"):
        PythonBook().rule("empty")(type("Empty", (), {}))


def test_tables() -> None:
    loaded = python_rules.TABLES.load()
    assert not loaded.found, loaded.found
    verdict = check_book(loaded, trials=40)
    assert verdict.is_accepted
    assert {one.what for one in verdict.rules[0].near_misses if one.witness} == {"row"}
    wrong = PythonBook("mine", tables={"empty": {}})
    with pytest.raises(UsageError) as error:
        wrong.load()
    assert error.value.diagnostics[0].code == "EK207"
    (finding, *_) = PythonBook("mine", tables={"variants": {"aten.relu.default": "aten.rellu.default"}}).load().found
    assert finding.code == "EK229"
