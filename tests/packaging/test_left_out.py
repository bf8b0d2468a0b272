"""The table of tests that `make test` leaves out lists tests that exist."""

from __future__ import annotations

from typing import Any

import pytest
from tests import quick_selection
from tests.conftest import COLLECTED
from tests.quick_selection import WHOLE, Group, stale_patterns


def test_every_pattern_matches_a_test(request: pytest.FixtureRequest) -> None:
    names = [name.removeprefix("tests/") for name in request.config.stash[COLLECTED]]
    if len(names) < WHOLE:
        pytest.skip("only some of the tests were collected")
    assert stale_patterns(names) == []


def test_one_in_so_many_of_a_group_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    class Item:
        def __init__(self, nodeid: str) -> None:
            self.nodeid, self.marks = nodeid, list[str]()

        def add_marker(self, mark: str) -> None:
            self.marks.append(mark)

    items: list[Any] = [Item(f"tests/a.py::test[{number}]") for number in range(7)] + [Item("tests/b.py::test[0]")]
    groups = [Group(tests=["a.py::test[*]"], keep=["*[6]"], quick_one_in=3, reason="many")]
    monkeypatch.setattr(quick_selection, "listed_groups", lambda: groups)
    quick_selection.mark_slow(items)
    assert [one.nodeid for one in items if not one.marks] == [
        "tests/a.py::test[0]", "tests/a.py::test[3]", "tests/a.py::test[6]", "tests/b.py::test[0]",
    ]  # fmt: skip
