"""The tables of books of backends against the sources of the official package."""

from __future__ import annotations

import pytest
from tests.official.backend_books.classes import folder_of, lines_of_classes

from exirkit.patterns import backend_books, backend_classes

# Classes of the tables per package: those that the survey of the official tree has found.
NUMBERS = {
    "backends/arm": 172,
    "backends/cadence": 88,
    "backends/cortex_m": 12,
    "backends/exir": 38,
    "backends/nxp": 21,
    "backends/qualcomm": 69,
    "backends/transforms": 39,
    "backends/xnnpack": 16,
}


@pytest.mark.parametrize("name", backend_books())
def test_classes_are_those_of_the_package(name: str) -> None:
    classes = backend_classes(name)
    places = [(one.file, one.name) for one in classes.entries]
    assert len(set(places)) == len(places) == NUMBERS[name]
    folder = folder_of(classes.package)
    for one in classes.entries:
        assert lines_of_classes(folder / one.file)[one.name] == one.lines, one.name
