"""Workers on other machines: the executor of a Dask cluster."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, InvalidStateError
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from exirkit.ir import Diagnostic, ModelError

P = ParamSpec("P")
T = TypeVar("T")

# How often the connection is looked after.
_TICK_SECONDS = 0.5
# How long a scheduler that does not answer may take to come back.
_PATIENCE_SECONDS = 20


class ClusterLostError(RuntimeError):
    """The scheduler of the cluster has gone, and with it what was handed to it."""


class ClusterExecutor(Executor):
    """The executor of a client of Dask, whose futures do not wait for a scheduler that has gone.

    When the client has given the scheduler up, futures that are not done raise `ClusterLostError`, and so does
    `submit`; those of Dask itself would never be done. What the client cancels because the connection is interrupted
    raises it when the connection is there again.

    Args:
        client: The client; it belongs to the caller.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        # A batch does not depend on where, or how often, it is run.
        self._inner = client.get_executor(pure=False)
        self._lock = threading.Lock()
        self._pending: set[Future[Any]] = set()
        self._cut: set[Future[Any]] = set()
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Hand a call to the cluster.

        Raises:
            ClusterLostError: The scheduler has gone.
        """
        if self._is_lost():
            raise ClusterLostError("the scheduler has gone")
        outer: Future[T] = Future()
        outer.set_running_or_notify_cancel()
        with self._lock:
            self._pending.add(outer)
        inner = self._inner.submit(fn, *args, **kwargs)
        inner.add_done_callback(lambda done: self._finish(outer, done))
        return outer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls; what is not done is waited for, unless the scheduler has gone."""
        if not self._is_lost():
            self._inner.shutdown(wait=wait)
        self._is_over.set()
        self._watcher.join()

    def _is_lost(self) -> bool:
        return self._client.status in ("closing", "closed")

    def _finish(self, outer: Future[Any], done: Future[Any]) -> None:
        error = CancelledError() if done.cancelled() else done.exception()
        with self._lock:
            if isinstance(error, CancelledError):
                # Only an interrupted connection cancels one; the watcher says when it can be handed out again.
                self._cut.add(outer)
                return
            self._pending.discard(outer)
        with contextlib.suppress(InvalidStateError):
            if error is None:
                outer.set_result(done.result())
            else:
                outer.set_exception(error)

    def _watch(self) -> None:
        while not self._is_over.wait(_TICK_SECONDS):
            with self._lock:
                if self._is_lost():
                    lost, self._pending, self._cut = self._pending, set(), set()
                elif self._client.status == "running":
                    lost, self._cut = self._cut, set()
                    self._pending -= lost
                else:
                    continue
            for future in lost:
                with contextlib.suppress(InvalidStateError):
                    future.set_exception(ClusterLostError("the scheduler has gone"))


@contextmanager
def dask_executor(address: str) -> Iterator[tuple[Executor, int]]:
    """Give the executor of a Dask cluster, and the number of its threads, for the time of the block.

    Each of its machines needs exirkit; workers should have one thread (`dask worker --nthreads 1 --nworkers auto`).

    Args:
        address: Of the scheduler, such as `tcp://10.0.0.7:8786`.

    Raises:
        ModelError: EK866, Dask is not installed, or the scheduler does not answer, or has no workers.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise _unusable("Dask is not installed", "pip install 'exirkit[dask]'") from error
    try:
        client = Client(address, timeout=_PATIENCE_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise _unusable(f"no answer from {address}: {error}", "start one with `dask scheduler`") from error
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise _unusable(f"{address} has no workers", f"start some with `dask worker {address} --nthreads 1`")
        with ClusterExecutor(client) as executor:
            yield executor, threads


def _unusable(what: str, hint: str) -> ModelError:
    return ModelError(Diagnostic(code="EK866", message=what, hint=hint))
