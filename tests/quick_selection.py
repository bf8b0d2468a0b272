"""Which tests `make test` and `make test-all` leave out: `left_out.yaml` names them, each group with its reason."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from zlib import crc32

import pydantic
import pytest
import yaml
from tests.thoroughness import TRIES_ALL

_TABLE = Path(__file__).with_name("left_out.yaml")


WHOLE = 5000
"""So many collected tests are all there are; where fewer are asked for, none of them is left out."""


class Group(pydantic.BaseModel):
    """Tests that only `make test-all` runs, or with `one_in`, tests of which it runs a part."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    tests: list[str]
    """Patterns of node ids, relative to `tests/`; `*` stands for any characters."""
    keep: list[str] = []
    """Patterns of those among them that `make test` runs."""
    quick_one_in: int | None = pydantic.Field(default=None, ge=2)
    """Of those that no pattern keeps, `make test` runs one in so many; which, their names decide."""
    one_in: int | None = pydantic.Field(default=None, ge=0)
    """`make test-all` runs one in so many, or none, and what is kept; `EXIRKIT_TESTS=all` runs all of them."""
    reason: str

    def contains(self, name: str) -> bool:
        """Return whether the group has a test, and does not keep it; `name` is its node id without `tests/`."""
        return _matches(name, tuple(self.tests)) and not _matches(name, tuple(self.keep))

    def leaves_out(self, name: str) -> bool:
        """Return whether `make test` leaves a test out."""
        is_drawn = self.quick_one_in is not None and crc32(name.encode()) % self.quick_one_in == 0
        return self.one_in is None and self.contains(name) and not is_drawn


def mark_slow(items: list[pytest.Item]) -> None:
    """Give the mark `slow` to what the table lists."""
    groups = listed_groups()
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        if any(group.leaves_out(name) for group in groups):
            item.add_marker("slow")


def take_parts(items: list[pytest.Item]) -> list[pytest.Item]:
    """Take out of all tests the slow ones that only `EXIRKIT_TESTS=all` runs, and return them."""
    if TRIES_ALL or len(items) < WHOLE:
        return []
    slow = [item for item in items if item.get_closest_marker("slow")]
    taken: list[pytest.Item] = []
    for group in listed_groups():
        if group.one_in is not None:
            found = [item for item in slow if group.contains(item.nodeid.removeprefix("tests/"))]
            kept = found[:: group.one_in] if group.one_in else []
            taken += [item for item in found if item not in kept]
    gone = set(map(id, taken))
    items[:] = [item for item in items if id(item) not in gone]
    return taken


def listed_groups() -> list[Group]:
    """Return the groups of the table."""
    return [Group.model_validate(one) for one in yaml.safe_load(_TABLE.read_text(encoding="utf-8"))]


def stale_patterns(names: list[str]) -> list[str]:
    """Return the patterns that match none of some node ids without `tests/`."""
    patterns = [one for group in listed_groups() for one in (*group.tests, *group.keep)]
    return [one for one in patterns if not any(_matches(name, (one,)) for name in names)]


def families_without_a_quick_test(names: list[str]) -> list[str]:
    """Return the patterns of groups with `quick_one_in` of which no test is drawn or kept."""
    groups = listed_groups()
    quick = [name for name in names if not any(group.leaves_out(name) for group in groups)]
    patterns = [one for group in groups if group.quick_one_in is not None for one in group.tests]
    return [one for one in patterns if not any(_matches(name, (one,)) for name in quick)]


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return _expression(patterns).fullmatch(name) is not None


@cache
def _expression(patterns: tuple[str, ...]) -> re.Pattern[str]:
    # Brackets are part of node ids; only `*` is special here. Without patterns, nothing matches.
    return re.compile("|".join(re.escape(one).replace(r"\*", ".*") for one in patterns) or "(?!)", re.DOTALL)
