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


def mark_slow(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give the mark `slow` to what the table lists.

    Raises:
        pytest.UsageError: an entry matches no test though all tests were collected.
    """
    names = {item: item.nodeid.removeprefix("tests/") for item in items}
    groups = [Group.model_validate(one) for one in yaml.safe_load(_TABLE.read_text(encoding="utf-8"))]
    for item, name in names.items():
        if any(group.contains(name) for group in groups):
            item.add_marker("slow")
    if config.args == config.getini("testpaths"):
        patterns = [one for group in groups for one in (*group.tests, *group.keep)]
        stale = [one for one in patterns if not any(_matches(name, [one]) for name in names.values())]
        if stale:
            raise pytest.UsageError(f"{_TABLE.name} lists tests that do not exist: {', '.join(stale)}")


def _matches(name: str, patterns: list[str]) -> bool:
    # Brackets are part of node ids; only `*` is special here.
    return any(fnmatchcase(name, pattern.replace("[", "[[]")) for pattern in patterns)
