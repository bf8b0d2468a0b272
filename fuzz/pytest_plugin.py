"""The pytest plug-in: the fixture `fuzz_pass`, and options. It is loaded everywhere, and imports nothing heavy."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .campaigns.user_tests import PassFuzzer

_TOLD = "exirkit programs"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("exirkit", "exirkit: generated programs")
    group.addoption(
        "--exirkit-seeds",
        metavar="N|A:B",
        help="Seeds of generated programs, instead of those that tests ask for.",
    )
    group.addoption(
        "--exirkit-repro-dir",
        metavar="DIR",
        default=".exirkit-fuzz",
        help="Where programs and scripts that fail are written; default: .exirkit-fuzz.",
    )


@pytest.fixture
def fuzz_pass(request: pytest.FixtureRequest) -> Iterator[PassFuzzer]:
    """Call it with a pass: it is run on generated programs, and the test fails with a small one that it makes wrong."""
    from .campaigns.user_tests import PassFuzzer

    directory = Path(request.config.rootpath, request.config.getoption("--exirkit-repro-dir"))
    fuzzer = PassFuzzer(request.config.getoption("--exirkit-seeds"), directory, request.node.name)
    # With the report of the test, so that it is told whichever process has run it.
    request.node.user_properties.append((_TOLD, fuzzer.told))
    with _without_traces(request.config):
        yield fuzzer


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Return how many programs each pass changed: a pass that changes none was not tested."""
    reports = [
        one
        for kind in ("passed", "failed")
        for one in terminalreporter.stats.get(kind, [])
        if getattr(one, "when", None) == "call"
    ]
    lines = [
        f"{one.nodeid}: {line}" for one in reports for key, told in one.user_properties if key == _TOLD for line in told
    ]
    if lines:
        terminalreporter.section("exirkit: generated programs")
        for line in lines:
            terminalreporter.write_line(line)


@contextmanager
def _without_traces(config: pytest.Config) -> Iterator[None]:
    """Keep empty lines of torch's out of the report of a failure: it logs a thousand of them for every program."""
    logging_plugin = config.pluginmanager.get_plugin("logging-plugin")
    handler = getattr(logging_plugin, "report_handler", None)
    if handler is None:
        yield
        return
    handler.addFilter(_is_not_a_trace)
    try:
        yield
    finally:
        handler.removeFilter(_is_not_a_trace)


def _is_not_a_trace(record: logging.LogRecord) -> bool:
    return record.name != "torch.__trace"
