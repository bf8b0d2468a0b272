"""The table of tests that `make test` leaves out lists tests that exist."""

from __future__ import annotations

import pytest
from tests.conftest import COLLECTED
from tests.quick_selection import WHOLE, stale_patterns


def test_every_pattern_matches_a_test(request: pytest.FixtureRequest) -> None:
    names = [name.removeprefix("tests/") for name in request.config.stash[COLLECTED]]
    if len(names) < WHOLE:
        pytest.skip("only some of the tests were collected")
    assert stale_patterns(names) == []
