"""Which tests `make test` leaves out: `left_out.yaml` names them, each group with its reason."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pydantic
import pytest
import yaml

_TABLE = Path(__file__).with_name("left_out.yaml")


class Group(pydantic.BaseModel):
    """Tests that only `make test-all` runs."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    tests: list[str]
    """Patterns of node ids, relative to `tests/`; `*` stands for any characters."""
    keep: list[str] = []
    """Patterns of those among them that `make test` runs."""
    reason: str

    def contains(self, name: str) -> bool:
        """Return whether a test is left out; `name` is its node id without `tests/`."""
        return _matches(name, self.tests) and not _matches(name, self.keep)


def mark_slow(items: list[pytest.Item]) -> None:
    """Give the mark `slow` to what the table lists."""
    groups = listed_groups()
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        if any(group.contains(name) for group in groups):
            item.add_marker("slow")


def listed_groups() -> list[Group]:
    """Return the groups of the table."""
    return [Group.model_validate(one) for one in yaml.safe_load(_TABLE.read_text(encoding="utf-8"))]


def stale_patterns(names: list[str]) -> list[str]:
    """Return the patterns that match none of some node ids without `tests/`."""
    patterns = [one for group in listed_groups() for one in (*group.tests, *group.keep)]
    return [one for one in patterns if not any(_matches(name, [one]) for name in names)]


def _matches(name: str, patterns: list[str]) -> bool:
    # Brackets are part of node ids; only `*` is special here.
    return any(fnmatchcase(name, pattern.replace("[", "[[]")) for pattern in patterns)
