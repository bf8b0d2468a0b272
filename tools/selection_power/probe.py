"""Runs inside a tree with mutants, as the module `exirkit_mutants`: switches one on, and records who reaches which.

A plugin of pytest; `serve` runs tests in processes that are forked after the slow imports.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

_active = int(os.environ.get("EXIRKIT_MUTANT", "-1"))
_LOG = os.environ.get("EXIRKIT_MUTANTS_REACHED")
_seen: set[int] = set()


def active(number: int) -> bool:
    """Return whether a mutant is switched on, and record that it was reached."""
    if number not in _seen:
        _seen.add(number)
        _record({"test": os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0], "reached": number})
    return number == _active


def switch_on(number: int) -> None:
    """Switch a mutant on, instead of the one that is."""
    global _active
    _active = number


def forget() -> None:
    """Forget which mutants were reached."""
    _seen.clear()


def reached() -> list[int]:
    """Return which mutants were reached since the last `forget`."""
    return sorted(_seen)


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


def serve() -> None:
    """Read requests as lines of JSON, and answer each with the exit code of pytest, or -1 if it took too long.

    A request has `mutant`, `arguments` of pytest, `seconds` that it may take, and `log`, a file for its output.
    """
    for name in ("torch._dynamo", "torch.export", "exirkit", "exirkit.fuzz", "exirkit.runtime_ref", "exirkit.cli.app"):
        import_module(name)
    for line in sys.stdin:
        request = json.loads(line)
        process = os.fork()
        if not process:
            _run(request)
        print(json.dumps(_wait(process, request["seconds"])), flush=True)


def _run(request: dict[str, Any]) -> None:
    os.setpgid(0, 0)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    switch_on(request["mutant"])
    os.environ["EXIRKIT_MUTANT"] = str(request["mutant"])
    os._exit(int(pytest.main(request["arguments"])))


def _wait(process: int, seconds: float) -> int:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    # A mutant may hang in a process that a test has started.
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return -1
