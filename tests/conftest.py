"""What all tests share: a seeded and single-threaded torch, and the official runtime behind a mark."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from tests import quick_selection
from tests.official.oracle import OfficialExporter, OfficialRuntime, missing_reason
from tests.thoroughness import TRIES_ALL

# Set where the wheel must be there, so that a broken installation cannot pass for an optional one.
REQUIRED = "EXIRKIT_REQUIRE_EXECUTORCH"

# A shared machine may stall for longer than any deadline that would tell something about the code. CI tries the same
# examples in each run, so that a change is not charged with what another draw would have found; other runs draw others.
hypothesis.settings.register_profile("exirkit", deadline=None, derandomize=bool(os.environ.get("CI")))
hypothesis.settings.load_profile("exirkit")

_skipped: list[str] = []


# Node ids of what was collected, before any of it is deselected.
COLLECTED = pytest.StashKey[list[str]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is listed; put the longest tests first, so that no worker is left with them."""
    config.stash[COLLECTED] = [item.nodeid for item in items]
    quick_selection.mark_slow(items)
    if taken := quick_selection.take_parts(items):
        config.hook.pytest_deselected(items=taken)
    items.sort(key=lambda item: "upstream_suites/" not in item.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs the wheel where there is none; fail it where the wheel is required."""
    reason = missing_reason()
    if reason and item.get_closest_marker("executorch"):
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{reason}, and {REQUIRED}=1", pytrace=False)
        pytest.skip(reason)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count what was skipped for want of the wheel, in this process or in one of its workers."""
    reason = missing_reason()
    if reason and report.skipped and reason in str(report.longrepr):
        _skipped.append(report.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it aloud: a green run without the official runtime, or of a part of the tests, has tested less."""
    total = sum(len(found) for found in terminalreporter.stats.values())
    if total > quick_selection.WHOLE // 2 and not TRIES_ALL:
        line = "of some groups of tests only a part was run (tests/left_out.yaml); EXIRKIT_TESTS=all runs all"
        terminalreporter.write_sep("-", line)
    if _skipped:
        count = f"{len(_skipped)} tests were skipped"
        terminalreporter.write_sep("!", f"{count}: {missing_reason()}; set {REQUIRED}=1 to fail instead", yellow=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collectstart(collector: pytest.Collector) -> None:
    """Seed what a module of tests draws as it is imported: otherwise its inputs are others in each run."""
    if isinstance(collector, pytest.Module):
        torch.manual_seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Seed what a fixture of many tests draws, whatever ran before it, and go on as if it had drawn nothing."""
    if fixturedef.scope == "function":
        return (yield)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return (yield)


@pytest.fixture(autouse=True)
def _repeatable_torch() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if "torch._dynamo" in sys.modules:
        # Export traces `torch.cond` with dynamo, which remembers the sizes of earlier programs and adds guards on them.
        torch._dynamo.reset()


@pytest.fixture(scope="session")
def official_runtime() -> Iterator[OfficialRuntime]:
    """The official C++ runtime; tests that take it carry the mark `executorch`."""
    with OfficialRuntime() as runtime:
        yield runtime


@pytest.fixture(scope="session")
def official_export(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], bytes]]:
    """A function from the name of a case of the zoo to its official program; the files outlive the run."""
    cache = getattr(request.config, "cache", None)
    directory = Path(cache.mkdir("official")) if cache else tmp_path_factory.mktemp("official")
    exporter = OfficialExporter(directory)
    yield exporter.export
    exporter.close()
