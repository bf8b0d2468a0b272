"""Worker processes that may die: only the task that one was working on is lost, and says so."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Task = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...], dict[str, Any]]

# Imported once, by the process that all workers are forks of.
_PRELOADED = ["exirkit.fuzz.campaigns.execution.preloaded"]


class WorkerDiedError(RuntimeError):
    """The process that worked on a task died."""


class ProcessPool(Executor):
    """An executor with processes of one thread each.

    Unlike `ProcessPoolExecutor` it survives the death of its processes: the future of the task that a process was
    working on raises `WorkerDiedError`, a new process takes its place, and all other tasks go on.

    Args:
        workers: How many processes; by default one for each processor.
        growth_megabytes: A process that has grown by more since its first task is replaced after its task.
    """

    def __init__(self, workers: int | None = None, *, growth_megabytes: int = 512) -> None:
        self.workers = workers or os.cpu_count() or 1
        self._growth = growth_megabytes
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._is_shut = False
        self._is_cancelled = False
        self._lock = threading.Lock()
        self._running: set[_Worker] = set()
        self._context = _context()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self.workers)]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call of a function of a module; see `concurrent.futures.Executor.submit`."""
        future: Future[T] = Future()
        with self._lock:
            if self._is_shut:
                raise RuntimeError("this pool has been shut down")
            self._tasks.put((future, fn, args, kwargs))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks; with `cancel_futures`, end the processes at once."""
        with self._lock:
            first, self._is_shut = not self._is_shut, True
        if cancel_futures:
            self._is_cancelled = True
            with contextlib.suppress(queue.Empty):
                while True:
                    task = self._tasks.get_nowait()
                    if task is not None:
                        task[0].cancel()
            with self._lock:
                for worker in self._running:
                    worker.process.kill()
        if first or cancel_futures:
            for _ in self._threads:
                self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def process_ids(self) -> list[int]:
        """Return the ids of the processes that are there now."""
        with self._lock:
            return sorted(worker.process.pid or 0 for worker in self._running)

    def _work(self) -> None:
        worker: _Worker | None = None
        while (task := self._tasks.get()) is not None:
            future, function, args, kwargs = task
            if self._is_cancelled:
                future.cancel()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                worker = worker or self._start()
                is_good, value, is_full = worker.run((function, args, kwargs))
            except WorkerDiedError as error:
                self._drop(worker)
                worker = None
                future.set_exception(error)
                continue
            except BaseException as error:
                future.set_exception(error)
                continue
            if is_good:
                future.set_result(value)
            else:
                future.set_exception(value)
            if is_full:
                self._drop(worker)
                worker = None
        self._drop(worker)

    def _start(self) -> _Worker:
        worker = _Worker(self._context, self._growth)
        with self._lock:
            self._running.add(worker)
            if self._is_cancelled:
                # It was not among those that were ended, since it takes a while to start.
                worker.process.kill()
        return worker

    def _drop(self, worker: _Worker | None) -> None:
        if worker is not None:
            worker.close()
            with self._lock:
                self._running.discard(worker)


class _Worker:
    """One process, and the pipe to it."""

    def __init__(self, context: multiprocessing.context.BaseContext, growth: int) -> None:
        self._pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=_serve, args=(theirs, growth, list(sys.path)), daemon=True
        )
        self.process.start()
        theirs.close()

    def run(self, call: tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]) -> tuple[bool, Any, bool]:
        """Return whether a call returned, what it returned or raised, and whether the process is used up."""
        try:
            self._pipe.send(call)
            answer: tuple[bool, Any, bool] = self._pipe.recv()
        except (EOFError, ConnectionError) as error:
            self.process.join()
            raise WorkerDiedError(f"a worker died, exit code {self.process.exitcode}") from error
        return answer

    def close(self) -> None:
        """End the process; it is idle, or dead."""
        self._pipe.close()
        self.process.join(timeout=5)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def _context() -> multiprocessing.context.BaseContext:
    """Return how processes are started: never as a copy of this one, which may have threads."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def _serve(pipe: Connection, growth: int, path: list[str]) -> None:
    """Do tasks until the pipe is closed, or there is too little memory left."""
    # Ctrl-C is for the process that started the campaign.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What compilers and kernels print would get into the report; a process that dies is asked again, see isolation.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.path[:] = path
    first: int | None = None
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            function, args, kwargs = pipe.recv()
            try:
                is_good, value = True, function(*args, **kwargs)
            except Exception as error:
                is_good, value = False, error
            now = resident_megabytes()
            first = now if first is None else first
            is_full = now - first > growth
            try:
                pipe.send((is_good, value, is_full))
            except (TypeError, AttributeError, ValueError) as error:
                pipe.send((False, RuntimeError(f"cannot be sent back: {error}"), is_full))
            if is_full:
                return


def resident_megabytes() -> int:
    """Return the memory that this process has now; where the system does not tell, the most that it ever had."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    except (OSError, ValueError):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most >> (20 if sys.platform == "darwin" else 10)
