from __future__ import annotations

import operator
import os
import signal
import threading
import time
from concurrent.futures import CancelledError, Future, wait
from typing import Any

import pytest

from exirkit.fuzz.campaigns import ProcessPool, WorkerDiedError, parse_seeds
from exirkit.fuzz.campaigns.execution import pool as pools
from exirkit.fuzz.campaigns.execution.pool import resident_megabytes
from exirkit.ir import UsageError


# Workers are fork-servers' children: what they call is found by its module, which must be one that they can import.
def test_calls_results_and_exceptions() -> None:
    with ProcessPool(2) as pool:
        assert list(pool.map(pow, [2, 3], [5, 2])) == [32, 9]
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result()
        with pytest.raises(UsageError, match="EK860"):
            pool.submit(parse_seeds, "x").result()
        ids = pool.process_ids()
        assert len(ids) == 2
        assert os.getpid() not in ids
    assert pool.process_ids() == []
    with pytest.raises(RuntimeError):
        pool.submit(pow, 1, 1)


def test_only_the_task_of_a_dead_worker_is_lost() -> None:
    with ProcessPool(1) as pool:
        futures: list[Future[Any]] = [pool.submit(pow, 2, 2), pool.submit(os.abort), pool.submit(pow, 2, 3)]
        wait(futures)
        assert futures[0].result() == 4
        with pytest.raises(WorkerDiedError, match=f"exit code {-signal.SIGABRT}"):
            futures[1].result()
        assert futures[2].result() == 8


def test_a_worker_that_grows_is_replaced() -> None:
    with ProcessPool(1, growth_megabytes=32) as pool:
        first = pool.submit(os.getpid).result()
        assert pool.submit(os.getpid).result() == first
        # The result is returned although the worker is used up by it.
        assert len(pool.submit(operator.mul, b"x", 256 << 20).result()) == 256 << 20
        assert pool.submit(os.getpid).result() != first


def test_shutting_down_at_once() -> None:
    pool = ProcessPool(1)
    running = pool.submit(time.sleep, 100)
    waiting = pool.submit(pow, 1, 1)
    deadline = time.monotonic() + 30
    while not running.running() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)
    pool.shutdown(cancel_futures=True)
    with pytest.raises(WorkerDiedError):
        running.result(timeout=10)
    with pytest.raises(CancelledError):
        waiting.result(timeout=10)


def test_shutting_down_while_a_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go = threading.Event(), threading.Event()

    class Slow(pools._Worker):
        def __init__(self, *args: Any) -> None:
            begun.set()
            assert go.wait(30)
            super().__init__(*args)

    monkeypatch.setattr(pools, "_Worker", Slow)
    pool = ProcessPool(1)
    running = pool.submit(time.sleep, 100)
    assert begun.wait(30)
    pool.shutdown(wait=False, cancel_futures=True)
    go.set()
    with pytest.raises(WorkerDiedError):
        running.result(timeout=60)
    pool.shutdown()


def test_what_cannot_be_sent_is_said() -> None:
    with ProcessPool(1) as pool:
        with pytest.raises((AttributeError, TypeError)):
            pool.submit(lambda: 1).result()
        with pytest.raises(RuntimeError, match="cannot be sent back"):
            pool.submit(open, os.devnull).result()
        assert pool.submit(pow, 2, 2).result() == 4


def test_memory_is_measured() -> None:
    before = resident_megabytes()
    hoard = b"x" * (128 << 20)
    assert 100 < resident_megabytes() - before < 200, len(hoard)
