"""The table of tests that `make test` leaves out lists tests that exist."""

from __future__ import annotations

import pytest
from tests.conftest import COLLECTED
from tests.quick_selection import WHOLE, Group, families_without_a_quick_test, stale_patterns


@pytest.fixture
def names(request: pytest.FixtureRequest) -> list[str]:
    found = [name.removeprefix("tests/") for name in request.config.stash[COLLECTED]]
    if len(found) < WHOLE:
        pytest.skip("only some of the tests were collected")
    return found


def test_every_pattern_matches_a_test(names: list[str]) -> None:
    assert stale_patterns(names) == []


def test_of_every_family_some_are_quick(names: list[str]) -> None:
    assert families_without_a_quick_test(names) == []


def test_one_in_so_many_of_a_group_stays() -> None:
    group = Group(tests=["a.py::test[*]"], keep=["*[6]"], quick_one_in=3, reason="many")
    left_out = [name for number in range(300) if group.leaves_out(name := f"a.py::test[{number}]")]
    assert 150 < len(left_out) < 250
    assert not group.leaves_out("a.py::test[6]")
    assert not group.leaves_out("b.py::test[0]")
    assert all(Group(tests=["*"], reason="all").leaves_out(name) for name in left_out)
    assert not Group(tests=["*"], one_in=2, reason="of the slow ones").leaves_out("a.py::test[0]")
