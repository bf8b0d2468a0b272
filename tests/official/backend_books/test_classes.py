"""The tables of books of backends against the sources of the official package."""

from __future__ import annotations

import pytest
from tests.official.backend_books.classes import folder_of, lines_of_classes

from exirkit.patterns import backend_books, backend_classes, other_backend_classes

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
# Those of all packages that rewrite programs: the 460 of the survey, and one that gives debug handles.
SURVEYED = 461


@pytest.mark.parametrize("name", backend_books())
def test_classes_are_those_of_the_package(name: str) -> None:
    classes = backend_classes(name)
    places = [(one.file, one.name) for one in classes.entries]
    assert len(set(places)) == len(places) == NUMBERS[name]
    folder = folder_of(classes.package)
    for one in classes.entries:
        assert lines_of_classes(folder / one.file)[one.name] == one.lines, one.name


def test_classes_of_other_packages_are_those_of_the_tree() -> None:
    packages = other_backend_classes()
    assert len({one.package for one in packages}) == len(packages) == 12
    for classes in packages:
        for one in classes.entries:
            assert lines_of_classes(folder_of(classes.package) / one.file)[one.name] == one.lines, one.name


def test_every_class_that_rewrites_programs_has_an_entry() -> None:
    entries = [one for name in backend_books() for one in backend_classes(name).entries]
    entries += [one for classes in other_backend_classes() for one in classes.entries]
    rewriting = [one for one in entries if one.expressible != "base"]
    assert len(rewriting) == SURVEYED
    assert sum(one.extent != "nothing" for one in rewriting) >= 250
    assert sum(one.expressible != "neither" for one in rewriting) >= 0.9 * SURVEYED
