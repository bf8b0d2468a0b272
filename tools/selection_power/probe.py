"""Runs inside a tree with mutants, as the module `exirkit_mutants`: switches one on, and records who reaches which.

Standard library only; also a plugin of pytest.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

_ACTIVE = int(os.environ.get("EXIRKIT_MUTANT", "-1"))
_LOG = os.environ.get("EXIRKIT_MUTANTS_REACHED")
_seen: set[int] = set()


def active(number: int) -> bool:
    """Return whether a mutant is switched on, and record that it was reached."""
    if _LOG is not None and number not in _seen:
        _seen.add(number)
        _record({"test": os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0], "reached": number})
    return number == _ACTIVE


def _record(entry: dict[str, Any]) -> None:
    if _LOG is not None:
        with open(_LOG, "a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")


def _cpu_seconds() -> float:
    used = os.times()
    return time.process_time() + used.children_user + used.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record the CPU seconds of a test, those of its processes included."""
    _seen.clear()
    start = _cpu_seconds()
    result = yield
    _record({"test": item.nodeid, "seconds": round(_cpu_seconds() - start, 3)})
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record what fails."""
    if report.failed:
        _record({"test": report.nodeid, "failed": report.when})
